// ggml-train/local-group.h — the ranks (one per device) of one host: exact and complete collectives.
// comm/local implements it; no ggml header here. Read next: shard/shard.cpp, where it is used.
#pragma once

#include "ggml-train/base/base.h"

namespace gt {

// The ranks of one host. Every rank calls the same verbs in the same order (they are collective);
// a rank that fails ends the wait of all others with an Error.
class LocalGroup {
public:
    virtual ~LocalGroup() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;

    // Element-wise sum over ranks, in rank order; rank r receives the slice [offsets[r],
    // offsets[r + 1]) of it in `shard`. REQUIRES: offsets has size() + 1 entries.
    virtual void reduce_scatter(
        std::span<const float> full, std::span<const int64_t> offsets, std::span<float> shard
    ) = 0;

    // The opposite: every rank gives its slice, all receive the whole.
    virtual void all_gather(
        std::span<const float> shard, std::span<const int64_t> offsets, std::span<float> full
    ) = 0;

    // The sum without slices: every rank gives all of `data` and receives the sum there, the same bits.
    virtual void all_reduce(std::span<float> data) = 0;

    // Every rank receives the bytes of rank `root`.
    virtual void broadcast(std::span<uint8_t> data, int root) = 0;

    virtual void barrier() = 0;
};

}  // namespace gt
