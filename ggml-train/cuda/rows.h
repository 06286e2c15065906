// ggml-train/cuda/rows.h — what replicators that send whole rows do on a device (optim/repl-rows.cpp), and the
// rounds of local steps (optim/local-steps.cpp). All hosts must compute the same bits: see demo.h.
#pragma once

#include "ggml-train/cuda/demo.h"

namespace gt::cuda {

// ---- messages ------------------------------------------------------------------------------------------

// The rows of a unit of a tensor (optim/math/chunk.h) that travel in a round.
struct RowUnit {
    int64_t         offset = 0;        // of the unit's first element in the tensor
    int64_t         n      = 0;        // elements that travel
    int64_t         row    = 1;        // elements of a row; groups of values do not cross its end
    int64_t         run    = 1;        // elements side by side at each place
    const int32_t * places = nullptr;  // in the unit, counted in runs; null: all of it travels
    int64_t         bytes  = 0;        // of the units before it, in the message
    int64_t         first  = 0;        // of its groups, among those of all units
};
struct Rows {
    const RowUnit * units    = nullptr;  // device memory, in the order of `first`
    int32_t         n_units  = 0;
    int32_t         wire     = 0;  // optim/wire/values.h; groups are dense
    int64_t         n_groups = 0;
    int64_t         first    = 0;  // of the first unit's groups
};

// Writes the bytes of the rows of x and takes what receivers will decode out of x.
void rows_extract(Stream s, const Rows & rows, float * x, uint8_t * message);

// Adds the content of one of our messages back. REQUIRES: the bytes were checked.
void rows_give_back(Stream s, const Rows & rows, const uint8_t * message, float * x);

// Writes the mean of the pieces to their places in `update`, and nothing elsewhere. total: the sum of the
// weights. `pieces` is device memory, in commit order. REQUIRES: the bytes were checked.
void rows_merge(
    Stream            s,
    const Rows &      rows,
    const DemoPiece * pieces,
    int               n_pieces,
    double            total,
    float *           update
);

// ---- local steps ---------------------------------------------------------------------------------------

// A unit of a tensor that takes part in a round.
struct LocalUnit {
    int64_t offset = 0, n = 0;
    int64_t first = 0;    // of its pieces of kSquaresPiece elements
    double  own   = 0.0;  // mean square of the norms of its messages: see Inbox::restored_norm
};
// This rank's shard of one tensor, and what local steps keep for it; device memory.
struct LocalTensor {
    float * weight   = nullptr;
    float * anchor   = nullptr;
    float * base     = nullptr;  // null: neither overlap nor correction
    float * outer    = nullptr;  // null: no outer momentum
    float * residual = nullptr;
    float * momentum = nullptr;  // of the rule, to be corrected; null: is not
};
struct LocalUnits {
    LocalTensor       tensor;
    const LocalUnit * table    = nullptr;  // device memory
    int32_t           n_units  = 0;
    int64_t           n_pieces = 0;
};

// change = anchor - weight; base = weight. decay: the change is folded into the residual, too. restart: the
// weights return to the anchor.
void local_change(
    Stream s, const LocalUnits & units, bool fold, float decay, bool restart, float * change
);

struct LocalStep {
    bool   restore_norm = false;
    double most_messages =
        1.0;  // effective number of messages: the most that a norm grows, squared
    float outer_lr = 1.0f, outer_momentum = 0.0f;
    float share      = 0.0f;  // of the mean that our weights keep beside the anchor's step
    float correction = 0.0f;  // of the rule's momentum; used if the tensor has one
    bool  overlap    = false;
};
constexpr int kLocalSums = 3;  // of squares by piece: of the mean, of our change, of the momentum
struct LocalScalars {
    float factor = 1.0f;  // of the mean
    float scale  = 0.0f;  // of the difference between the mean and our change
    float unit   = 0.0f;  // of the momentum
};

// The sums [n_pieces x kLocalSums], and from them the scalars of each unit.
void local_sums(Stream s, const LocalUnits & units, const float * mean, double * sums);
void local_scalars(
    Stream             s,
    const LocalUnits & units,
    const LocalStep &  step,
    const double *     sums,
    LocalScalars *     out
);

// Moves the anchor by the mean (null: not at all), corrects the momentum, and lets the weights continue from
// the new anchor.
void local_apply(
    Stream               s,
    const LocalUnits &   units,
    const LocalStep &    step,
    const LocalScalars * scalars,
    const float *        mean
);

}  // namespace gt::cuda
