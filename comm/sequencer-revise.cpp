// comm/sequencer-revise.cpp — a listed message that nobody can fetch becomes absent for everybody.
#include "comm/sequencer.h"
#include "comm/wire.h"

#include <algorithm>

namespace gt {

// Every member that is not silent says that it can't fetch a listed message, and neither can we: it
// is absent for everybody. A host that had applied it all the same finds at the next commit that it
// stands on a revision that does not hold, and reloads.
bool Sequencer::revise(Time now) {
    const auto & head = membership_.head();
    if (!leads_ || !head || head->messages.empty() || head->revision >= kMaxRevision ||
        membership_.n_arrived() > 0 || now - membership_.opened() < options_.lost_after ||
        now - looked_lost_ < options_.lost_after / 4) {
        return false;
    }
    looked_lost_ = now;
    std::map<std::string, size_t> votes;
    size_t                        n_voters = 0;
    for (const CommitHost & host : head->hosts) {
        if (!host.member) {
            continue;
        }
        const RecordHead about{Kind::lost, head->index, host.name, host.incarnation};
        const auto       value = store_.get(paths_.lost(head->index, head->revision, host.name));
        const auto       body  = value ? parse_record(keys_, about, *value) : std::nullopt;
        if (!body) {
            if (membership_.is_silent(host.name, now)) {
                continue;
            }
            return false;
        }
        ++n_voters;
        WireReader in(*body);
        while (in.ok() && !in.at_end()) {
            ++votes[in.text(kMaxHostNameSize)];
        }
    }
    Commit revised = *head;
    std::erase_if(revised.messages, [&](const CommitMessage & message) {
        const auto value =
            store_.get(paths_.message(head->index, message.host, message.incarnation));
        return n_voters > 0 && votes[message.host] == n_voters &&
               (!value || digest256(*value) != message.digest);
    });
    if (revised.messages.size() == head->messages.size()) {
        return false;
    }
    for (CommitHost & host : revised.hosts) {
        if (head->message_of(host.name) && !revised.message_of(host.name)) {
            host.history &= 0xfe;
        }
    }
    ++revised.revision;
    return write(std::move(revised), now);
}

}  // namespace gt
