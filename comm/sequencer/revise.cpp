// comm/sequencer/revise.cpp — see revise.h.
#include "comm/sequencer/revise.h"

#include <algorithm>

namespace gt {

std::optional<Commit>
without_lost(Store & store, const RunKeys & keys, const Membership & membership, Time now) {
    const RunPaths paths(keys.run);
    const Commit & head = *membership.head();
    // count the reports
    std::map<std::string, size_t> votes;
    size_t                        n_voters = 0;
    for (const CommitHost & host : head.hosts) {
        if (!host.member) {
            continue;
        }
        const auto value = store.get(paths.lost(head.index, head.revision, host.name));
        const auto lost  = value ? parse_lost(keys, head.index, host.name, host.incarnation, *value)
                                 : std::nullopt;
        if (!lost && !membership.is_silent(host.name, now)) {
            return std::nullopt;
        }
        n_voters += lost ? 1 : 0;
        for (const std::string & sender : lost.value_or(std::vector<std::string>())) {
            ++votes[sender];
        }
    }
    // remove what all have lost, we too
    Commit revised = head;
    std::erase_if(revised.messages, [&](const CommitMessage & message) {
        const auto value = store.get(paths.message(head.index, message.host, message.incarnation));
        return n_voters > 0 && votes[message.host] == n_voters &&
               (!value || digest256(*value) != message.digest);
    });
    if (revised.messages.size() == head.messages.size()) {
        return std::nullopt;
    }
    for (CommitHost & host : revised.hosts) {
        if (head.message_of(host.name) && !revised.message_of(host.name)) {
            host.history &= 0xfe;  // not listed in this round
        }
    }
    ++revised.revision;
    return revised;
}

}  // namespace gt
