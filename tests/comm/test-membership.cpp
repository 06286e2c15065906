#include "tests/comm/membership-play.h"

using namespace gt;

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
    CHECK(after.membership.deadline(Phase::single) == before.membership.deadline(Phase::single));
    CHECK(after.membership.deadline(Phase::single) == Millis(1500));
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
    CHECK(play.membership.deadline(Phase::single) == Millis(150));  // 1.5 times the median

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
    CHECK(play.membership.deadline(Phase::single) == Millis(150));
}

TEST_CASE("hosts_that_all_compute_less_do_not_shorten_the_deadline", "[membership]") {
    Play play({.min_hosts = 2, .min_deadline = Millis(10)});
    play.hello("anna");
    play.hello("ben");
    REQUIRE(play.close());
    uint64_t step = 0;
    for (; step < 8; ++step) {
        play.ms += 700;
        play.round({"anna", "ben"}, step);  // 8 samples in 800 ms
    }
    CHECK(play.membership.deadline(Phase::single) == Millis(1200));
    play.weight = 2;
    for (; step < 16; ++step) {
        play.ms += 100;
        play.round({"anna", "ben"}, step);  // 2 samples in 200 ms
    }
    CHECK(play.membership.deadline(Phase::single) == Millis(1200));
}

TEST_CASE("a_long_phase_does_not_inherit_the_deadline_of_a_short_one", "[membership]") {
    const int64_t local_ms = GENERATE(50'000, 100'000, 900'000);
    const int64_t lag_ms   = local_ms / 50;
    Play          play({.min_hosts = 2});
    play.hello("anna");
    play.hello("ben");
    REQUIRE(play.close());
    for (uint64_t step = 29; step < 20 * 30; step += 30) {
        INFO("step " << step);
        play.ms += local_ms;
        play.sends("anna", step, 0, 1, Phase::inputs);
        REQUIRE_FALSE(play.close());
        play.ms += lag_ms;
        play.sends("ben", step, 0, 1, Phase::inputs);
        const auto inputs = play.close();
        REQUIRE(inputs);
        CHECK(listed(*inputs) == Names{"anna", "ben"});
        play.ms += 5'000;
        play.sends("anna", step, 0, 1, Phase::outputs);
        play.sends("ben", step, 0, 1, Phase::outputs);
        const auto outputs = play.close();
        REQUIRE(outputs);
        CHECK(outputs->find("ben")->incarnation == 1);
        CHECK(outputs->find("ben")->member);
        CHECK((step < 60 || outputs->pace_ms >= local_ms));  // that of the local steps
    }
    CHECK(play.membership.deadline(Phase::outputs) == Millis(7'500));
    // a new sequencer knows both
    Play next;
    next.membership.advance(*play.membership.head(), Key32{1}, next.now());
    CHECK(next.membership.deadline(Phase::outputs) == Millis(7'500));
    CHECK(next.membership.deadline(Phase::inputs) == play.membership.deadline(Phase::inputs));
}

TEST_CASE("the_first_inputs_do_not_set_the_deadline_of_those_after_outputs", "[membership]") {
    Play play({.min_hosts = 2});
    play.hello("anna");
    play.hello("ben");
    REQUIRE(play.close());
    const auto phase = [&](uint64_t step, Phase which, int64_t first_ms, int64_t lag_ms) {
        play.ms += first_ms;
        play.sends("anna", step, 0, 1, which);
        REQUIRE_FALSE(play.close());
        play.ms += lag_ms;
        play.sends("ben", step, 0, 1, which);
        REQUIRE(play.close());
    };
    phase(0, Phase::inputs, 25'000, 100);
    phase(0, Phase::outputs, 10'000, 100);
    phase(1, Phase::inputs, 40'000, 5'000);  // with the outputs to fetch
    phase(1, Phase::outputs, 10'000, 100);
    CHECK(play.membership.deadline(Phase::inputs) == Millis(60'000));
}

TEST_CASE("a_host_late_for_the_inputs_is_not_silent_in_the_outputs", "[membership]") {
    Play play({.min_hosts = 3});
    for (const char * host : {"anna", "ben", "carl"}) {
        play.hello(host);
    }
    REQUIRE(play.close());
    for (uint64_t step = 0; step < 3; ++step) {
        const bool is_late = step == 2;
        play.ms += 100'000;
        play.sends("anna", step, 0, 1, Phase::inputs);
        play.sends("ben", step, 0, 1, Phase::inputs);
        if (is_late) {
            play.ms += 50'001;  // at the deadline
        } else {
            play.sends("carl", step, 0, 1, Phase::inputs);
        }
        REQUIRE(play.close());
        play.ms += 5'000;
        play.sends("anna", step, 0, 1, Phase::outputs);
        play.sends("ben", step, 0, 1, Phase::outputs);
        play.sends("carl", step, 0, 1, Phase::outputs);
        const auto outputs = play.close();
        REQUIRE(outputs);
        CHECK(outputs->find("carl")->member);
    }
}

TEST_CASE("who_left_before_it_was_admitted_is_no_newcomer", "[membership]") {
    Play play;
    play.hello("anna");
    REQUIRE(play.close());
    play.hello("cleo");
    play.membership.leave("cleo", 1);
    play.round({"anna"}, 0);
    play.membership.leave("anna", 1);
    CHECK_FALSE(play.close());  // it would be an empty commit, every time
}

TEST_CASE("a_full_table_of_hosts_admits_nobody_and_writes_nothing", "[membership]") {
    Play play;
    for (size_t i = 0; i < kMaxHosts + 5; ++i) {
        play.hello(format("host%04zu", i));
    }
    const auto first = play.close();
    REQUIRE(first);
    CHECK(first->hosts.size() == kMaxHosts);
    for (size_t i = 0; i < kMaxHosts; ++i) {
        play.membership.leave(format("host%04zu", i), 1);
    }
    CHECK_FALSE(play.close());
}

TEST_CASE("a_weight_counts_up_to_four_times_the_median", "[membership]") {
    Play play({.min_hosts = 3});
    for (const char * host : {"anna", "ben", "carl"}) {
        play.hello(host);
    }
    REQUIRE(play.close());
    play.sends("anna", 0);
    play.sends("ben", 0);
    play.weight = kMaxWeight;
    play.sends("carl", 0);
    const auto commit = play.close();
    REQUIRE(commit);
    CHECK(commit->message_of("anna")->weight == 8);
    CHECK(commit->message_of("carl")->weight == 32);
    play.membership.leave("ben", 1);  // of two hosts, both may be right
    play.weight = 8;
    play.sends("anna", 1);
    play.weight = 256;
    play.sends("carl", 1);
    CHECK(play.close()->message_of("carl")->weight == 256);
}

TEST_CASE("a_writer_that_differs_from_the_majority_completes_no_checkpoint", "[membership]") {
    Play play({.min_hosts = 3, .first_deadline = Millis(1000), .checkpoint_every = 1});
    for (const char * host : {"anna", "ben", "carl"}) {
        play.hello(host);
    }
    REQUIRE(play.close());
    for (size_t i = 0; i < 3; ++i) {
        play.membership.slice_ready(i, {"x", 1, 10, 1, {}}, 5);
    }
    play.round({"anna", "ben", "carl"}, 0);  // lists that one, and orders the next
    play.membership.slice_ready(0, {"anna", 1, 10, 1, {}}, 111);
    play.sends("anna", 1, 111);
    play.sends("ben", 1, 222);
    play.sends("carl", 1, 222);
    play.membership.slice_ready(1, {"ben", 1, 10, 1, {}}, 111);
    play.membership.slice_ready(2, {"carl", 1, 10, 1, {}}, 111);  // before the majority is known
    const auto commit = play.close();
    REQUIRE(commit);
    CHECK(commit->diverged == Names{"anna"});
    CHECK_FALSE(commit->complete);
}

TEST_CASE("a_state_of_the_future_is_not_believed", "[membership]") {
    Play play({.min_hosts = 2});
    play.hello("anna");
    play.hello("ben");
    REQUIRE(play.close());
    SeenMessage seen;
    seen.host              = "anna";
    seen.incarnation       = 1;
    seen.head.state_index  = 1000;
    seen.head.state_digest = 7;
    play.membership.message(seen, play.now());
    play.sends("ben", 0, 5);
    const auto commit = play.close();
    REQUIRE(commit);
    CHECK(commit->state_index == 0);
    CHECK(commit->state_digest == 5);
}

TEST_CASE("checkpoints_cost_at_most_a_tenth_of_the_messages", "[membership]") {
    Play play({.min_hosts = 2});
    play.hello("anna");
    play.hello("ben");
    REQUIRE(play.close());
    const uint64_t slice = 500'000;
    play.size            = 1'000;
    uint64_t n_orders = 0, n_complete = 0, step = 0;
    for (; step < 20'000; ++step) {
        const auto & order = play.membership.order();
        for (size_t i = 0; order && i < order->slices().size(); ++i) {
            play.membership.slice_ready(i, {order->slices()[i].host, 1, slice, 1, {}}, 0);
        }
        const Commit commit = play.round({"anna", "ben"}, step);
        n_orders += commit.writers.empty() ? 0 : 1;
        n_complete += commit.complete ? 1 : 0;
    }
    const uint64_t messages = 2 * play.size * step;
    CHECK(n_orders * 2 * slice <= messages / 10);
    CHECK((n_orders + 1) * 2 * slice >= messages / 10);
    CHECK(n_complete >= n_orders);

    play.membership.ask(play.membership.head()->index);  // a joining host does not wait for it
    uint64_t waited = 0;
    while (play.round({"anna", "ben"}, step++).writers.empty()) {
        ++waited;
    }
    CHECK(waited <= 2 * slice / (2 * play.size));
}

TEST_CASE("a_slow_writer_is_waited_for_and_a_stuck_one_is_left_out", "[membership]") {
    Play play({.min_hosts = 2, .checkpoint_every = 10});
    play.hello("anna");
    play.hello("ben");
    REQUIRE(play.close());
    play.membership.slice_ready(0, {"anna", 1, 10, 1, {}}, 0);
    uint64_t step = 0;
    for (; step < 79; ++step) {
        REQUIRE(play.round({"anna", "ben"}, step).writers.empty());
    }
    CHECK(play.round({"anna", "ben"}, step).writers == Names{"anna"});
}

TEST_CASE("rounds_that_no_live_host_can_apply_are_undone", "[membership]") {
    Play play({.min_hosts = 2, .gone_after = Millis(1000)});
    play.hello("anna");
    play.hello("ben");
    REQUIRE(play.close());
    for (uint64_t step = 0; step < 5; ++step) {
        play.round({"anna", "ben"}, step);
    }
    const auto stuck = [&](const char * host, uint64_t newest, uint64_t place) {
        play.membership.stuck(host, newest, place, Key32{uint8_t(place + 1)}, play.now());
    };
    stuck("anna", 5, 2);
    stuck("ben", 4, 3);  // about an older commit
    play.ms += 900;
    CHECK_FALSE(play.close());
    stuck("ben", 5, 3);
    CHECK_FALSE(play.close());
    play.ms += 200;
    const auto commit = play.close();
    REQUIRE(commit);
    CHECK(commit->index == 6);
    CHECK((commit->n_undone == 2 && commit->previous == Key32{4}));
    CHECK(commit->messages.empty());
    CHECK(commit->find("anna")->last_listed == 3);
    CHECK_FALSE(play.close());
    CHECK(play.round({"anna", "ben"}, 5).writers == Names{"anna", "ben"});  // a new checkpoint
}
