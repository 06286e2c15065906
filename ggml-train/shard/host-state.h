// ggml-train/shard/host-state.h — the state of a whole host, joined from its ranks: the content of
// checkpoints; hosts compare digests of it. It does not depend on the number of ranks.
#pragma once

#include "ggml-train/optimizer.h"
#include "ggml-train/shard/ranks.h"

namespace gt {

// One tensor. If it is sharded, each rank owns a piece, a range of rows; otherwise there is one piece
// and every rank has a copy of it.
struct HostTensor {
    struct Piece {
        std::vector<Floats> copies;     // equal: the first is read, all are written
        std::vector<Floats> derived{};  // as in StateTensor; only SharedState writes them

        size_t   size() const { return copies[0].values.size(); }
        HostView view() const { return HostView(copies[0]); }
        void     set(std::span<const float> values) const;
    };

    std::string        name;
    std::vector<Piece> pieces;          // at least one
    bool               shared = false;  // equal on all hosts

    size_t size() const;
    void   set(std::span<const float> values) const;  // REQUIRES: size() of them
};
struct HostCounter {
    std::string             name;
    std::vector<uint64_t *> copies;  // one per rank, all equal
    bool                    shared = false;
};
struct HostBytes {
    std::string          name;
    std::vector<Bytes *> parts;  // one per rank
    bool                 shared                    = false;
    Bytes (*join)(std::span<const Bytes> of_ranks) = nullptr;  // as in StateBytes

    Bytes value() const;
    void  set(std::span<const uint8_t> bytes) const;
};
struct HostState {
    std::vector<HostTensor>  weights;  // complete, in the model's order
    std::vector<HostTensor>  tensors;  // of the optimizer
    std::vector<HostCounter> counters;
    std::vector<HostBytes>   blobs;
};

// A tensor in contiguous memory.
HostTensor whole_tensor(std::string name, std::span<float> values, bool shared = false);

// Collective. cut: every rank owns its own rows of each tensor; otherwise every rank has all rows.
// The memory of all ranks must outlive the result.
HostState join_state(
    LocalGroup & ranks, const std::vector<ParamView> & params, OptimizerState mine, bool cut
);

}  // namespace gt
