// tests/comm/membership-play.h — hosts that talk to a Membership, at times that a test chooses.
#pragma once

#include "comm/sequencer/membership.h"
#include "tests/catch.h"

namespace gt {

// A run as the state machine sees it; time is a number of milliseconds.
struct Play {
    Membership membership;
    Time       zero{std::chrono::hours(1)};
    int64_t    ms      = 0;
    int        n_heads = 0;
    uint64_t   weight = 8, size = 0;  // of the next messages

    explicit Play(const MembershipOptions & options = {}) : membership(options) {}

    Time now() const { return zero + Millis(ms); }
    void hello(const std::string & host, uint64_t incarnation = 1) {
        membership.hello(host, incarnation, now());
    }
    void sends(
        const std::string & host,
        uint64_t            step,
        uint64_t            state       = 0,
        uint64_t            incarnation = 1,
        Phase               phase       = Phase::single
    ) {
        SeenMessage seen;
        seen.host              = host;
        seen.incarnation       = incarnation;
        seen.head.step         = step;
        seen.head.phase        = phase;
        seen.head.weight       = weight;
        seen.size              = size;
        seen.head.state_index  = membership.open_index() - 1;
        seen.head.state_digest = state;
        seen.head.base_index   = membership.open_index() - 1;
        seen.head.base         = membership.head_digest();
        membership.message(seen, now());
    }
    std::optional<Commit> close() {
        auto commit = membership.close(now());
        if (commit) {
            membership.advance(*commit, Key32{uint8_t(++n_heads)}, now());
        }
        return commit;
    }
    // All `hosts` send after 100 ms.
    Commit round(const std::vector<std::string> & hosts, uint64_t step) {
        ms += 100;
        for (const std::string & host : hosts) {
            sends(host, step);
        }
        auto commit = close();
        REQUIRE(commit);
        return *commit;
    }
};

inline std::vector<std::string> listed(const Commit & commit) {
    std::vector<std::string> hosts;
    for (const CommitMessage & message : commit.messages) {
        hosts.push_back(message.host);
    }
    return hosts;
}

using Names = std::vector<std::string>;

}  // namespace gt
