#include "ggml-train/shared-state.h"

#include "ggml-train/cuda/table.h"

#include <algorithm>
#include <cstring>

namespace gt {

constexpr size_t kBlock = 1 << 20;  // bytes

void SharedState::Copy::read(size_t at, std::span<uint8_t> to) const {
    if (device) {
        device->read(to.data(), data + at, to.size());
    } else {
        std::memcpy(to.data(), data + at, to.size());
    }
}

void SharedState::Copy::write(size_t at, std::span<const uint8_t> from) const {
    if (device) {
        device->write(data + at, from.data(), from.size());
    } else {
        std::memcpy(data + at, from.data(), from.size());
    }
}

// Whether these weights start from another tensor and go their own way.
static bool is_derived(const HostTensor & weight, const HostState & state) {
    const auto starts_from = [&](const HostTensor::Piece & piece) {
        return std::any_of(piece.derived.begin(), piece.derived.end(), [&](std::span<float> own) {
            return std::any_of(
                weight.pieces.begin(), weight.pieces.end(),
                [&](const HostTensor::Piece & mine) {
                    return !own.empty() && mine.copies[0].values.data() == own.data();
                }
            );
        });
    };
    return std::any_of(state.tensors.begin(), state.tensors.end(), [&](const HostTensor & tensor) {
        return std::any_of(tensor.pieces.begin(), tensor.pieces.end(), starts_from);
    });
}

SharedState::SharedState(const HostState & state, Workers & workers) : workers_(workers) {
    const auto add = [&](const HostTensor & tensor) {
        Item item;
        for (const HostTensor::Piece & piece : tensor.pieces) {
            Piece bytes{.copies = {}, .derived = {}, .size = piece.size() * sizeof(float)};
            for (const Floats & copy : piece.copies) {
                bytes.copies.push_back(
                    {reinterpret_cast<uint8_t *>(copy.values.data()), copy.device}
                );
            }
            for (const std::span<float> own : piece.derived) {
                bytes.derived.push_back(reinterpret_cast<uint8_t *>(own.data()));
            }
            item.size += bytes.size;
            item.pieces.push_back(std::move(bytes));
        }
        items_.push_back(std::move(item));
    };
    for (const HostTensor & weight : state.weights) {
        if (!is_derived(weight, state)) {
            add(weight);
        }
    }
    for (const HostTensor & tensor : state.tensors) {
        if (tensor.shared) {
            add(tensor);
        }
    }
    for (const HostCounter & counter : state.counters) {
        if (counter.shared) {
            Piece piece{.copies = {}, .derived = {}, .size = sizeof(uint64_t)};
            for (uint64_t * copy : counter.copies) {
                piece.copies.push_back({reinterpret_cast<uint8_t *>(copy)});
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
        result.resize(result.size() + n);
        piece.copies[0].read(at, std::span(result).last(n));
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
        for (const Copy & copy : piece.copies) {
            copy.write(at, given.first(size));
        }
        for (uint8_t * own : piece.derived) {
            std::memcpy(own + at, given.data(), size);
        }
        given = given.subspan(size);
    });
}

void SharedState::reset_derived() {
    visit(0, bytes(), [](const Piece & piece, size_t at, size_t size) {
        for (uint8_t * own : piece.derived) {
            piece.copies[0].read(at, {own + at, size});
        }
    });
}

uint64_t SharedState::digest(size_t begin, size_t end, uint64_t seed) const {
    uint64_t result = 0;
    size_t   n_seen = 0;
    visit(begin, end, [&](const Piece & piece, size_t at, size_t n) {
        n_seen += n;
        if (n == end - begin && !piece.copies[0].device) {  // all of it lies together
            result = digest64({piece.copies[0].data + at, n}, seed);
        } else if (n_seen == end - begin) {
            result = digest64(copy(begin, end), seed);
        }
    });
    return result;
}

// Blocks that lie together in a device's memory stay there: its kernel digests them.
void SharedState::digest_on_devices(std::span<Block> blocks) const {
    size_t first = 0, begin = 0;  // block of the item, byte of the piece
    for (const Item & item : items_) {
        const size_t n_blocks = (item.size + kBlock - 1) / kBlock, end = begin + item.size;
        const size_t item_begin = begin;
        for (const Piece & piece : item.pieces) {
            size_t from = first + (begin - item_begin + kBlock - 1) / kBlock, to = from;
            begin += piece.size;
            while (to < first + n_blocks && blocks[to].end <= begin) {
                ++to;
            }
            const Copy & copy = piece.copies[0];
            if (from == to || !copy.device) {
                continue;
            }
            const size_t          n   = blocks[to - 1].end - blocks[from].begin;
            auto *                out = copy.device->scratch((to - from) * sizeof(uint64_t));
            std::vector<uint64_t> results(to - from);
            copy.device->kernels().digests(
                nullptr, n, kBlock, from, copy.data + (blocks[from].begin + piece.size - begin),
                static_cast<uint64_t *>(out)
            );
            copy.device->read(results.data(), out, results.size() * sizeof(uint64_t));
            for (; from < to; ++from) {
                blocks[from].done   = true;
                blocks[from].digest = results[results.size() - (to - from)];
            }
        }
        GT_CHECK(begin == end, "pieces make up their item");
        first += n_blocks;
    }
}

uint64_t SharedState::digest() const {
    // tensors are cut so that workers have equal shares; the cuts depend on their sizes alone
    std::vector<Block> blocks;
    size_t             begin = 0;
    for (const Item & item : items_) {
        for (size_t at = 0; at < item.size; at += kBlock) {
            blocks.push_back({begin + at, begin + std::min(item.size, at + kBlock)});
        }
        begin += item.size;
    }
    digest_on_devices(blocks);
    std::vector<uint64_t> digests(blocks.size());
    workers_.split(static_cast<int64_t>(blocks.size()), [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
            const Block & b = blocks[i];
            digests[i]      = b.done ? b.digest : digest(b.begin, b.end, static_cast<uint64_t>(i));
        }
    });
    const uint64_t all = digest64(
        {reinterpret_cast<const uint8_t *>(digests.data()), digests.size() * sizeof(uint64_t)}
    );
    return all ? all : 1;
}

}  // namespace gt
