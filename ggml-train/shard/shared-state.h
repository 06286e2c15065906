// ggml-train/shard/shared-state.h — the state that is equal on all hosts after a round, as one sequence of
// bytes: weights, the state of the update rule (AdamW moments, outer momentum) and counters.
//
// Its digest shows whether a host has diverged. It is cut into slices, so that hosts can share the
// writing of a checkpoint and a joining host can load it. Floats and counters are little-endian.
#pragma once

#include "ggml-train/shard/host-state.h"

namespace gt {

class SharedState {
public:
    // The memory that `state` points to must outlive it.
    SharedState(const HostState & state, Workers & workers);

    // Slice i of n: bytes [size * i / n, size * (i + 1) / n).
    Bytes slice(int i, int n) const;

    // An Error if the slice has another size: it is of another model or of other settings.
    void set_slice(int i, int n, std::span<const uint8_t> bytes);

    // Sets derived state (StateTensor::derived) to the shared state; set_slice does so, too.
    void reset_derived();

    // Never 0.
    uint64_t digest() const;

private:
    // Contiguous bytes, on one rank or, equal, on several.
    struct Copy {
        uint8_t * data   = nullptr;
        Memory *  memory = nullptr;  // null: the host's

        void read(size_t at, std::span<uint8_t> to) const;
        void write(size_t at, std::span<const uint8_t> from) const;
    };
    struct Piece {
        std::vector<Copy> copies;
        std::vector<Copy> derived;
        size_t            size = 0;
    };
    struct Item {  // a tensor or a counter
        std::vector<Piece> pieces;
        size_t             size = 0;
    };
    size_t bytes() const;
    void   visit(
          size_t begin, size_t end, const std::function<void(const Piece &, size_t at, size_t n)> & fn
      ) const;
    Bytes copy(size_t begin, size_t end) const;

    // The state from `begin` to the end of its piece; empty if that is in device memory.
    std::span<const uint8_t> on_host(size_t begin) const;

    // Bytes [begin, end) of the state, within one item; done: the digest is known.
    struct Block {
        size_t   begin = 0, end = 0;
        bool     done   = false;
        uint64_t digest = 0;
    };
    void digest_on_devices(std::span<Block> blocks) const;

    std::vector<Item> items_;
    Workers &         workers_;
};

}  // namespace gt
