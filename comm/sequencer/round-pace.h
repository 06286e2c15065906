// comm/sequencer/round-pace.h — how long messages of a round take, and so how long a round waits for them.
//
// The deadline is `factor` times the median time that messages of the last rounds of the same phase took; a
// message of half a batch counts twice its time. In an exchange in shares a line that loses packets makes another
// host late each time: the deadline leaves room for what a host that otherwise keeps the pace has needed in two
// of its last rounds.
#pragma once

#include "comm/store/store.h"
#include "comm/wire/commit.h"

#include <deque>
#include <map>

namespace gt {

class RoundPace {
public:
    // A message of the open round.
    void message(const std::string & host, Time::duration time, const MessageHead & head);

    // The round has been closed by `head`, at the pace that it says if we know none. is_first: it is the first
    // commit that we see.
    void closed(const Commit & head, bool is_first);

    bool   is_known(Phase phase) const { return !medians_[phase == Phase::outputs].empty(); }
    Millis pace(Phase phase) const;  // time that messages take; 0: unknown
    Millis
    deadline(Phase phase, double factor) const;  // before the pace is known: by the first message

private:
    using Times = std::deque<Millis>;

    Millis whole_time(Time::duration time, const MessageHead & head) const;

    std::vector<std::pair<std::string, Millis>> open_;  // of the open round, in order of arrival
    uint64_t                     whole_ = 0;            // a whole batch: the largest median weight
    Times                        medians_[2];           // of the last rounds; 1: of outputs
    std::map<std::string, Times> hosts_[2];             // the same of each host
};

}  // namespace gt
