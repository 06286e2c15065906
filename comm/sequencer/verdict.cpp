// comm/sequencer/verdict.cpp — counts votes; every sequencer breaks ties in the same way.
#include "comm/sequencer/verdict.h"

#include <algorithm>

namespace gt {

constexpr uint64_t kWeightFactor = 4;  // times the median

// The most frequent key; on a tie, the highest.
template <typename K>
static std::optional<K> most_frequent(const std::map<K, size_t> & counts) {
    std::optional<K> best;
    size_t           n = 0;
    for (const auto & [key, count] : counts) {
        if (count >= n) {
            best = key;
            n    = count;
        }
    }
    return best;
}

Verdict judge(
    const Commit &                             before,
    const std::map<std::string, SeenMessage> & arrived,
    std::map<uint64_t, uint64_t>               states,
    uint64_t                                   max_step
) {
    Verdict                                      out;
    std::map<std::pair<uint64_t, Phase>, size_t> kinds;
    std::map<uint64_t, size_t>                   indices;
    std::vector<uint64_t>                        weights;
    size_t                                       n_members = 0;
    for (const CommitHost & host : before.hosts) {
        n_members += host.member ? 1 : 0;
    }
    // nobody has a state of the open round or a later one
    const auto reports = [&](const MessageHead & head) {
        return head.state_digest != 0 && head.state_index <= before.index;
    };
    // step and phase: the most frequent ones
    for (const auto & [name, seen] : arrived) {
        ++kinds[{seen.head.step, seen.head.phase}];
        if (reports(seen.head)) {
            ++indices[seen.head.state_index];
        }
    }
    std::erase_if(kinds, [&](const auto & kind) {
        return kind.first.first > max_step && 2 * kind.second <= n_members;
    });
    if (const auto kind = most_frequent(kinds)) {
        out.step  = kind->first;
        out.phase = kind->second;
    }
    // state: the digest of at least half of the members; on a tie, of the host that joined first
    if (const auto index = most_frequent(indices); index && !states.contains(*index)) {
        std::map<uint64_t, size_t> counts;
        size_t                     best = 0;
        for (const auto & [name, seen] : arrived) {
            if (seen.head.state_index == *index && reports(seen.head)) {
                best = std::max(best, ++counts[seen.head.state_digest]);
            }
        }
        for (const CommitHost & host : before.hosts) {
            const auto it = arrived.find(host.name);
            if (it != arrived.end() && it->second.head.state_index == *index &&
                counts[it->second.head.state_digest] == best && 2 * best >= n_members) {
                out.state_index  = *index;
                out.state_digest = states[*index] = it->second.head.state_digest;
                break;
            }
        }
    }
    // messages, in the order in which all hosts will sum them
    for (const CommitHost & host : before.hosts) {
        const auto it = arrived.find(host.name);
        if (it == arrived.end()) {
            continue;
        }
        const MessageHead & head  = it->second.head;
        const auto          right = states.find(head.state_index);
        if (reports(head) && right != states.end() && right->second != head.state_digest) {
            out.diverged.push_back(host.name);
        } else if (head.step == out.step && head.phase == out.phase) {
            out.usable.push_back(host.name);
            weights.push_back(head.weight);
        }
    }
    // of two hosts, both may be right: the higher one is the median
    if (!weights.empty()) {
        std::sort(weights.begin(), weights.end());
        out.max_weight = std::min(kMaxWeight, kWeightFactor * weights[weights.size() / 2]);
    }
    return out;
}

}  // namespace gt
