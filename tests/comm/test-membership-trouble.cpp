// A member that lies, names without a host behind them, and lines that lose packets.
#include "tests/comm/membership-play.h"

using namespace gt;

TEST_CASE("a_member_that_names_the_last_step_ends_nobody", "[membership]") {
    const uint64_t every = GENERATE(1, 30);  // steps per round
    Play           play({.min_hosts = 2, .n_steps = 1000});
    play.hello("anna");
    play.hello("mallory");
    REQUIRE(play.close());
    uint64_t step = every - 1;
    for (int i = 0; i < 3; ++i, step += every) {
        CHECK(listed(play.round({"anna", "mallory"}, step)).size() == 2);
    }
    // both send
    play.ms += 100;
    play.sends("anna", step);
    play.sends("mallory", 999);
    const auto both = play.close();
    REQUIRE(both);
    CHECK(both->step == step);
    CHECK(listed(*both) == Names{"anna"});
    // the honest one is late
    play.ms += 100;
    play.sends("mallory", 999);
    play.ms += 5'000;
    const auto alone = play.close();
    CHECK((!alone || alone->messages.empty()));
    // more than half of the members know better than the rounds before
    CHECK(listed(play.round({"anna", "mallory"}, step + 7 * every)).size() == 2);
}

TEST_CASE("names_that_never_sent_anything_make_room_for_hosts", "[membership]") {
    Play play({.min_hosts = 1, .first_deadline = Millis(100), .gone_after = Millis(10'000)});
    play.hello("anna");
    REQUIRE(play.close());
    play.round({"anna"}, 0);
    for (size_t i = 0; i < 2 * kMaxHosts; ++i) {
        const std::string name = format("invented%04zu", i);
        REQUIRE(play.membership.pin(name, Key32{uint8_t(i)}));
        play.hello(name);
    }
    CHECK(play.round({"anna"}, 1).hosts.size() == kMaxHosts);
    play.ms += 60'000;  // they are silent
    play.round({"anna"}, 2);
    REQUIRE(play.membership.pin("ben", Key32{2}));
    play.hello("ben");
    const Commit commit = play.round({"anna"}, 3);
    CHECK(commit.hosts.size() <= kMaxHosts);
    REQUIRE(commit.find("ben"));
    CHECK(commit.find("ben")->member);
    CHECK(commit.find("ben")->key == Key32{2});
    CHECK(commit.find("anna")->last_listed == commit.index);
}

TEST_CASE("the_deadline_allows_for_the_spread_that_was_measured", "[membership]") {
    Play play({.min_hosts = 4, .first_deadline = Millis(60'000)});
    for (const char * host : {"anna", "ben", "carl", "dora"}) {
        play.hello(host);
    }
    REQUIRE(play.close());
    const std::vector<std::string> hosts = {"anna", "ben", "carl", "dora"};
    for (uint64_t step = 0; step < 8; ++step) {
        for (const Phase phase : {Phase::inputs, Phase::outputs}) {
            play.ms += 10'000;
            for (size_t i = 0; i < 4; ++i) {  // on a line with loss another one is late each time
                play.ms += i == 3 ? 4'000 : 0;
                play.sends(hosts[(i + step) % 4], step, 0, 1, phase);
            }
            REQUIRE(play.close());
        }
    }
    for (const Phase phase : {Phase::inputs, Phase::outputs}) {
        CHECK(play.membership.deadline(phase) > Millis(15'000));
        CHECK(play.membership.deadline(phase) < Millis(20'000));
    }
}
