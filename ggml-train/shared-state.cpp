#include "ggml-train/shared-state.h"

#include <algorithm>
#include <cstring>

namespace gt {

SharedState::SharedState(const HostState & state, Workers & workers) : workers_(workers) {
    const auto add = [&](const HostTensor & tensor) {
        Item item;
        for (const HostTensor::Piece & piece : tensor.pieces) {
            Piece bytes{.copies = {}, .size = piece.values().size_bytes()};
            for (const std::span<float> copy : piece.copies) {
                bytes.copies.push_back(reinterpret_cast<uint8_t *>(copy.data()));
            }
            item.size += bytes.size;
            item.pieces.push_back(std::move(bytes));
        }
        items_.push_back(std::move(item));
    };
    for (const HostTensor & weight : state.weights) {
        add(weight);
    }
    for (const HostTensor & tensor : state.tensors) {
        if (tensor.shared) {
            add(tensor);
        }
    }
    for (const HostCounter & counter : state.counters) {
        if (counter.shared) {
            Piece piece{.copies = {}, .size = sizeof(uint64_t)};
            for (uint64_t * copy : counter.copies) {
                piece.copies.push_back(reinterpret_cast<uint8_t *>(copy));
            }
            items_.push_back({.pieces = {piece}, .size = piece.size});
        }
    }
}

size_t SharedState::bytes() const {
    size_t n = 0;
    for (const Item & item : items_) {
        n += item.size;
    }
    return n;
}

void SharedState::visit(
    size_t begin, size_t end, const std::function<void(const Piece &, size_t at, size_t n)> & fn
) const {
    size_t at = 0;
    for (const Item & item : items_) {
        for (const Piece & piece : item.pieces) {
            const size_t from = std::max(begin, at), to = std::min(end, at + piece.size);
            if (from < to) {
                fn(piece, from - at, to - from);
            }
            at += piece.size;
        }
    }
}

Bytes SharedState::copy(size_t begin, size_t end) const {
    Bytes result;
    visit(begin, end, [&](const Piece & piece, size_t at, size_t n) {
        result.insert(result.end(), piece.copies[0] + at, piece.copies[0] + at + n);
    });
    return result;
}

Bytes SharedState::part(int i, int n) const {
    return copy(bytes() * i / n, bytes() * (i + 1) / n);
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
    visit(begin, end, [&](const Piece & piece, size_t at, size_t size) {
        for (uint8_t * copy : piece.copies) {
            std::memcpy(copy + at, given.data(), size);
        }
        given = given.subspan(size);
    });
}

uint64_t SharedState::digest(size_t begin, size_t end, uint64_t seed) const {
    uint64_t result = 0;
    size_t   n_seen = 0;
    visit(begin, end, [&](const Piece & piece, size_t at, size_t n) {
        n_seen += n;
        if (n == end - begin) {  // all of it lies together
            result = digest64({piece.copies[0] + at, n}, seed);
        } else if (n_seen == end - begin) {
            result = digest64(copy(begin, end), seed);
        }
    });
    return result;
}

uint64_t SharedState::digest() const {
    // tensors are cut so that workers have equal shares; the cuts depend on their sizes alone
    constexpr size_t                       kBlock = 1 << 20;
    std::vector<std::pair<size_t, size_t>> blocks;
    size_t                                 begin = 0;
    for (const Item & item : items_) {
        for (size_t at = 0; at < item.size; at += kBlock) {
            blocks.emplace_back(begin + at, begin + std::min(item.size, at + kBlock));
        }
        begin += item.size;
    }
    std::vector<uint64_t> digests(blocks.size());
    workers_.split(static_cast<int64_t>(blocks.size()), [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
            digests[i] = digest(blocks[i].first, blocks[i].second, static_cast<uint64_t>(i));
        }
    });
    const uint64_t all = digest64(
        {reinterpret_cast<const uint8_t *>(digests.data()), digests.size() * sizeof(uint64_t)}
    );
    return all ? all : 1;
}

}  // namespace gt
