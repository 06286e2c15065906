// optim/tables.h — the table of replicators and the table of update rules.
//
// A new replicator is one file (repl-<name>.cpp) and one row in tables.cpp; a new rule likewise. A row
// holds everything that depends on the kind, so no other code compares names.
#pragma once

#include "optim/decoupled.h"
#include "optim/device/device-replicator.h"
#include "optim/optim.h"
#include "optim/wire/replicator.h"

#include <functional>

namespace gt {

// How the optimizer uses a replicator.
enum class Scheme {
    momentum,     // sends part of a momentum that accumulates lr·g (decoupled.h)
    gradient,     // sends gradients as they are (decoupled.h)
    local_steps,  // updates its own weights, then sends the change (local-steps.h)
};

using MakeReplicator =
    std::unique_ptr<Replicator>(const OptimOptions & options, const Shapes & shapes, Wire wire);
using MakeOnDevice = std::unique_ptr<DeviceReplicator>(
    const OptimOptions & options, const Units & units, Wire wire, Device & device
);

using MakeOnGraph = std::unique_ptr<Optimizer>(
    OptimizerParts parts, const OptimOptions & options, Wire wire, bool sign, DctMomentum & momentum
);

// Up to this many, changes that are rounded less are worth more than changes that travel sooner.
constexpr uint64_t kFewFragments = 8;

struct ReplicatorRow {
    uint8_t      id;  // on the wire (codec.h): never change it, never reuse it
    const char * name;
    const char * help;
    Scheme       scheme;
    // what "auto" or 0 means in the options
    const char * rule;
    const char * wire;
    uint64_t     every        = 1;
    uint64_t     fragments    = 0;  // local steps: 0 here means that the option does not apply
    const char * wire_of_many = nullptr;  // with more than kFewFragments; null: the same
    // local steps: what a negative outer_lr or outer_momentum means
    float outer_lr       = 0.7f;
    float outer_momentum = 0.9f;
    float correction     = 0.0f;  // local steps: what a negative one means
    // properties
    bool sparse               = false;  // sends the largest values of each chunk
    bool dense                = false;  // messages may be averaged in shares (wire/shares.h)
    bool subtract_missed_mean = true;   // see DecoupledOptions
    bool decays_residual      = false;  // local steps: residual_decay applies
    bool restores_norm        = false;  // local steps: of the mean change

    MakeReplicator * make      = nullptr;  // null: sends nothing
    MakeOnDevice *   on_device = nullptr;  // null: no kernels, tensors must be in host memory
    MakeOnGraph *    on_graph  = nullptr;  // null: the momentum must be in host memory
};

struct RuleRow {
    const char * name;
    const char * help;
    bool         whole_matrices;  // a matrix must not be cut between ranks
    bool         signs_momentum;  // sign "auto" is on behind Scheme::momentum
    double       lr_factor;       // on the default learning rate, which is AdamW's
    std::unique_ptr<UpdateRule> (*make)(const OptimOptions &, std::vector<RuleTensor>);
    std::unique_ptr<UpdateRule> (*on_device
    )(const OptimOptions &, std::vector<RuleTensor>, Device &);
};

// The tables. A program may append rows of its own before it makes the first optimizer.
std::vector<ReplicatorRow> & replicators();
std::vector<RuleRow> &       rules();

// demo: the largest DCT coefficients of each chunk; a coefficient's mean is over its senders.
// top_k: the largest elements of each chunk; the mean is over all hosts. dense: everything.
// fragments: all of some tensors, which take turns.
MakeReplicator make_demo, make_top_k, make_dense, make_fragments, make_random, make_striding,
    make_slicing;

// Some rows, the same on every host. Each tensor is viewed as view_rows[tensor] rows, each of one or
// more of the tensor's own; the chooser returns the ones that travel in a round.
using RowChooser = std::function<std::vector<int64_t>(uint64_t round, int tensor, int64_t n_rows)>;
std::unique_ptr<Replicator>
make_rows(const Shapes & shapes, std::vector<int64_t> view_rows, RowChooser chooser, Wire wire);

// The number of rows that a fraction of n amounts to: at least one.
int64_t rows_at_rate(int64_t n, float rate);

// Views for make_rows: each tensor's own rows; or the largest divisor of them up to the chunk's rows.
std::vector<int64_t> own_rows(const Shapes & shapes);
std::vector<int64_t> chunk_rows(const Shapes & shapes, const std::string & chunk);

// Units as the options (chunk, rule) cut them; in optim.cpp.
Units make_units(const OptimOptions & options, std::vector<ParamView> params, Workers & workers);

}  // namespace gt
