#include "optim/wire/inbox.h"

#include "optim/math/squares.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>

namespace gt {

Inbox::Inbox(const Layout & layout, const Round & round, float clip)
    : layout_(layout), in_shares_(round.in_shares) {
    // heads: count the learning rates (their bits) of messages that fit this run and step
    const size_t             n = round.messages.size();
    std::vector<std::string> why(n);
    std::vector<uint32_t>    rates(n);
    std::map<uint32_t, int>  votes;
    for (size_t i = 0; i < n; ++i) {
        const auto head = read_head(round.messages[i].bytes, why[i]);
        if (head) {
            why[i] = check_head(*head, round, round.messages[i]);
        }
        if (head && why[i].empty()) {
            rates[i] = std::bit_cast<uint32_t>(head->lr);
            ++votes[rates[i]];
        }
    }

    uint32_t agreed = 0;
    if (!votes.empty()) {
        agreed   = std::max_element(votes.begin(), votes.end(), [](auto & a, auto & b) {
                     return a.second < b.second;
                 })->first;
        lr_      = std::bit_cast<float>(agreed);
        plan_    = layout.plan(round.step);
        offsets_ = layout.offsets(plan_);
    }
    for (size_t i = 0; i < n; ++i) {
        if (why[i].empty() && rates[i] != agreed) {
            why[i] = "another learning rate than most messages";
        }
    }

    in_shares_ ? read_means(round, why) : read_updates(round, why, clip);
    for (size_t i = 0; i < n; ++i) {
        if (!why[i].empty()) {
            refused_.push_back(round.messages[i].host + ": " + why[i]);
        }
    }
}

void Inbox::read_updates(const Round & round, std::vector<std::string> & why, float clip) {
    std::vector<double> norms;
    for (size_t i = 0; i < why.size(); ++i) {
        const Message &     message = round.messages[i];
        std::vector<double> norms2;
        if (why[i].empty()) {
            why[i] = check_content(message, norms2);
        }
        if (why[i].empty()) {
            updates_.push_back({message.bytes.data(), static_cast<double>(message.weight)});
            norms.push_back(std::sqrt(std::accumulate(norms2.begin(), norms2.end(), 0.0)));
            norms2_.push_back(std::move(norms2));
        }
    }
    const std::vector<double> scales = clip_scales(norms, clip);
    for (size_t i = 0; i < scales.size(); ++i) {
        updates_[i].scale = scales[i];
    }
    n_effective_ = gt::n_effective(updates_);
}

void Inbox::read_means(const Round & round, std::vector<std::string> & why) {
    const auto n = static_cast<int>(why.size());
    means_.resize(layout_.units().slices().size());
    for (int j = 0; j < n; ++j) {
        const Bytes & mean = round.messages[j].bytes;
        const double  of =
            why[j].empty() ? read_mean(layout_, plan_, mean, j, n, means_, why[j]) : 0.0;
        if (why[j].empty()) {
            n_effective_ = updates_.empty() ? of : std::min(n_effective_, of);
            updates_.push_back({mean.data()});
        }
    }
}

// Returns why the head does not fit this run and round, or an empty string.
std::string
Inbox::check_head(const UpdateHead & head, const Round & round, const Message & message) {
    const UpdateHead & ours = layout_.head();
    const UpdateKind   kind = in_shares_ ? UpdateKind::mean : UpdateKind::update;
    return head.kind != kind || head.replicator != ours.replicator || head.wire != ours.wire
               ? "another kind, replicator or wire type"
           : head.layout != ours.layout ? "another model or other settings"
           : head.step != round.step    ? "another step"
           : message.weight == 0        ? "weight 0"
                                        : "";
}

// Returns why the content is invalid, or an empty string.
std::string Inbox::check_content(const Message & message, std::vector<double> & norms2) const {
    if (static_cast<int64_t>(message.bytes.size()) != offsets_.back()) {
        return "the length does not fit the layout";
    }
    const Units &             units = layout_.units();
    std::vector<const char *> why(units.all().size(), nullptr);
    norms2.assign(units.all().size(), 0.0);
    units.run_all([&](int i, float *) {
        why[i] = layout_.replicator().check(
            plan_, units.all()[i], message.bytes.data() + offsets_[i], norms2[i]
        );
    });
    for (size_t i = 0; i < why.size(); ++i) {
        if (why[i] != nullptr) {
            return why[i] + (", in " + units.shapes()[units.all()[i].tensor].name);
        }
    }
    return {};
}

std::vector<Piece> Inbox::pieces(int unit) const {
    std::vector<Piece> pieces = updates_;
    for (Piece & piece : pieces) {
        piece.bytes += offsets_[unit];
    }
    return pieces;
}

void Inbox::merge(int unit, float * update) const {
    const Units & units = layout_.units();
    if (!in_shares_) {
        layout_.replicator().merge(plan_, units.all()[unit], pieces(unit), update);
        return;
    }
    for (int i = units.first_slices()[unit]; i < units.first_slices()[unit + 1]; ++i) {
        const Unit & slice = units.slices()[i];
        if (means_[i].bytes) {
            layout_.replicator().read_mean(plan_, slice, means_[i].bytes, update);
        } else {
            std::fill_n(update, units.size(slice), 0.0f);
        }
        update += units.size(slice);
    }
}

double Inbox::mean_square(int unit) const {
    const std::vector<int> & first = layout_.units().first_slices();
    double                   sum = 0.0, total = in_shares_ ? 1.0 : 0.0;
    for (int i = first[unit]; in_shares_ && i < first[unit + 1]; ++i) {
        sum += means_[i].mean_square;
    }
    for (size_t i = 0; i < norms2_.size(); ++i) {
        const Piece & piece = updates_[i];
        sum += piece.weight * piece.scale * piece.scale * norms2_[i][unit];
        total += piece.weight;
    }
    return sum / total;
}

float Inbox::restored_norm(int unit, std::span<const float> update) const {
    const double mean2 = sum_of_squares(update.data(), static_cast<int64_t>(update.size()));
    const double ratio = mean2 > 0.0 ? mean_square(unit) / mean2 : 1.0;
    return static_cast<float>(std::sqrt(std::min(ratio, n_effective())));
}

}  // namespace gt
