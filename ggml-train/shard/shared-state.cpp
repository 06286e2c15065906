#include "ggml-train/shard/shared-state.h"

#include "ggml-train/base/digests.h"
#include "ggml-train/cuda/spans.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>

namespace gt {

constexpr size_t kBlock = cuda::kDigestPiece;

void SharedState::Copy::read(size_t at, std::span<uint8_t> to) const {
    if (memory) {
        memory->read(to.data(), data + at, to.size());
    } else {
        std::memcpy(to.data(), data + at, to.size());
    }
}

void SharedState::Copy::write(size_t at, std::span<const uint8_t> from) const {
    if (memory) {
        memory->write(data + at, from.data(), from.size());
    } else {
        std::memcpy(data + at, from.data(), from.size());
    }
}

// Whether another tensor names these weights as derived from it.
static bool is_derived(const HostTensor & weight, const HostState & state) {
    const auto starts_from = [&](const HostTensor::Piece & piece) {
        return std::any_of(piece.derived.begin(), piece.derived.end(), [&](const Floats & own) {
            return std::any_of(
                weight.pieces.begin(), weight.pieces.end(),
                [&](const HostTensor::Piece & mine) {
                    return !own.values.empty() && mine.copies[0].values.data() == own.values.data();
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
            Piece      bytes{.copies = {}, .derived = {}, .size = piece.size() * sizeof(float)};
            const auto bytes_of = [](const Floats & floats) {
                return Copy{reinterpret_cast<uint8_t *>(floats.values.data()), floats.memory};
            };
            std::transform(
                piece.copies.begin(), piece.copies.end(), std::back_inserter(bytes.copies), bytes_of
            );
            std::transform(
                piece.derived.begin(), piece.derived.end(), std::back_inserter(bytes.derived),
                bytes_of
            );
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

Bytes SharedState::slice(int i, int n) const {
    return copy(bytes() * i / n, bytes() * (i + 1) / n);
}

void SharedState::set_slice(int i, int n, std::span<const uint8_t> given) {
    const size_t begin = bytes() * i / n, end = bytes() * (i + 1) / n;
    if (given.size() != end - begin) {
        throw Error(format(
            "slice %d of the run's checkpoint has %zu bytes, this model needs %zu; start with the "
            "model and the settings of the run",
            i, given.size(), end - begin
        ));
    }
    visit(begin, end, [&](const Piece & piece, size_t at, size_t size) {
        for (const Copy & copy : piece.copies) {
            copy.write(at, given.first(size));
        }
        for (const Copy & own : piece.derived) {
            own.write(at, given.first(size));
        }
        given = given.subspan(size);
    });
}

void SharedState::reset_derived() {
    visit(0, bytes(), [](const Piece & piece, size_t at, size_t size) {
        if (piece.derived.empty()) {
            return;
        }
        Bytes shared(size);
        piece.copies[0].read(at, shared);
        for (const Copy & own : piece.derived) {
            own.write(at, shared);
        }
    });
}

std::span<const uint8_t> SharedState::on_host(size_t begin) const {
    std::span<const uint8_t> found;
    visit(begin, begin + 1, [&](const Piece & piece, size_t at, size_t) {
        if (!piece.copies[0].memory) {
            found = {piece.copies[0].data + at, piece.size - at};
        }
    });
    return found;
}

// Digests on its device every block that lies within one piece in device memory, in one launch per
// device. Blocks that span two pieces, and those in host memory, are left to the host.
void SharedState::digest_on_devices(std::span<Block> blocks) const {
    struct Work {
        std::vector<cuda::Span> arrays;  // of consecutive blocks
        std::vector<Block *>    blocks;
    };
    std::map<Device *, Work> devices;
    size_t                   first_block = 0;  // of the item
    size_t                   begin       = 0;  // of the piece, in bytes
    for (const Item & item : items_) {
        const size_t end_block = first_block + (item.size + kBlock - 1) / kBlock;
        size_t       from      = first_block;
        for (const Piece & piece : item.pieces) {
            // blocks [from, to) lie within the piece
            const size_t end = begin + piece.size;
            while (from < end_block && blocks[from].begin < begin) {
                ++from;
            }
            size_t to = from;
            while (to < end_block && blocks[to].end <= end) {
                ++to;
            }
            const Copy & copy   = piece.copies[0];
            auto * const device = dynamic_cast<Device *>(copy.memory);
            if (from < to && device) {
                Work & work = devices[device];
                work.arrays.push_back(
                    {.data = copy.data + (blocks[from].begin - begin),
                     .n    = static_cast<int64_t>(blocks[to - 1].end - blocks[from].begin),
                     .seed = from}
                );
                for (size_t i = from; i < to; ++i) {
                    work.blocks.push_back(&blocks[i]);
                }
            }
            begin = end;
        }
        first_block = end_block;
    }
    for (auto & [device, work] : devices) {
        const std::vector<uint64_t> digests = on_pieces<uint64_t>(
            *device, work.arrays, cuda::kDigestPiece,
            [](const cuda::Kernels & kernels, const cuda::Spans & spans, uint64_t * out) {
                kernels.digests(nullptr, spans, out);
            }
        );
        for (size_t i = 0; i < digests.size(); ++i) {
            work.blocks[i]->done   = true;
            work.blocks[i]->digest = digests[i];
        }
    }
}

uint64_t SharedState::digest() const {
    // Cut tensors into blocks, so that workers get equal shares. The cuts depend on sizes alone.
    std::vector<Block> blocks;
    size_t             begin = 0;
    for (const Item & item : items_) {
        for (size_t at = 0; at < item.size; at += kBlock) {
            blocks.push_back({begin + at, begin + std::min(item.size, at + kBlock)});
        }
        begin += item.size;
    }
    // Digest each block where it is.
    digest_on_devices(blocks);
    std::vector<uint64_t> digests(blocks.size());
    workers_.split(static_cast<int64_t>(blocks.size()), [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last;) {
            const Block & b = blocks[i];
            if (b.done) {
                digests[i++] = b.digest;
                continue;
            }
            // the blocks that follow in the same memory
            const auto bytes = on_host(b.begin);
            int64_t    next  = i;
            while (next < last && blocks[next].end <= b.begin + bytes.size()) {
                ++next;
            }
            if (next == i) {
                digests[i] = digest64(copy(b.begin, b.end), static_cast<uint64_t>(i));
                ++i;
                continue;
            }
            const size_t size  = blocks[next - 1].end - b.begin;
            const auto   found = digests64(bytes.first(size), kBlock, static_cast<uint64_t>(i));
            std::copy(found.begin(), found.end(), digests.begin() + i);
            i = next;
        }
    });
    // Digest the digests.
    const uint64_t all = digest64(
        {reinterpret_cast<const uint8_t *>(digests.data()), digests.size() * sizeof(uint64_t)}
    );
    return all ? all : 1;
}

}  // namespace gt
