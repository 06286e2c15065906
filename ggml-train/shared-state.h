// ggml-train/shared-state.h — what is equal on all hosts after a round: weights, the rule's own state
// (AdamW moments, outer momentum) and counters, as one row of bytes. It is digested, so that a host
// that has drifted is noticed, and cut into parts, so that hosts can share the writing of a
// checkpoint and a newcomer can load it. Floats and counters are little-endian, as in memory.
#pragma once

#include "ggml-train/optimizer.h"

namespace gt {

class SharedState {
public:
    // The spans of `params` and of the optimizer's state must outlive it.
    SharedState(const std::vector<ParamView> & params, Optimizer & optimizer, Workers & workers);

    // Part i of n: bytes [size i / n, size (i + 1) / n).
    Bytes part(int i, int n) const;

    // An Error if the part has another size: it is of another model or other settings.
    void set_part(int i, int n, std::span<const uint8_t> bytes);

    // Never 0.
    uint64_t digest() const;

private:
    size_t bytes() const;
    void
    visit(size_t begin, size_t end, const std::function<void(uint8_t * data, size_t n)> & fn) const;

    std::vector<std::span<uint8_t>> pieces_;
    Workers &                       workers_;
};

}  // namespace gt
