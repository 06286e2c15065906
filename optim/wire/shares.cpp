#include "optim/wire/shares.h"

#include "optim/wire/codec.h"
#include "optim/wire/little-endian.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace gt {

static constexpr int64_t kShareHead = kHeadBytes + 16;

// Shares are cut between groups of one size.
static constexpr int64_t kGroup = dense_group(Wire::fp32);
static bool              has_shares(Wire wire) {
                 return dense_group(wire) == kGroup;
}

namespace {

// Finds a group of 64 values by its index in an update: rows of equal width form runs.
class GroupMap {
public:
    GroupMap(const std::vector<ParamView> & params, Wire wire) : wire_(wire) {
        for (const ParamView & param : params) {
            const TensorShape shape = shape_of(param);
            const int64_t     rows = shape.is_vector ? 1 : shape.rows, width = shape.size() / rows;
            runs_.push_back({n_groups_, rows, width, n_bytes_});
            n_groups_ += rows * per_row(width);
            n_bytes_ += rows * dense_bytes(wire_, width);
        }
    }

    int64_t n_groups() const { return n_groups_; }
    int64_t n_bytes() const { return n_bytes_; }

    int64_t values(int64_t group) const {
        const Run &   run   = find(group);
        const int64_t place = (group - run.first) % per_row(run.width);
        return std::min(kGroup, run.width - place * kGroup);
    }

    // Bytes of the content before the group.
    int64_t before(int64_t group) const {
        if (group == n_groups_) {
            return n_bytes_;
        }
        const Run &   run   = find(group);
        const int64_t row   = (group - run.first) / per_row(run.width);
        const int64_t place = (group - run.first) % per_row(run.width);
        return run.bytes + row * dense_bytes(wire_, run.width) +
               place * group_bytes(wire_, Group::dense, kGroup);
    }

private:
    struct Run {
        int64_t first, rows, width, bytes;
    };

    static int64_t per_row(int64_t width) { return (width + kGroup - 1) / kGroup; }

    const Run & find(int64_t group) const {
        const auto after =
            std::upper_bound(runs_.begin(), runs_.end(), group, [](int64_t g, const Run & run) {
                return g < run.first;
            });
        return *(after - 1);
    }

    Wire             wire_;
    std::vector<Run> runs_;
    int64_t          n_groups_ = 0, n_bytes_ = 0;
};

}  // namespace

// The head of a share: that of the whole update.
static std::optional<UpdateHead> share_head(std::span<const uint8_t> share, std::string & why) {
    if (static_cast<int64_t>(share.size()) < kShareHead) {
        why = "shorter than the head";
        return {};
    }
    // read_head compares n_content with the length: zero it meanwhile
    Bytes      head(share.begin(), share.begin() + kHeadBytes);
    const auto n_content = get<uint64_t>(head.data() + 32);
    put(head.data() + 32, uint64_t{0});
    auto read = read_head(head, why);
    if (read) {
        read->n_content = n_content;
    }
    return read;
}

// Returns why the groups [begin, end), at `content`, are invalid, or null.
static const char *
check_groups(const GroupMap & map, Wire wire, int64_t begin, int64_t end, const uint8_t * content) {
    float x[kGroup];
    for (int64_t group = begin; group < end; ++group) {
        const uint8_t * at  = content + map.before(group) - map.before(begin);
        const char *    why = decode_group(wire, Group::dense, at, map.values(group), x);
        if (why != nullptr) {
            return why;
        }
    }
    return nullptr;
}

std::vector<Bytes>
split_shares(const std::vector<ParamView> & params, std::span<const uint8_t> update, int n) {
    std::string why;
    const auto  head = read_head(update, why);
    if (!head || head->is_part || !has_shares(head->wire)) {
        throw Error(
            "update to split: " + (head ? "a part, or of a wire type without shares" : why)
        );
    }
    const GroupMap map(params, head->wire);
    const auto     content = update.subspan(kHeadBytes);
    if (static_cast<int64_t>(content.size()) != map.n_bytes()) {
        throw Error("update to split: the length does not fit the model");
    }
    if (const char * bad = check_groups(map, head->wire, 0, map.n_groups(), content.data())) {
        throw Error(std::string("update to split: ") + bad);
    }
    std::vector<Bytes> shares;
    for (int j = 0; j < n; ++j) {
        const int64_t begin = map.n_groups() * j / n, end = map.n_groups() * (j + 1) / n;
        Bytes         share(update.begin(), update.begin() + kHeadBytes);
        share.resize(kShareHead);
        put(share.data() + kHeadBytes, begin);
        put(share.data() + kHeadBytes + 8, end);
        share.insert(
            share.end(), content.begin() + map.before(begin), content.begin() + map.before(end)
        );
        shares.push_back(std::move(share));
    }
    return shares;
}

std::optional<Bytes> mean_share(
    const std::vector<ParamView> & params,
    std::span<const Bytes>         shares,
    std::span<const uint64_t>      weights,
    std::string &                  why
) {
    if (shares.empty() || shares.size() != weights.size()) {
        why = "no shares, or another number of weights";
        return {};
    }
    const auto head = share_head(shares[0], why);
    if (!head) {
        return {};
    }
    if (!has_shares(head->wire)) {
        why = "a wire type without shares";
        return {};
    }
    const GroupMap map(params, head->wire);
    const int64_t  begin = get<int64_t>(shares[0].data() + kHeadBytes);
    const int64_t  end   = get<int64_t>(shares[0].data() + kHeadBytes + 8);
    if (begin < 0 || begin > end || end > map.n_groups() || head->is_part ||
        static_cast<int64_t>(head->n_content) != map.n_bytes()) {
        why = "groups out of bounds";
        return {};
    }
    const int64_t      n_bytes = map.before(end) - map.before(begin);
    std::vector<Piece> pieces;
    double             total = 0.0;
    for (size_t i = 0; i < shares.size(); ++i) {
        if (static_cast<int64_t>(shares[i].size()) != kShareHead + n_bytes || weights[i] == 0 ||
            std::memcmp(shares[i].data(), shares[0].data(), kShareHead) != 0) {
            why = format("share %zu differs from the first in head or size", i);
            return {};
        }
        const uint8_t * content = shares[i].data() + kShareHead;
        if (const char * bad = check_groups(map, head->wire, begin, end, content)) {
            why = format("share %zu: %s", i, bad);
            return {};
        }
        pieces.push_back({content, static_cast<double>(weights[i])});
        total += pieces.back().weight;
    }
    Bytes mean = shares[0];  // the head of all
    float x[kGroup];
    for (int64_t group = begin; group < end; ++group) {
        const int64_t n = map.values(group), offset = map.before(group) - map.before(begin);
        mean_of_group(head->wire, pieces, offset, n, total, x);
        encode_group(head->wire, Group::dense, x, n, mean.data() + kShareHead + offset, x);
    }
    return mean;
}

std::optional<Bytes> join_means(std::span<const Bytes> means, std::string & why) {
    Bytes   update;
    int64_t group = 0;
    for (const Bytes & mean : means) {
        const auto head = share_head(mean, why);
        if (!head) {
            return {};
        }
        if (update.empty()) {
            update.assign(mean.begin(), mean.begin() + kHeadBytes);
        }
        if (std::memcmp(mean.data(), update.data(), kHeadBytes) != 0 ||
            get<int64_t>(mean.data() + kHeadBytes) != group) {
            why = "means of different updates, or out of order";
            return {};
        }
        group = get<int64_t>(mean.data() + kHeadBytes + 8);
        update.insert(update.end(), mean.begin() + kShareHead, mean.end());
    }
    if (!read_head(update, why)) {
        return {};
    }
    return update;
}

Bytes mean_update(
    const std::vector<ParamView> & params, std::span<const Message> messages, int n_shares
) {
    std::vector<std::vector<Bytes>> shares(n_shares);  // each of all messages
    std::vector<uint64_t>           weights;
    for (const Message & message : messages) {
        auto of_message = split_shares(params, message.bytes, n_shares);
        for (int j = 0; j < n_shares; ++j) {
            shares[j].push_back(std::move(of_message[j]));
        }
        weights.push_back(message.weight);
    }
    std::vector<Bytes> means;
    std::string        why;
    for (const std::vector<Bytes> & share : shares) {
        auto mean = mean_share(params, share, weights, why);
        GT_CHECK(mean, why.c_str());
        means.push_back(std::move(*mean));
    }
    auto joined = join_means(means, why);
    GT_CHECK(joined, why.c_str());
    return std::move(*joined);
}

}  // namespace gt
