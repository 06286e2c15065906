// StorePeers that collect rounds in the background, while the caller computes.
#include "comm/rounds/peers-store.h"
#include "comm/sequencer/sequencer-thread.h"
#include "tests/catch.h"
#include "tests/fake/dense-floats.h"
#include "tests/fake/store-memory.h"

#include <array>
#include <cstring>
#include <thread>

using namespace gt;

namespace {

constexpr int    kHosts  = 3;
constexpr int    kFloats = 24;
constexpr Millis kLong{20'000};

bool becomes(const std::function<bool()> & condition) {
    const Time end = std::chrono::steady_clock::now() + kLong;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) {
            return false;
        }
        std::this_thread::sleep_for(Millis(5));
    }
    return true;
}

// Three hosts that have joined, on one thread: nothing that they call waits for another of them.
struct Pair {
    explicit Pair(bool is_dense) : is_dense(is_dense), sequencer(*store, keys, order(), Millis(2)) {
        std::array<std::thread, kHosts> threads;
        for (int i = 0; i < kHosts; ++i) {
            start(i);
            threads[i] = std::thread([this, i] { (void) peers[i]->join({}, true); });
        }
        for (std::thread & thread : threads) {
            thread.join();
        }
        for (auto & peer : peers) {
            CHECK_FALSE(peer->missed(true));
        }
    }

    static SequencerOptions order() {
        SequencerOptions order;
        order.membership.min_hosts      = kHosts;
        order.membership.first_deadline = kLong;
        order.membership.gone_after     = kLong;
        return order;
    }
    void start(int i) {
        StorePeersOptions options;
        options.host    = format("host%d", i);
        options.poll    = Millis(20);
        options.give_up = kLong;
        options.drain   = Millis(4000);
        options.ahead   = true;
        if (is_dense) {
            options.shards = make_float_codec(6);
        }
        peers[i] = std::make_unique<StorePeers>(*store, keys, options);
    }
    void publish(uint64_t step) {
        for (int i = 0; i < kHosts; ++i) {
            Bytes message(kFloats * 4);
            for (int at = 0; at < kFloats; ++at) {
                const float value = static_cast<float>(i + at) + static_cast<float>(step);
                std::memcpy(&message[4 * at], &value, 4);
            }
            peers[i]->publish(step, 1, std::move(message));
        }
    }
    uint64_t newest() const { return CommitLog(*store, keys).load().back().commit.index; }
    uint64_t commits_of_round() const { return is_dense ? 2 : 1; }

    bool                                            is_dense;
    RunKeys                                         keys  = keys_from_secret(Key32{7});
    std::unique_ptr<Store>                          store = make_memory_store();
    SequencerThread                                 sequencer;
    std::array<std::unique_ptr<StorePeers>, kHosts> peers;
};

void check_round(const Collected & collected, uint64_t step, const std::vector<Message> & want) {
    CHECK(collected.fault == Fault::none);
    CHECK_FALSE(collected.is_stopped);
    CHECK_FALSE(collected.drop_residual);
    CHECK(collected.round.step == step);
    CHECK(collected.round.has_mine);
    REQUIRE(collected.round.messages.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) {
        CHECK(collected.round.messages[i].bytes == want[i].bytes);
    }
}

}  // namespace

TEST_CASE("an_exchange_travels_to_its_end_while_the_callers_compute", "[net][rounds]") {
    const bool is_dense = GENERATE(false, true);
    Pair       hosts(is_dense);
    for (uint64_t step = 4; step < 20; step += 5) {
        const uint64_t before = hosts.newest();
        hosts.publish(step);
        REQUIRE(becomes([&] { return hosts.newest() == before + hosts.commits_of_round(); }));
        for (auto & peer : hosts.peers) {
            CHECK_FALSE(peer->missed(false));  // its round is collected, not missed
        }
        const Collected first = hosts.peers[0]->collect(step);
        CHECK(first.round.messages.size() == (is_dense ? 6 : kHosts));
        check_round(first, step, first.round.messages);
        for (int i = 1; i < kHosts; ++i) {
            check_round(hosts.peers[i]->collect(step), step, first.round.messages);
        }
    }
}

// A host stops at once after it has published, or when the exchange is over, but before its round is
// applied. The mark of that time leads to the same round, and what the host has not sent stays its own.
TEST_CASE("a_host_that_stops_while_its_round_travels_finds_it_again", "[net][rounds]") {
    const bool is_dense = GENERATE(false, true), at_once = GENERATE(false, true);
    INFO("dense " << is_dense << ", at once " << at_once);
    Pair           hosts(is_dense);
    const uint64_t before = hosts.newest();
    hosts.publish(4);
    const auto is_over = [&] { return hosts.newest() >= before + hosts.commits_of_round(); };
    if (!at_once) {
        REQUIRE(becomes(is_over));
    }
    const Bytes mark = hosts.peers[2]->mark();
    hosts.peers[2].reset();
    REQUIRE(becomes(is_over));
    const Collected first = hosts.peers[0]->collect(4);
    check_round(hosts.peers[1]->collect(4), 4, first.round.messages);

    hosts.start(2);
    const Joined joined = hosts.peers[2]->join(mark, false);
    CHECK(joined.n_slices == 0);
    REQUIRE(joined.in_flight == std::vector<uint64_t>{4});
    Collected again;
    do {
        again = hosts.peers[2]->collect(4);  // after commits without messages
    } while (again.round.messages.empty());
    check_round(again, 4, first.round.messages);

    // its next message counts
    hosts.peers[0]->applied({.step = 4, .state_digest = 1});
    for (int i = 0; i < 2; ++i) {
        CHECK_FALSE(hosts.peers[i]->missed(false));
    }
    hosts.publish(9);
    Collected last;
    do {
        last = hosts.peers[2]->collect(9);
        CHECK_FALSE(last.drop_residual);
    } while (last.round.messages.empty());
    CHECK(last.round.step == 9);
}
