// optim/replicator.h — what a host tells its peers each round, and how it takes in theirs.
//
// A replicator parts the momentum of a tensor in two: a small message that travels and a
// remainder that stays. It knows no network, clock or thread: same input, same output, on
// every host. It works on units: whole rows of one tensor, cut where chunk.h allows, each with its
// own bytes in the message, so that units run on any thread or rank and nothing changes.
// demo: arXiv 2411.19870. random, striding, slicing: arXiv 2502.06728. Read next: repl-demo.cpp.
#pragma once

#include "optim/chunk.h"
#include "optim/values.h"

#include <functional>

namespace gt {

// Rows [begin, end) of a tensor, a multiple of its cut_rows.
struct Unit {
    int     tensor = 0;
    int64_t begin = 0, end = 0;
};

// What depends on the number of the round alone. For the row replicators: the rows that travel,
// ascending, per tensor, in the tensor's own rows.
struct Plan {
    uint64_t                          round = 0;
    std::vector<std::vector<int64_t>> rows;
};

// The gradient of a unit on its way into the momentum: m = decay·m + alpha·g. Momenta below 1e-30
// count as zero: denormals are slow and say nothing.
struct Fold {
    const float * grad  = nullptr;  // null: none this step
    float         decay = 1.0f, alpha = 1.0f;
};

// One host's bytes for a unit, and its share in the mean.
struct Piece {
    const uint8_t * bytes  = nullptr;
    double          weight = 1.0;  // samples
    double          scale  = 1.0;  // to the median norm, if that is asked for
};

class Replicator {
public:
    virtual ~Replicator() = default;

    // Rounds count from 0, one per message: the same on every host.
    virtual Plan plan(uint64_t round) const = 0;

    // Bytes of a unit in the message; known without its content.
    virtual int64_t bytes(const Plan & plan, const Unit & unit) const = 0;

    // Folds the gradient into the unit's momentum, takes out what is to be sent and writes it to `out`
    // (null: no round this step, nothing is sent). The momentum is in the replicator's own basis: the
    // coefficients of the chunks for demo, else elements. Afterwards it is, bit for bit, what
    // the fold made of it minus what give_back would add.
    virtual void extract(
        const Plan & plan, const Unit & unit, const Fold & fold, float * momentum, uint8_t * out
    ) const = 0;

    // Adds what the bytes hold to the momentum. REQUIRES: they passed `check`.
    virtual void give_back(
        const Plan & plan, const Unit & unit, const uint8_t * bytes, float * momentum
    ) const = 0;

    // Why these bytes are not to be used, or null; adds the sum of the values' squares to `norm2`.
    [[nodiscard]] virtual const char *
    check(const Plan & plan, const Unit & unit, const uint8_t * bytes, double & norm2) const = 0;

    // Writes the weighted mean of the pieces to `update`, in elements, whatever the basis.
    // REQUIRES: each piece passed `check`; pieces in commit order, so that all hosts sum alike.
    virtual void merge(
        const Plan & plan, const Unit & unit, std::span<const Piece> pieces, float * update
    ) const = 0;
};

using Shapes = std::vector<TensorShape>;

// m = decay·m + alpha·g, element by element.
void fold_elements(const Fold & fold, const float * grad, int64_t n, float * momentum);

// Largest DCT coefficients of each chunk; a coefficient's mean is over those who sent it.
std::unique_ptr<Replicator>
make_demo(const Shapes & shapes, const ChunkTarget & chunk, int64_t top_k, Wire wire);

// Largest elements of each chunk, no transform; the mean is over all hosts.
std::unique_ptr<Replicator>
make_top_k(const Shapes & shapes, const ChunkTarget & chunk, int64_t top_k, Wire wire);

// Everything.
std::unique_ptr<Replicator> make_dense(const Shapes & shapes, Wire wire);

// Some rows, the same on every host. Each tensor is seen as view_rows[tensor] rows, each of one or
// more of the tensor's own; the chooser says which of them travel in a round.
using RowChooser = std::function<std::vector<int64_t>(uint64_t round, int tensor, int64_t n_rows)>;
std::unique_ptr<Replicator>
make_rows(const Shapes & shapes, std::vector<int64_t> view_rows, RowChooser chooser, Wire wire);
std::unique_ptr<Replicator>
make_random(const Shapes & shapes, float rate, uint64_t seed, Wire wire);
std::unique_ptr<Replicator>
make_striding(const Shapes & shapes, const ChunkTarget & chunk, float rate, Wire wire);
std::unique_ptr<Replicator>
make_slicing(const Shapes & shapes, const ChunkTarget & chunk, float rate, Wire wire);

// The weighted mean of n <= 64 values of a dense group that begins at `offset` of each piece; total
// is the sum of the weights. The one place where dense values of several hosts are added.
void mean_of_group(
    Wire wire, std::span<const Piece> pieces, int64_t offset, int64_t n, double total, float * mean
);

// Rows of n that a rate asks for: at least one.
int64_t rows_at_rate(int64_t n, float rate);

// The view of striding and slicing: the largest divisor of the leading size up to the target.
std::vector<int64_t> chunk_view(const Shapes & shapes, const ChunkTarget & chunk);

}  // namespace gt
