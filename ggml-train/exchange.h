// ggml-train/exchange.h — how the ranks of a host, and hosts with one another, exchange data.
//
// LocalGroup: the ranks (one per device) of one host; everything is exact and complete.
// Peers: other hosts; only small messages travel, in rounds that a commit record closes.
// comm/ implements both. No ggml header here. Read next: trainer.cpp, where both are used.
#pragma once

#include "ggml-train/base.h"

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

    // Every rank receives the bytes of rank `root`.
    virtual void broadcast(std::span<uint8_t> data, int root) = 0;

    virtual void barrier() = 0;
};

// One host's contribution to a round.
struct Message {
    std::string host;
    uint64_t    weight = 1;  // samples behind it: its share in the mean
    Bytes       bytes;       // as optim/codec.h says
};

// What the commit record of a round listed, in its order: the same on every host.
struct Round {
    uint64_t             round = 0;
    std::vector<Message> messages;
    bool                 has_mine  = false;  // our own message is among them
    int                  n_missing = 0;      // members that were left out
};

// The other hosts. An empty message means "no round this step": collect returns at once.
class Peers {
public:
    virtual ~Peers() = default;

    // Our own name, which (with seed and step) decides our samples.
    virtual const std::string & host() const = 0;

    // Sends our message for a round on its way and returns without waiting.
    virtual void publish(uint64_t round, uint64_t weight, Bytes message) = 0;

    // Waits for the round's commit and returns its messages in commit order.
    [[nodiscard]] virtual Round collect(uint64_t round) = 0;
};

}  // namespace gt
