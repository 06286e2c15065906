// comm/verdict.h — which of the messages that arrived may count in a round. A pure function.
//
// Messages of one round belong to the same step and phase. Each tells the digest of the shared
// state its sender had: the majority's is right, and who differs is left out and told so.
#pragma once

#include "comm/commit.h"

#include <map>

namespace gt {

// A message of the open round, as far as the sequencer can read it.
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
    uint8_t                  phase       = 0;
    uint64_t                 state_index = 0, state_digest = 0;  // newly known; digest 0: nothing
    std::vector<std::string> usable, diverged;                   // in the order of hosts
};

// `before`: the commit before the open round. `states`: digests by index that are known already.
Verdict judge(
    const Commit &                             before,
    const std::map<std::string, SeenMessage> & arrived,
    std::map<uint64_t, uint64_t>               states
);

}  // namespace gt
