#include "optim/dense.h"

#include "optim/codec.h"
#include "optim/replicator.h"

#include <algorithm>
#include <cstring>

namespace gt {

static constexpr int64_t kShareHead = kHeadBytes + 16;

// Groups of 64 values in message order, found by their number: rows of equal width lie in runs.
class GroupMap {
public:
    GroupMap(const std::vector<ParamView> & params, Wire wire) : wire_(wire) {
        for (const ParamView & param : params) {
            const TensorShape shape = shape_of(param);
            const int64_t     rows = shape.is_vector ? 1 : shape.rows, width = shape.size() / rows;
            runs_.push_back({n_groups_, rows, width, n_bytes_});
            n_groups_ += rows * per_row(width);
            n_bytes_ += rows * row_bytes(width);
        }
    }

    int64_t n_groups() const { return n_groups_; }
    int64_t n_bytes() const { return n_bytes_; }

    int64_t values(int64_t group) const {
        const Run &   run   = find(group);
        const int64_t place = (group - run.first) % per_row(run.width);
        return std::min(kDenseGroup, run.width - place * kDenseGroup);
    }

    // Bytes of the content before the group.
    int64_t before(int64_t group) const {
        if (group == n_groups_) {
            return n_bytes_;
        }
        const Run &   run   = find(group);
        const int64_t row   = (group - run.first) / per_row(run.width);
        const int64_t place = (group - run.first) % per_row(run.width);
        return run.bytes + row * row_bytes(run.width) +
               place * group_bytes(wire_, Group::dense, kDenseGroup);
    }

private:
    struct Run {
        int64_t first, rows, width, bytes;
    };

    static int64_t per_row(int64_t width) { return (width + kDenseGroup - 1) / kDenseGroup; }

    int64_t row_bytes(int64_t width) const {
        const int64_t tail = width % kDenseGroup;
        return width / kDenseGroup * group_bytes(wire_, Group::dense, kDenseGroup) +
               (tail > 0 ? group_bytes(wire_, Group::dense, tail) : 0);
    }

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

// The head of a message without a length that a share could not have.
static std::optional<CodecHead> share_head(std::span<const uint8_t> share, std::string & why) {
    if (static_cast<int64_t>(share.size()) < kShareHead) {
        why = "shorter than a head";
        return {};
    }
    // read_head holds the length against the bytes there are: give it a message of that length
    Bytes    head(share.begin(), share.begin() + kHeadBytes);
    uint64_t n_content = 0;
    std::memcpy(&n_content, head.data() + 32, 8);
    std::memset(head.data() + 32, 0, 8);
    auto read = read_head(head, why);
    if (read) {
        read->n_content = n_content;
    }
    return read;
}

static int64_t get_int(const uint8_t * at) {
    int64_t value = 0;
    std::memcpy(&value, at, 8);
    return value;
}

std::vector<Bytes> split_shares(
    const OptimOptions &           options,
    const std::vector<ParamView> & params,
    uint64_t                       step,
    std::span<const uint8_t>       message,
    int                            n
) {
    const std::string why = check_message(options, params, step, message);
    if (!why.empty()) {
        throw Error("message to split: " + why);
    }
    const GroupMap     map(params, static_cast<Wire>(message[6]));
    std::vector<Bytes> shares;
    for (int j = 0; j < n; ++j) {
        const int64_t begin = map.n_groups() * j / n, end = map.n_groups() * (j + 1) / n;
        const auto    content = message.subspan(kHeadBytes);
        Bytes         share(message.begin(), message.begin() + kHeadBytes);
        share.resize(kShareHead);
        std::memcpy(share.data() + kHeadBytes, &begin, 8);
        std::memcpy(share.data() + kHeadBytes + 8, &end, 8);
        share.insert(
            share.end(), content.begin() + map.before(begin), content.begin() + map.before(end)
        );
        shares.push_back(std::move(share));
    }
    return shares;
}

std::optional<Bytes> mean_share(
    const OptimOptions &,
    const std::vector<ParamView> & params,
    std::span<const Bytes>         shares,
    std::span<const uint64_t>      weights,
    std::string &                  why
) {
    if (shares.empty() || shares.size() != weights.size()) {
        why = "no shares, or not a weight for each";
        return {};
    }
    auto head = share_head(shares[0], why);
    if (!head) {
        return {};
    }
    const GroupMap map(params, head->wire), exact(params, Wire::fp32);
    const int64_t  begin = get_int(shares[0].data() + kHeadBytes);
    const int64_t  end   = get_int(shares[0].data() + kHeadBytes + 8);
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
            why = format("share %zu is not like the first", i);
            return {};
        }
        pieces.push_back({shares[i].data() + kShareHead, static_cast<double>(weights[i])});
        total += pieces.back().weight;
    }
    head->wire      = Wire::fp32;
    head->n_content = exact.n_bytes();
    CodecHead empty = *head;
    empty.n_content = 0;
    Bytes mean      = make_message(empty);
    std::memcpy(mean.data() + 32, &head->n_content, 8);
    mean.resize(kShareHead + exact.before(end) - exact.before(begin));
    std::memcpy(mean.data() + kHeadBytes, shares[0].data() + kHeadBytes, 16);
    uint8_t * out = mean.data() + kShareHead;
    float     x[kDenseGroup];
    for (int64_t group = begin; group < end; ++group) {
        const int64_t n = map.values(group), offset = map.before(group) - map.before(begin);
        for (size_t i = 0; i < pieces.size(); ++i) {
            const auto * at = pieces[i].bytes + offset;
            const char * bad =
                decode_group(static_cast<Wire>(shares[0][6]), Group::dense, at, n, x);
            if (bad != nullptr) {
                why = format("share %zu: %s", i, bad);
                return {};
            }
        }
        mean_of_group(static_cast<Wire>(shares[0][6]), pieces, offset, n, total, x);
        std::memcpy(out, x, n * sizeof(float));
        out += n * sizeof(float);
    }
    return mean;
}

std::optional<Bytes> join_means(std::span<const Bytes> means, std::string & why) {
    Bytes   message;
    int64_t group = 0;
    for (const Bytes & mean : means) {
        const auto head = share_head(mean, why);
        if (!head) {
            return {};
        }
        if (message.empty()) {
            message.assign(mean.begin(), mean.begin() + kHeadBytes);
        }
        if (std::memcmp(mean.data(), message.data(), kHeadBytes) != 0 || head->wire != Wire::fp32 ||
            get_int(mean.data() + kHeadBytes) != group) {
            why = "means are not of one message, or not in order";
            return {};
        }
        group = get_int(mean.data() + kHeadBytes + 8);
        message.insert(message.end(), mean.begin() + kShareHead, mean.end());
    }
    if (!read_head(message, why)) {
        return {};
    }
    return message;
}

}  // namespace gt
