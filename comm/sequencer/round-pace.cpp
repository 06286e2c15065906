// comm/sequencer/round-pace.cpp — see round-pace.h.
#include "comm/sequencer/round-pace.h"

#include <algorithm>

namespace gt {

constexpr size_t kKeptTimes = 8;     // rounds
constexpr double kMargin    = 1.25;  // times what a host has needed in one of them
constexpr double kMost      = 2;     // times the usual deadline

static Millis median_of(std::vector<Millis> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? Millis{0} : values[(values.size() - 1) / 2];
}

// The longest may be an accident: of a host that has just returned.
static Millis second_longest(std::deque<Millis> values) {
    std::sort(values.begin(), values.end());
    return values.size() < 2 ? Millis{0} : values[values.size() - 2];
}

static Millis times(double factor, Millis time) {
    return Millis(static_cast<int64_t>(std::min(factor * static_cast<double>(time.count()), 1e12)));
}

static void keep_time(std::deque<Millis> & kept, Millis time) {
    kept.push_back(time);
    if (kept.size() > kKeptTimes) {
        kept.pop_front();
    }
}

void RoundPace::message(const std::string & host, Time::duration time, const MessageHead & head) {
    open_.emplace_back(host, whole_time(time, head));
}

// The time that a whole batch would have taken: a slow host computes part of it. Else hosts that all
// compute less, under a load that passes, would shorten the deadline and hold each other there.
Millis RoundPace::whole_time(Time::duration time, const MessageHead & head) const {
    const auto ms = std::chrono::duration_cast<Millis>(time);
    return head.phase == Phase::outputs || head.weight >= whole_
               ? ms
               : times(static_cast<double>(whole_) / static_cast<double>(head.weight), ms);
}

void RoundPace::closed(const Commit & head, bool is_first) {
    // before the first inputs nobody fetches outputs: they take less time than all later ones
    const bool is_short = head.phase == Phase::inputs && !is_known(Phase::outputs);
    const bool is_timed = !is_first && !is_short && !head.messages.empty() && !open_.empty();
    for (const Phase phase : {Phase::inputs, Phase::outputs}) {
        const bool     at      = phase == Phase::outputs;
        const uint32_t pace_ms = at ? head.outputs_pace_ms : head.pace_ms;
        if (is_timed && (head.phase == Phase::outputs) == at) {
            std::vector<Millis> all;
            for (const auto & [host, time] : open_) {
                all.push_back(time);
                keep_time(hosts_[at][host], time);
            }
            keep_time(medians_[at], median_of(std::move(all)));
        } else if (medians_[at].size() <= 1 && pace_ms > 0) {
            medians_[at] = {
                Millis(pace_ms)};  // a new sequencer continues at the pace of the one before
        }
        std::erase_if(hosts_[at], [&](const auto & one) { return !head.find(one.first); });
    }
    open_.clear();
    if (head.phase != Phase::outputs && !head.messages.empty()) {
        std::vector<uint64_t> weights;
        for (const CommitMessage & message : head.messages) {
            weights.push_back(message.weight);
        }
        const auto middle = weights.begin() + static_cast<ptrdiff_t>(weights.size() / 2);
        std::nth_element(weights.begin(), middle, weights.end());
        whole_ = std::max(whole_, *middle);
    }
}

Millis RoundPace::pace(Phase phase) const {
    const auto & medians = medians_[phase == Phase::outputs];
    return median_of({medians.begin(), medians.end()});
}

Millis RoundPace::deadline(Phase phase, double factor) const {
    if (!is_known(phase)) {
        return open_.empty() ? Millis(0) : times(factor, open_.front().second);
    }
    const Millis usual = times(factor, pace(phase));
    Millis       late{0};
    if (!is_known(Phase::outputs)) {
        return usual;  // rounds of one phase: messages are small
    }
    for (const auto & [host, kept] : hosts_[phase == Phase::outputs]) {
        if (median_of({kept.begin(), kept.end()}) <= usual) {
            late = std::max(late, second_longest(kept));
        }
    }
    return std::clamp(times(kMargin, late), usual, times(kMost, usual));
}

}  // namespace gt
