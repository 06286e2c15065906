// comm/sequencer/verdict.h — decides which of the arrived messages a round lists. A pure function.
//
// Messages of one round have the same step and phase. Each contains the digest of its sender's
// shared state: the majority's is correct, and hosts that differ are left out and named as diverged.
// A weight counts up to a multiple of the median: no host alone decides the mean.
#pragma once

#include "comm/wire/commit.h"

#include <map>

namespace gt {

// A message of the open round, as the sequencer sees it.
struct SeenMessage {
    std::string host;
    uint64_t    incarnation = 0;
    MessageHead head;
    uint64_t    size = 0;
    Key32       digest{};
    std::string where;
};

struct Verdict {
    uint64_t                 step        = kNone;
    Phase                    phase       = Phase::single;
    uint64_t                 state_index = 0, state_digest = 0;  // newly known; digest 0: none
    std::vector<std::string> usable, diverged;                   // in the order of hosts
    uint64_t                 max_weight = kMaxWeight;            // that a usable message may have
};

// `before`: the commit before the open round. `states`: known digests by index. A step above max_step counts
// only if most members name it.
Verdict judge(
    const Commit &                             before,
    const std::map<std::string, SeenMessage> & arrived,
    std::map<uint64_t, uint64_t>               states,
    uint64_t                                   max_step
);

}  // namespace gt
