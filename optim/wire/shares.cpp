#include "optim/wire/shares.h"

#include "optim/wire/little-endian.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace gt {

static constexpr int64_t kShareHead  = kHeadBytes + 24;
static constexpr double  kSlack      = 1.0 + 1e-9;  // a norm is a sum in another order
static constexpr double  kMostSquare = 1e300, kMostUpdates = 4096;

namespace {

// Where share j of n of an update begins: the slice, and the offset of its bytes.
struct Cut {
    size_t  slice  = 0;
    int64_t offset = 0;
};

std::vector<Cut> cuts(const Layout & layout, const Plan & plan, int n) {
    const std::vector<Unit> & slices = layout.units().slices();
    std::vector<int64_t>      ends{0};
    for (const Unit & slice : slices) {
        ends.push_back(ends.back() + layout.replicator().bytes(plan, slice));
    }
    std::vector<Cut> cuts{{}};
    for (int j = 1; j <= n; ++j) {
        size_t slice = cuts.back().slice;
        while (slice < slices.size() && (j == n || ends[slice] < ends.back() * j / n)) {
            ++slice;
        }
        cuts.push_back({slice, ends[slice]});
    }
    return cuts;
}

void write_head(
    Bytes &            share,
    const UpdateHead & head,
    UpdateKind         kind,
    const Cut &        from,
    const Cut &        to,
    double             number
) {
    UpdateHead own = head;
    own.kind       = kind;
    own.n_content  = 0;
    share          = blank_update(own);
    share.resize(kShareHead);
    put(share.data() + kHeadBytes, static_cast<uint64_t>(from.slice));
    put(share.data() + kHeadBytes + 8, static_cast<uint64_t>(to.slice));
    put(share.data() + kHeadBytes + 16, number);
}

// Writes the length to the head.
void close(Bytes & share) {
    put(share.data() + 32, static_cast<uint64_t>(share.size() - kHeadBytes));
}

// A share that fits its own head, and what its slices are.
struct Share {
    const Message *     message = nullptr;
    size_t              begin = 0, end = 0;
    double              norm = 0.0;  // as its sender tells it
    std::vector<double> norms2;      // of the slices
};

}  // namespace

double n_effective(std::span<const Piece> pieces) {
    double total = 0.0, squares = 0.0;
    for (const Piece & piece : pieces) {
        total += piece.weight;
        squares += piece.weight * piece.weight;
    }
    return total * total / squares;
}

// The squares of the norms of an update's slices [begin, end); nothing if one is invalid.
static std::optional<std::vector<double>>
squares(const Layout & layout, const Plan & plan, size_t begin, size_t end, const uint8_t * bytes) {
    std::vector<double> norms2;
    for (size_t i = begin; i < end; ++i) {
        const Unit & slice = layout.units().slices()[i];
        if (layout.replicator().check(plan, slice, bytes, norms2.emplace_back(0.0)) != nullptr) {
            return std::nullopt;
        }
        bytes += layout.replicator().bytes(plan, slice);
    }
    return norms2;
}

std::vector<Bytes> split_shares(const Layout & layout, std::span<const uint8_t> update, int n) {
    std::string why;
    const auto  head = read_head(update, why);
    if (!head || head->kind != UpdateKind::update || head->layout != layout.head().layout) {
        throw Error("update to split: " + (head ? "of another run, or not whole" : why));
    }
    const Plan             plan    = layout.plan(head->step);
    const std::vector<Cut> at      = cuts(layout, plan, n);
    const auto             content = update.subspan(kHeadBytes);
    if (static_cast<int64_t>(content.size()) != at.back().offset) {
        throw Error("update to split: the length does not fit the layout");
    }
    // an invalid update travels all the same, and is refused
    double norm2 = 0.0;
    if (const auto all = squares(layout, plan, 0, at.back().slice, content.data())) {
        for (const double square : *all) {
            norm2 += square;
        }
    }
    std::vector<Bytes> shares(static_cast<size_t>(n));
    for (size_t j = 0; j < shares.size(); ++j) {
        write_head(shares[j], *head, UpdateKind::share, at[j], at[j + 1], std::sqrt(norm2));
        const uint8_t * const from = content.data();
        shares[j].insert(shares[j].end(), from + at[j].offset, from + at[j + 1].offset);
        close(shares[j]);
    }
    return shares;
}

// The head of what claims to be a share of this run, without what differs between hosts.
static std::string head_of(const Layout & layout, const Message & message) {
    std::string        why;
    const Bytes &      bytes = message.bytes;
    const auto         head  = read_head(bytes, why);
    const UpdateHead & ours  = layout.head();
    const bool is_ours = head && head->kind == UpdateKind::share && head->layout == ours.layout &&
                         head->replicator == ours.replicator && head->wire == ours.wire &&
                         message.weight > 0 && static_cast<int64_t>(bytes.size()) >= kShareHead;
    return is_ours ? std::string(bytes.begin(), bytes.begin() + kHeadBytes + 16) : "";
}

// The shares whose content is valid, of those with this head.
static std::vector<Share> valid_shares(
    const Layout &           layout,
    const Plan &             plan,
    std::span<const Message> shares,
    const std::string &      head
) {
    const auto         n     = layout.units().slices().size();
    const auto *       range = reinterpret_cast<const uint8_t *>(head.data()) + kHeadBytes;
    const auto         begin = get<uint64_t>(range), end = get<uint64_t>(range + 8);
    int64_t            size = kShareHead;
    std::vector<Share> valid;
    if (begin > end || end > n) {
        return valid;
    }
    for (size_t i = begin; i < end; ++i) {
        size += layout.replicator().bytes(plan, layout.units().slices()[i]);
    }
    for (const Message & message : shares) {
        if (head_of(layout, message) != head ||
            static_cast<int64_t>(message.bytes.size()) != size) {
            continue;
        }
        Share  share{&message, begin, end, get<double>(message.bytes.data() + kHeadBytes + 16), {}};
        auto   norms2 = squares(layout, plan, begin, end, message.bytes.data() + kShareHead);
        double norm2  = 0.0;
        for (size_t i = 0; norms2 && i < norms2->size(); ++i) {
            norm2 += (*norms2)[i];
        }
        if (norms2 && std::isfinite(share.norm) && std::sqrt(norm2) <= share.norm * kSlack) {
            share.norms2 = std::move(*norms2);
            valid.push_back(std::move(share));
        }
    }
    return valid;
}

std::optional<Bytes>
mean_of_shares(const Layout & layout, std::span<const Message> shares, float clip) {
    std::map<std::string, int> votes;
    for (const Message & message : shares) {
        ++votes[head_of(layout, message)];
    }
    votes.erase("");
    if (votes.empty()) {
        return std::nullopt;
    }
    const std::string most = std::max_element(votes.begin(), votes.end(), [](auto & a, auto & b) {
                                 return a.second < b.second;
                             })->first;
    // read_head compares n_content with the length
    Bytes head(most.begin(), most.begin() + kHeadBytes);
    put(head.data() + 32, uint64_t{0});
    std::string why;
    const auto  of_round = read_head(head, why);
    if (!of_round) {
        return std::nullopt;
    }
    const Plan               plan  = layout.plan(of_round->step);
    const std::vector<Share> valid = valid_shares(layout, plan, shares, most);
    if (valid.empty()) {
        return std::nullopt;
    }
    std::vector<double> norms(valid.size());
    std::ranges::transform(valid, norms.begin(), &Share::norm);
    const std::vector<double> scales = clip_scales(norms, clip);
    std::vector<Piece>        pieces;
    double                    total = 0.0;
    for (size_t i = 0; i < valid.size(); ++i) {
        const Message & message = *valid[i].message;
        const auto      weight  = static_cast<double>(message.weight);
        pieces.push_back({message.bytes.data() + kShareHead, weight, scales[i]});
        total += weight;
    }
    Bytes     mean;
    const Cut from{valid[0].begin, 0}, to{valid[0].end, 0};
    write_head(mean, *of_round, UpdateKind::mean, from, to, n_effective(pieces));
    for (size_t i = from.slice; i < to.slice; ++i) {
        const Unit & slice  = layout.units().slices()[i];
        double       square = 0.0;
        for (size_t h = 0; h < valid.size(); ++h) {
            const double norm2 = valid[h].norms2[i - from.slice];
            square += pieces[h].weight * pieces[h].scale * pieces[h].scale * norm2;
        }
        mean.resize(mean.size() + sizeof(double));
        put(mean.data() + mean.size() - sizeof(double), square / total);
        layout.replicator().write_mean(plan, slice, pieces, mean);
        for (Piece & piece : pieces) {
            piece.bytes += layout.replicator().bytes(plan, slice);
        }
    }
    close(mean);
    return mean;
}

double read_mean(
    const Layout &           layout,
    const Plan &             plan,
    std::span<const uint8_t> mean,
    int                      j,
    int                      n,
    std::vector<SliceMean> & slices,
    std::string &            why
) {
    const std::vector<Cut> at    = cuts(layout, plan, n);
    const size_t           begin = at[static_cast<size_t>(j)].slice,
                 end             = at[static_cast<size_t>(j) + 1].slice;
    const uint8_t * number       = mean.data() + kHeadBytes;
    if (static_cast<int64_t>(mean.size()) < kShareHead || get<uint64_t>(number) != begin ||
        get<uint64_t>(number + 8) != end) {
        why = "other slices than this share's";
        return 0.0;
    }
    const auto n_updates = get<double>(number + 16);
    if (!(n_updates >= 1.0 && n_updates <= kMostUpdates)) {
        why = "a mean of no updates, or of too many";
        return 0.0;
    }
    std::vector<SliceMean>   read;
    std::span<const uint8_t> in = mean.subspan(kShareHead);
    for (size_t i = begin; i < end; ++i) {
        const double square = in.size() < sizeof(double) ? -1.0 : get<double>(in.data());
        if (!(square >= 0.0 && square < kMostSquare)) {
            why = "a norm is missing, negative, NaN or Inf";
            return 0.0;
        }
        in = in.subspan(sizeof(double));
        read.push_back({in.data(), square});
        const Unit & slice = layout.units().slices()[i];
        if (const char * bad = layout.replicator().check_mean(plan, slice, in)) {
            why = bad + (", in " + layout.units().shapes()[slice.tensor].name);
            return 0.0;
        }
    }
    if (!in.empty()) {
        why = "longer than its slices";
        return 0.0;
    }
    std::copy(read.begin(), read.end(), slices.begin() + static_cast<ptrdiff_t>(begin));
    return n_updates;
}

}  // namespace gt
