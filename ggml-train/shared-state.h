// ggml-train/shared-state.h — what is equal on all hosts after a round: weights, the rule's own state
// (AdamW moments, outer momentum) and counters, as one row of bytes. It is digested, so that a host
// that has drifted is noticed, and cut into parts, so that hosts can share the writing of a
// checkpoint and a newcomer can load it. Floats and counters are little-endian, as in memory.
#pragma once

#include "ggml-train/host-state.h"

namespace gt {

class SharedState {
public:
    // What `state` points to must outlive it.
    SharedState(const HostState & state, Workers & workers);

    // Part i of n: bytes [size i / n, size (i + 1) / n).
    Bytes part(int i, int n) const;

    // An Error if the part has another size: it is of another model or other settings.
    void set_part(int i, int n, std::span<const uint8_t> bytes);

    // What starts from the shared state (StateTensor::derived) starts over; set_part does it, too.
    void reset_derived();

    // Never 0.
    uint64_t digest() const;

private:
    // Bytes that lie together, on one rank or, equal, on several.
    struct Copy {
        uint8_t * data   = nullptr;
        Device *  device = nullptr;  // in whose memory; null: the host's

        void read(size_t at, std::span<uint8_t> to) const;
        void write(size_t at, std::span<const uint8_t> from) const;
    };
    struct Piece {
        std::vector<Copy>      copies;
        std::vector<uint8_t *> derived;
        size_t                 size = 0;
    };
    struct Item {  // a tensor or a counter
        std::vector<Piece> pieces;
        size_t             size = 0;
    };
    size_t bytes() const;
    void   visit(
          size_t begin, size_t end, const std::function<void(const Piece &, size_t at, size_t n)> & fn
      ) const;
    Bytes    copy(size_t begin, size_t end) const;
    uint64_t digest(size_t begin, size_t end, uint64_t seed) const;

    // A block of a tensor, and its digest once it is known.
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
