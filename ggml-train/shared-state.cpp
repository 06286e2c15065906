#include "ggml-train/shared-state.h"

#include <algorithm>
#include <cstring>

namespace gt {

SharedState::SharedState(
    const std::vector<ParamView> & params, Optimizer & optimizer, Workers & workers
)
    : workers_(workers) {
    for (const ParamView & param : params) {
        pieces_.push_back(
            {reinterpret_cast<uint8_t *>(param.weight.data()), param.weight.size_bytes()}
        );
    }
    const OptimizerState state = optimizer.state();
    for (const StateTensor & tensor : state.tensors) {
        if (tensor.shared) {
            pieces_.push_back(
                {reinterpret_cast<uint8_t *>(tensor.values.data()), tensor.values.size_bytes()}
            );
        }
    }
    for (const StateCounter & counter : state.counters) {
        if (counter.shared) {
            pieces_.push_back({reinterpret_cast<uint8_t *>(counter.value), sizeof(*counter.value)});
        }
    }
}

size_t SharedState::bytes() const {
    size_t n = 0;
    for (const auto & piece : pieces_) {
        n += piece.size();
    }
    return n;
}

void SharedState::visit(size_t begin, size_t end, const std::function<void(uint8_t *, size_t)> & fn)
    const {
    size_t at = 0;
    for (const auto & piece : pieces_) {
        const size_t from = std::max(begin, at), to = std::min(end, at + piece.size());
        if (from < to) {
            fn(piece.data() + (from - at), to - from);
        }
        at += piece.size();
    }
}

Bytes SharedState::part(int i, int n) const {
    Bytes result;
    visit(bytes() * i / n, bytes() * (i + 1) / n, [&](uint8_t * data, size_t size) {
        result.insert(result.end(), data, data + size);
    });
    return result;
}

void SharedState::set_part(int i, int n, std::span<const uint8_t> given) {
    const size_t begin = bytes() * i / n, end = bytes() * (i + 1) / n;
    if (given.size() != end - begin) {
        throw Error(format(
            "the run's checkpoint has %zu bytes in part %d where this model has %zu: another model "
            "or other settings",
            given.size(), i, end - begin
        ));
    }
    visit(begin, end, [&](uint8_t * data, size_t size) {
        std::memcpy(data, given.data(), size);
        given = given.subspan(size);
    });
}

uint64_t SharedState::digest() const {
    // pieces are cut so that workers have equal shares; the cuts depend on the sizes alone
    constexpr size_t                      kBlock = 1 << 20;
    std::vector<std::span<const uint8_t>> blocks;
    for (const auto & piece : pieces_) {
        for (size_t at = 0; at < piece.size(); at += kBlock) {
            blocks.push_back(piece.subspan(at, std::min(kBlock, piece.size() - at)));
        }
    }
    std::vector<uint64_t> digests(blocks.size());
    workers_.split(static_cast<int64_t>(blocks.size()), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            digests[i] = digest64(blocks[i], i);
        }
    });
    const uint64_t all = digest64(
        {reinterpret_cast<const uint8_t *>(digests.data()), digests.size() * sizeof(uint64_t)}
    );
    return all ? all : 1;
}

}  // namespace gt
