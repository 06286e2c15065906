// StorePeers while it waits: for a checkpoint that is removed, and for a user who wants to stop.
#include "comm/rounds/peers-store.h"
#include "comm/rounds/shared-checkpoint.h"
#include "comm/sequencer/retention.h"
#include "comm/sequencer/sequencer.h"
#include "tests/catch.h"
#include "tests/comm/sim/sim-stores.h"
#include "tests/fake/store-memory.h"
#include "tests/scratch.h"

#include <atomic>
#include <semaphore>
#include <thread>

using namespace gt;

namespace {

Time now() {
    return std::chrono::steady_clock::now();
}

StorePeersOptions options_of(const std::string & host) {
    StorePeersOptions options;
    options.host    = host;
    options.poll    = Millis(20);
    options.give_up = Millis(20'000);
    options.drain   = Millis(1'000);
    return options;
}

// Puts pieces of checkpoints only after `opened`.
class SlowStore : public sim::ForwardingStore {
public:
    using ForwardingStore::ForwardingStore;

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override {
        const bool is_piece = key.find("/part/") != key.npos;
        if (is_piece) {
            n_waiting++;
            opened.acquire();
        }
        const bool won = ForwardingStore::put(key, value, if_absent);
        n_put += is_piece ? 1 : 0;
        return won;
    }

    std::counting_semaphore<> opened{0};
    std::atomic<int>          n_waiting{0}, n_put{0};
};

}  // namespace

TEST_CASE("a_host_that_is_stopped_while_it_waits_saves_its_place_and_leaves", "[net][rounds]") {
    const RunKeys    keys  = keys_from_secret(Key32{1});
    const auto       store = make_memory_store();
    const RunPaths   paths(keys.run);
    SequencerOptions order;
    order.presence_poll        = Millis(0);
    order.membership.min_hosts = 2;
    Sequencer sequencer(*store, keys, order);
    bool      is_asked = true;
    {  // before the run has begun: it leaves no hello that counts
        StorePeersOptions options = options_of("anna");
        options.stop              = [&] { return is_asked; };
        StorePeers        peers(*store, keys, options);
        const std::string error = error_of([&] { (void) peers.join({}, true); });
        CHECK(error.find("stopped while waiting to join the run") != std::string::npos);
    }
    Presence(*store, keys, "ben", false).announce(nullptr);
    CHECK_FALSE(sequencer.poll(now()));
    Presence(*store, keys, "carl", false).announce(nullptr);
    CHECK(sequencer.poll(now()));

    // in a round that does not close: the message stays in flight
    is_asked                  = false;
    StorePeersOptions options = options_of("dora");
    options.stop              = [&] { return is_asked; };
    StorePeers peers(*store, keys, options);
    (void) peers.join({}, true);
    store->put(paths.leave("ben", 1), make_record(keys, {Kind::presence, 1, "ben", 1}, {}));
    store->put(paths.leave("carl", 1), make_record(keys, {Kind::presence, 1, "carl", 1}, {}));
    CHECK_FALSE(peers.missed(false));
    REQUIRE(sequencer.poll(now()));
    is_asked = true;  // rounds to replay: it stops before the next one
    CHECK(peers.missed(true).value().is_stopped);
    is_asked = false;
    REQUIRE(peers.missed(true));  // the empty round that admits it
    peers.publish(0, 1, Bytes(10));
    is_asked = true;
    CHECK(peers.collect(0).is_stopped);
    StorePeers   next(*store, keys, options_of("dora"));
    const Joined joined = next.join(peers.mark(), false);
    CHECK(joined.in_flight == std::vector<uint64_t>{0});
}

TEST_CASE("a_joining_host_notices_that_its_checkpoint_is_removed", "[net][rounds]") {
    const RunKeys    keys  = keys_from_secret(Key32{2});
    const auto       store = make_memory_store();
    const RunPaths   paths(keys.run);
    SequencerOptions order;
    order.presence_poll = Millis(0);
    Sequencer sequencer(*store, keys, order);
    Presence  anna(*store, keys, "anna", false);
    anna.announce(nullptr);
    REQUIRE(sequencer.poll(now()));  // orders the first checkpoint
    SliceWriter writer(*store, keys, {0, 0, "anna", 1}, 7, Bytes(100));
    while (writer.step()) {
    }
    anna.leave();
    Presence(*store, keys, "ben", false).announce(nullptr);
    REQUIRE(sequencer.poll(now()));  // lists it
    StorePeersOptions options = options_of("carl");
    options.slice_timeout     = Millis(1'000);
    StorePeers   peers(*store, keys, options);
    const Joined joined = peers.join({}, false);
    REQUIRE(joined.n_slices == 1);
    CHECK(joined.state_digest == 7);
    CHECK(peers.slice(0) == Bytes(100));
    for (const std::string & key : store->list(paths.parts(0))) {
        store->remove(key);
    }
    const Time from = now();
    CHECK_FALSE(peers.slice(0));  // can't be read
    CHECK(now() - from > Millis(900));
    store->put(paths.floor(1), make_record(keys, {Kind::floor, 1, "sequencer", 0}, {}));
    CHECK_FALSE(peers.slice(0));  // removed
    CHECK(now() - from < Millis(10'000));
}

TEST_CASE("late_pieces_of_a_checkpoint_do_not_stay_in_the_store", "[net][rounds]") {
    const RunKeys    keys   = keys_from_secret(Key32{3});
    const auto       memory = make_memory_store();
    const RunPaths   paths(keys.run);
    SequencerOptions order;
    order.presence_poll        = Millis(0);
    order.membership.min_hosts = 2;
    Sequencer  sequencer(*memory, keys, order);
    const auto until = [](const auto & is_done) {
        for (const Time end = now() + Millis(20'000); !is_done();) {
            REQUIRE(now() < end);
            std::this_thread::sleep_for(Millis(5));
        }
    };
    const auto commit = [&] { until([&] { return sequencer.poll(now()); }); };
    Presence   ben(*memory, keys, "ben", false);
    ben.announce(nullptr);
    SlowStore    store(*memory);
    StorePeers   anna(store, keys, options_of("anna"));
    std::thread  run(commit);
    const Joined joined = anna.join({}, true);
    run.join();
    REQUIRE(joined.write.ours.size() == 1);
    anna.applied(
        {.step = joined.step - 1, .state_digest = 7, .slices = {{joined.write.ours[0], Bytes(100)}}}
    );
    until([&] { return store.n_waiting == 1; });

    ben.leave();  // without its slice: another checkpoint is ordered
    Collected round;
    uint64_t  step = 0;
    for (; round.slices.n_slices == 0; ++step) {
        anna.publish(step, 1, Bytes(10));
        commit();
        round = anna.collect(step);
        Applied applied{.step = step, .state_digest = 8 + step};
        for (const int slice : round.slices.ours) {
            applied.slices.push_back({slice, Bytes(100)});
        }
        anna.applied(std::move(applied));
    }
    store.opened.release(100);
    CHECK(round.slices.ours == std::vector<int>{0});
    until([&] { return store.n_put >= 2; });
    until([&] {  // the sequencer removes them
        anna.publish(step, 1, Bytes(10));
        commit();
        round = anna.collect(step);
        anna.applied({.step = step, .state_digest = 8 + step});
        ++step;
        return memory->list(paths.parts(0)).empty();
    });
}

TEST_CASE("a_host_without_any_checkpoint_to_load_says_so", "[net][rounds]") {
    const RunKeys    keys  = keys_from_secret(Key32{4});
    const auto       store = make_memory_store();
    SequencerOptions order;
    order.presence_poll = Millis(0);
    Sequencer sequencer(*store, keys, order);
    Presence  anna(*store, keys, "anna", false);
    anna.announce(nullptr);
    REQUIRE(sequencer.poll(now()));  // orders the first checkpoint, which is never written
    StorePeersOptions options = options_of("ben");
    options.give_up           = Millis(300);
    StorePeers        ben(*store, keys, options);
    const std::string error = error_of([&] { (void) ben.join({}, false); });
    CHECK(error.find("for a shared checkpoint that can be loaded") != std::string::npos);
    CHECK(error.find("hub --new") != std::string::npos);
}
