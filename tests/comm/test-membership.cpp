#include "comm/sequencer/membership.h"
#include "tests/catch.h"

using namespace gt;

namespace {

// A run as the state machine sees it; time is a number of milliseconds.
struct Play {
    Membership membership;
    Time       zero{std::chrono::hours(1)};
    int64_t    ms      = 0;
    int        n_heads = 0;

    explicit Play(const MembershipOptions & options = {}) : membership(options) {}

    Time now() const { return zero + Millis(ms); }
    void hello(const std::string & host, uint64_t incarnation = 1) {
        membership.hello(host, incarnation, now());
    }
    void
    sends(const std::string & host, uint64_t step, uint64_t state = 0, uint64_t incarnation = 1) {
        SeenMessage seen;
        seen.host              = host;
        seen.incarnation       = incarnation;
        seen.head.step         = step;
        seen.head.weight       = 8;
        seen.head.state_index  = membership.open_index() - 1;
        seen.head.state_digest = state;
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

std::vector<std::string> listed(const Commit & commit) {
    std::vector<std::string> hosts;
    for (const CommitMessage & message : commit.messages) {
        hosts.push_back(message.host);
    }
    return hosts;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a_new_sequencer_knows_the_pace_of_earlier_rounds", "[membership]") {
    Play before;
    before.hello("anna");
    before.hello("ben");
    std::vector<Commit> chain = {*before.close()};
    for (uint64_t step = 0; step < 3; ++step) {
        before.ms += 900;
        chain.push_back(before.round({"anna", "ben"}, step));
    }
    Play after;
    for (const Commit & commit : chain) {
        after.membership.advance(commit, Key32{1}, after.now());
    }
    CHECK(after.membership.deadline() == before.membership.deadline());
    CHECK(after.membership.deadline() == Millis(1500));
}

TEST_CASE("a_run_begins_with_enough_hosts", "[membership]") {
    Play play({.min_hosts = 2});
    play.hello("ben");
    CHECK_FALSE(play.close());
    play.hello("anna");
    const auto commit = play.close();
    REQUIRE(commit);
    CHECK(commit->index == 0);
    CHECK(commit->step == kNone);
    CHECK(commit->hosts[0].name == "anna");
    CHECK(commit->writers == Names{"anna", "ben"});  // the initial state is the first checkpoint
}

TEST_CASE("a_round_closes_when_all_have_sent_or_at_the_deadline", "[membership]") {
    Play play({.min_hosts = 3, .first_deadline = Millis(1000), .min_deadline = Millis(50)});
    for (const char * host : {"anna", "ben", "carl"}) {
        play.hello(host);
    }
    REQUIRE(play.close());
    CHECK(listed(play.round({"carl", "anna", "ben"}, 0)) == Names{"anna", "ben", "carl"});
    CHECK(play.membership.deadline() == Millis(150));  // 1.5 times the median

    play.ms += 100;
    play.sends("anna", 1);
    play.sends("ben", 1);
    CHECK_FALSE(play.close());
    play.ms += 50;
    const auto commit = play.close();
    REQUIRE(commit);
    CHECK(listed(*commit) == Names{"anna", "ben"});
    CHECK(commit->find("carl")->member);
    CHECK(commit->find("carl")->last_listed == 1);

    play.ms += 1000;  // one of three is no quorum, however late it is
    play.sends("anna", 2);
    CHECK_FALSE(play.close());
}

TEST_CASE("a_host_that_is_always_late_is_not_awaited", "[membership]") {
    Play play({.min_hosts = 3, .first_deadline = Millis(100)});
    for (const char * host : {"anna", "ben", "slow"}) {
        play.hello(host);
    }
    REQUIRE(play.close());
    for (uint64_t step = 0; step < 3; ++step) {
        play.ms += 100;
        play.sends("anna", step);
        play.sends("ben", step);
        play.ms += 600;
        REQUIRE(play.close());
    }
    play.ms += 100;
    play.sends("anna", 3);
    play.sends("ben", 3);
    CHECK(play.close());  // at once
    play.sends("slow", 4);
    CHECK(listed(play.round({"anna", "ben"}, 4)) == Names{"anna", "ben", "slow"});
}

TEST_CASE("a_silent_host_is_removed_and_the_run_continues", "[membership]") {
    Play play({.min_hosts = 2, .first_deadline = Millis(100), .gone_after = Millis(10'000)});
    play.hello("anna");
    play.hello("ben");
    REQUIRE(play.close());
    play.round({"anna", "ben"}, 0);
    play.ms += 700;
    play.sends("anna", 1);
    const auto alone = play.close();  // half is a quorum
    REQUIRE(alone);
    CHECK(alone->find("ben")->member);
    play.ms += 10'001;
    play.sends("anna", 2);
    const auto commit = play.close();
    REQUIRE(commit);
    CHECK_FALSE(commit->find("ben")->member);
    play.hello("ben", 2);  // it returns with a new incarnation
    CHECK(play.round({"anna"}, 3).find("ben")->incarnation == 2);
    play.sends("ben", 4, 0, 1);  // a message of the previous incarnation is ignored
    play.ms += 700;
    play.sends("anna", 4);
    CHECK(listed(*play.close()) == Names{"anna"});
}

TEST_CASE("a_single_host_that_returns_is_admitted_by_an_empty_round", "[membership]") {
    Play play;
    play.hello("anna");
    REQUIRE(play.close());
    play.round({"anna"}, 0);
    play.hello("anna", 2);
    const auto commit = play.close();
    REQUIRE(commit);
    CHECK(commit->messages.empty());
    CHECK(commit->step == 0);  // unchanged
    CHECK(commit->find("anna")->incarnation == 2);
    CHECK(commit->find("anna")->last_listed == 1);  // tells what the previous incarnation sent
}

TEST_CASE("a_host_that_has_left_is_not_awaited", "[membership]") {
    Play play({.min_hosts = 2});
    play.hello("anna");
    play.hello("ben");
    REQUIRE(play.close());
    play.round({"anna", "ben"}, 0);
    play.membership.leave("ben", 1);
    const Commit commit = play.round({"anna"}, 1);
    CHECK_FALSE(commit.find("ben")->member);
    CHECK_FALSE(play.membership.close(play.now()));
}

TEST_CASE("the_state_of_the_majority_is_correct", "[membership]") {
    Play play({.min_hosts = 3});
    for (const char * host : {"anna", "ben", "carl"}) {
        play.hello(host);
    }
    REQUIRE(play.close());
    play.sends("anna", 0, 111);
    play.sends("ben", 0, 222);
    play.sends("carl", 0, 222);
    const auto commit = play.close();
    REQUIRE(commit);
    CHECK(commit->diverged == Names{"anna"});
    CHECK(listed(*commit) == Names{"ben", "carl"});
    CHECK(commit->state_digest == 222);
}

TEST_CASE("messages_of_a_round_belong_to_one_step", "[membership]") {
    Play play({.min_hosts = 3});
    for (const char * host : {"anna", "ben", "carl"}) {
        play.hello(host);
    }
    REQUIRE(play.close());
    play.sends("anna", 5);
    play.sends("ben", 6);
    play.sends("carl", 6);
    const auto commit = play.close();
    REQUIRE(commit);
    CHECK(commit->step == 6);
    CHECK(listed(*commit) == Names{"ben", "carl"});
}

TEST_CASE("a_checkpoint_is_complete_when_all_slices_are_there", "[membership]") {
    Play play({.min_hosts = 2, .checkpoint_every = 3});
    play.hello("anna");
    play.hello("ben");
    REQUIRE(play.close());
    play.membership.slice_ready(0, {"anna", 1, 10, 1, {}}, 5);
    CHECK_FALSE(play.round({"anna", "ben"}, 0).complete);
    play.membership.slice_ready(1, {"ben", 1, 10, 1, {}}, 5);
    const Commit commit = play.round({"anna", "ben"}, 1);
    REQUIRE(commit.complete);
    CHECK(commit.complete->index == 0);
    CHECK(commit.complete_at == 2);
    CHECK(play.round({"anna", "ben"}, 2).writers == Names{"anna", "ben"});
    // a slice of a state that is not the majority's never completes it
    play.sends("anna", 3, 77);
    play.sends("ben", 3, 77);
    REQUIRE(play.close());
    play.membership.slice_ready(0, {"anna", 1, 10, 1, {}}, 77);
    play.membership.slice_ready(1, {"ben", 1, 10, 1, {}}, 78);
    CHECK_FALSE(play.round({"anna", "ben"}, 4).complete);
}

TEST_CASE("a_message_sent_before_the_round_opens_does_not_shorten_the_deadline", "[membership]") {
    Play play({.min_hosts = 2, .min_deadline = Millis(10)});
    play.hello("anna");
    play.hello("ben");
    REQUIRE(play.close());
    for (uint64_t step = 0; step < 9; ++step) {
        play.sends("anna", step);  // with overlap: while the round before was still open
        play.round({"ben"}, step);
    }
    CHECK(play.membership.deadline() == Millis(150));
}
