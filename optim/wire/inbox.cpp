#include "optim/wire/inbox.h"

#include "optim/math/squares.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>

namespace gt {

Inbox::Inbox(const Layout & layout, const Round & round, float clip) : layout_(layout) {
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

    // contents
    std::vector<double> norms;
    for (size_t i = 0; i < n; ++i) {
        const Message &     message = round.messages[i];
        std::vector<double> norms2;
        if (why[i].empty()) {
            why[i] = rates[i] == agreed ? check_content(message, norms2)
                                        : "another learning rate than most messages";
        }
        if (!why[i].empty()) {
            refused_.push_back(message.host + ": " + why[i]);
            continue;
        }
        updates_.push_back({message.bytes.data(), static_cast<double>(message.weight)});
        norms.push_back(std::sqrt(std::accumulate(norms2.begin(), norms2.end(), 0.0)));
        norms2_.push_back(std::move(norms2));
    }
    const std::vector<double> scales = clip_scales(norms, clip);
    for (size_t i = 0; i < scales.size(); ++i) {
        updates_[i].scale = scales[i];
    }
}

// Returns why the head does not fit this run and round, or an empty string.
std::string
Inbox::check_head(const UpdateHead & head, const Round & round, const Message & message) {
    const UpdateHead & ours = layout_.head();
    return head.is_part || head.replicator != ours.replicator || head.wire != ours.wire
               ? "another replicator or wire type"
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
    layout_.replicator().merge(plan_, layout_.units().all()[unit], pieces(unit), update);
}

double Inbox::mean_square(int unit) const {
    double sum = 0.0, total = 0.0;
    for (size_t i = 0; i < updates_.size(); ++i) {
        const Piece & piece = updates_[i];
        sum += piece.weight * piece.scale * piece.scale * norms2_[i][unit];
        total += piece.weight;
    }
    return sum / total;
}

double Inbox::n_effective() const {
    double total = 0.0, squares = 0.0;
    for (const Piece & piece : updates_) {
        total += piece.weight;
        squares += piece.weight * piece.weight;
    }
    return total * total / squares;
}

float Inbox::restored_norm(int unit, std::span<const float> update) const {
    const double mean2 = sum_of_squares(update.data(), static_cast<int64_t>(update.size()));
    const double ratio = mean2 > 0.0 ? mean_square(unit) / mean2 : 1.0;
    return static_cast<float>(std::sqrt(std::min(ratio, n_effective())));
}

}  // namespace gt
