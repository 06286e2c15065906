// ggml-train/host-state.h — the state of a whole host, put together from that of its ranks: what
// checkpoints hold and hosts compare. It does not depend on how many ranks there are.
#pragma once

#include "ggml-train/optimizer.h"
#include "ggml-train/ranks.h"

namespace gt {

// One tensor. Its rows lie in pieces on the ranks that own them; where ranks do not share the work,
// every rank has a copy of its only piece.
struct HostTensor {
    struct Piece {
        std::vector<Floats>           copies;     // equal: the first is read, all are written
        std::vector<std::span<float>> derived{};  // as in StateTensor; only SharedState writes them

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
    std::vector<uint64_t *> copies;  // as above: one per rank
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

// A tensor in one piece of memory.
HostTensor whole_tensor(std::string name, std::span<float> values, bool shared = false);

// Collective. cut: every rank has its own rows of each tensor; else every rank has all of them.
// The memory of all ranks must outlive the result.
HostState join_state(
    LocalGroup & ranks, const std::vector<ParamView> & params, OptimizerState mine, bool cut
);

}  // namespace gt
