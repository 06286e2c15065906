#include "optim/wire/codec.h"

#include "optim/wire/little-endian.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace gt {

static constexpr char    kMagic[4] = {'g', 't', 'm', '1'};
static constexpr uint8_t kFormat   = 1;
static constexpr int64_t kRowBytes = 24;

Bytes blank_update(const UpdateHead & head, std::span<const PartRows> rows) {
    GT_CHECK(head.is_part() || rows.empty(), "only a part has a table of rows");
    Bytes     update(kHeadBytes + head.n_content + rows.size() * kRowBytes, 0);
    uint8_t * at = update.data();
    std::memcpy(at, kMagic, 4);
    at[4] = kFormat;
    at[5] = head.replicator;
    at[6] = static_cast<uint8_t>(head.wire);
    at[7] = static_cast<uint8_t>(head.kind);
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
    return update;
}

std::optional<UpdateHead> read_head(std::span<const uint8_t> update, std::string & why) {
    const uint8_t * at = update.data();
    if (update.size() < kHeadBytes) {
        why = "shorter than the head";
        return {};
    }
    if (std::memcmp(at, kMagic, 4) != 0 || at[4] != kFormat) {
        why = "not an update of this version";
        return {};
    }
    UpdateHead head{
        .replicator = at[5],
        .wire       = static_cast<Wire>(at[6]),
        .kind       = static_cast<UpdateKind>(at[7]),
        .layout     = get<uint64_t>(at + 8),
        .step       = get<uint64_t>(at + 16),
        .lr         = get<float>(at + 24),
        .n_content  = get<uint64_t>(at + 32)};
    const uint64_t n_rest = update.size() - kHeadBytes;
    if (at[6] > static_cast<uint8_t>(Wire::q1) || at[7] > 4 || at[7] == 3 ||
        get<uint32_t>(at + 28) != 0) {
        why = "unknown wire type or flags";
    } else if (!std::isfinite(head.lr) || head.lr < 0.0f || std::signbit(head.lr)) {
        why = "the learning rate is negative, NaN or Inf";
    } else if (head.is_part() ? head.n_content > n_rest : head.n_content != n_rest) {
        why = "the length differs from the one in the head";
    } else {
        return head;
    }
    return {};
}

namespace {

// One rank's rows of a tensor, and their content.
struct RankRows {
    PartRows        rows;
    const uint8_t * content;
};

// The rows of all ranks, by tensor.
std::vector<std::vector<RankRows>> rows_by_tensor(std::span<const Bytes> parts) {
    std::vector<std::vector<RankRows>> tensors;
    for (const Bytes & part : parts) {
        std::string why;
        const auto  head = read_head(part, why);
        if (!head || !head->is_part()) {
            throw Error("joining parts: " + (head ? "one is not a part" : why));
        }
        const uint8_t * content = part.data() + kHeadBytes;
        const uint8_t * table   = content + head->n_content;
        const size_t    n_rows  = (part.data() + part.size() - table) / kRowBytes;
        if (tensors.empty()) {
            tensors.resize(n_rows);
        }
        if (tensors.size() != n_rows || std::memcmp(part.data(), parts[0].data(), 32) != 0) {
            throw Error("joining parts: steps or layouts differ");
        }
        for (size_t t = 0; t < n_rows; ++t, table += kRowBytes) {
            const PartRows rows{
                get<int64_t>(table), get<int64_t>(table + 8), get<int64_t>(table + 16)};
            const int64_t left = part.data() + kHeadBytes + head->n_content - content;
            if (rows.n_bytes < 0 || rows.n_bytes > left || rows.begin > rows.end) {
                throw Error("joining parts: a table of rows is out of bounds");
            }
            if (rows.begin < rows.end) {
                tensors[t].push_back({rows, content});
            }
            content += rows.n_bytes;
        }
    }
    return tensors;
}

}  // namespace

Bytes join_parts(std::span<const Bytes> parts) {
    std::string why;
    const auto  first = parts.empty() ? std::nullopt : read_head(parts[0], why);
    if (!first) {
        throw Error("joining parts: " + (parts.empty() ? "there are no parts" : why));
    }
    if (parts.size() == 1 && !first->is_part()) {
        return parts[0];
    }
    auto     tensors = rows_by_tensor(parts);
    uint64_t total   = 0;
    for (auto & ranks : tensors) {
        std::sort(ranks.begin(), ranks.end(), [](const RankRows & a, const RankRows & b) {
            return a.rows.begin < b.rows.begin;
        });
        int64_t row = 0;
        for (const RankRows & rank : ranks) {
            if (rank.rows.begin != row) {
                throw Error("joining parts: rows are missing or repeated");
            }
            row = rank.rows.end;
            total += rank.rows.n_bytes;
        }
    }
    UpdateHead head  = *first;
    head.kind        = UpdateKind::update;
    head.n_content   = total;
    Bytes     update = blank_update(head);
    uint8_t * to     = update.data() + kHeadBytes;
    for (const auto & ranks : tensors) {
        for (const RankRows & rank : ranks) {
            std::memcpy(to, rank.content, rank.rows.n_bytes);
            to += rank.rows.n_bytes;
        }
    }
    return update;
}

}  // namespace gt
