#include "optim/codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace gt {

static constexpr char    kMagic[4] = {'g', 't', 'm', '1'};
static constexpr uint8_t kFormat   = 1;
static constexpr uint8_t kPart     = 1;
static constexpr int64_t kRowBytes = 24;

template <class T>
static void put(uint8_t * at, T value) {
    std::memcpy(at, &value, sizeof(T));
}

template <class T>
static T get(const uint8_t * at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
}

Bytes make_message(const CodecHead & head, std::span<const PartRows> rows) {
    GT_CHECK(head.is_part || rows.empty(), "only a part lists its rows");
    Bytes     message(kHeadBytes + head.n_content + rows.size() * kRowBytes, 0);
    uint8_t * at = message.data();
    std::memcpy(at, kMagic, 4);
    at[4] = kFormat;
    at[5] = head.replicator;
    at[6] = static_cast<uint8_t>(head.wire);
    at[7] = head.is_part ? kPart : 0;
    put(at + 8, head.layout);
    put(at + 16, head.step);
    put(at + 24, head.lr);
    put(at + 32, head.n_content);
    at += kHeadBytes + head.n_content;
    for (const PartRows & row : rows) {
        put(at, row.begin);
        put(at + 8, row.end);
        put(at + 16, row.n_bytes);
        at += kRowBytes;
    }
    return message;
}

std::optional<CodecHead> read_head(std::span<const uint8_t> message, std::string & why) {
    const uint8_t * at = message.data();
    if (message.size() < kHeadBytes) {
        why = "shorter than a head";
        return {};
    }
    if (std::memcmp(at, kMagic, 4) != 0 || at[4] != kFormat) {
        why = "not a message of this version";
        return {};
    }
    CodecHead head{
        .replicator = at[5],
        .wire       = static_cast<Wire>(at[6]),
        .is_part    = at[7] == kPart,
        .layout     = get<uint64_t>(at + 8),
        .step       = get<uint64_t>(at + 16),
        .lr         = get<float>(at + 24),
        .n_content  = get<uint64_t>(at + 32)};
    if (at[6] > static_cast<uint8_t>(Wire::q2) || (at[7] & ~kPart) != 0 ||
        get<uint32_t>(at + 28) != 0) {
        why = "unknown wire type or flags";
    } else if (!std::isfinite(head.lr) || head.lr < 0.0f || std::signbit(head.lr)) {
        why = "the learning rate is not a number";
    } else if (head.is_part ? head.n_content > message.size() - kHeadBytes : head.n_content != message.size() - kHeadBytes) {
        why = "the length is not what the head says";
    } else {
        return head;
    }
    return {};
}

// One rank's rows of a tensor and where they are.
struct Slice {
    PartRows        rows;
    const uint8_t * content;
};

static std::vector<std::vector<Slice>> slices_by_tensor(std::span<const Bytes> parts) {
    std::vector<std::vector<Slice>> tensors;
    for (const Bytes & part : parts) {
        const CodecHead head = *[&] {
            std::string why;
            auto        read = read_head(part, why);
            if (!read || !read->is_part) {
                throw Error("parts of a message: " + (read ? "one is not a part" : why));
            }
            return read;
        }();
        const uint8_t * content = part.data() + kHeadBytes;
        const uint8_t * table   = content + head.n_content;
        const size_t    n_rows  = (part.data() + part.size() - table) / kRowBytes;
        if (tensors.empty()) {
            tensors.resize(n_rows);
        }
        if (tensors.size() != n_rows || std::memcmp(part.data(), parts[0].data(), 32) != 0) {
            throw Error("parts of a message: they are not of the same step and layout");
        }
        for (size_t t = 0; t < n_rows; ++t, table += kRowBytes) {
            const PartRows rows{
                get<int64_t>(table), get<int64_t>(table + 8), get<int64_t>(table + 16)};
            const int64_t left = part.data() + kHeadBytes + head.n_content - content;
            if (rows.n_bytes < 0 || rows.n_bytes > left || rows.begin > rows.end) {
                throw Error("parts of a message: the rows of one are out of bounds");
            }
            if (rows.begin < rows.end) {
                tensors[t].push_back({rows, content});
            }
            content += rows.n_bytes;
        }
    }
    return tensors;
}

Bytes join_messages(std::span<const Bytes> parts) {
    std::string why;
    const auto  first = parts.empty() ? std::nullopt : read_head(parts[0], why);
    if (!first) {
        throw Error("parts of a message: " + (parts.empty() ? "there are none" : why));
    }
    if (parts.size() == 1 && !first->is_part) {
        return parts[0];
    }
    auto     tensors = slices_by_tensor(parts);
    uint64_t total   = 0;
    for (auto & slices : tensors) {
        std::sort(slices.begin(), slices.end(), [](const Slice & a, const Slice & b) {
            return a.rows.begin < b.rows.begin;
        });
        int64_t row = 0;
        for (const Slice & slice : slices) {
            if (slice.rows.begin != row) {
                throw Error("parts of a message: rows are missing or there twice");
            }
            row = slice.rows.end;
            total += slice.rows.n_bytes;
        }
    }
    CodecHead head    = *first;
    head.is_part      = false;
    head.n_content    = total;
    Bytes     message = make_message(head);
    uint8_t * to      = message.data() + kHeadBytes;
    for (const auto & slices : tensors) {
        for (const Slice & slice : slices) {
            std::memcpy(to, slice.content, slice.rows.n_bytes);
            to += slice.rows.n_bytes;
        }
    }
    return message;
}

}  // namespace gt
