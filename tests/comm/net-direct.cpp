// Direct delivery: copies, held records and fallbacks. Servers are memory stores here; net-rounds.cpp
// and matrix.py run real ones.
#include "comm/rounds/butterfly.h"
#include "comm/rounds/store-direct.h"
#include "comm/sequencer/sequencer.h"
#include "comm/wire/held-copy.h"
#include "comm/wire/wire.h"
#include "tests/catch.h"
#include "tests/comm/sim/sim-stores.h"
#include "tests/fake/store-memory.h"

#include <atomic>

using namespace gt;

namespace {

// A server of which several have a client; it can be cut off.
class Served : public Store {
public:
    explicit Served(Store & inner, const bool & is_cut) : inner_(inner), is_cut_(is_cut) {}

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override {
        return reach().put(key, value, if_absent);
    }
    std::optional<Bytes> get(const std::string & key, std::chrono::milliseconds wait) override {
        return reach().get(key, std::min(wait, Millis(50)));
    }
    std::vector<std::string> list(const std::string & prefix) override {
        return reach().list(prefix);
    }
    void remove(const std::string & key) override { reach().remove(key); }

private:
    Store & reach() {
        if (is_cut_) {
            throw StoreError("cut off");
        }
        return inner_;
    }
    Store &      inner_;
    const bool & is_cut_;
};

constexpr Millis kHeldTimeout(1500);  // for a held record

// A server with a limit that every message exceeds.
class Refusing : public sim::ForwardingStore {
public:
    using ForwardingStore::ForwardingStore;
    bool put(const std::string &, std::span<const uint8_t>, bool) override {
        ++n_refused;
        throw Error("larger than the limit");
    }
    std::atomic<int> n_refused{0};
};

// anna and ben serve; both are members after the first commit.
struct Play {
    RunKeys                keys = keys_from_secret(Key32{3});
    RunPaths               paths{keys.run};
    std::unique_ptr<Store> hub = make_memory_store(), at_anna = make_memory_store(),
                           at_ben = make_memory_store();
    bool      is_cut              = false;  // anna's server
    Sequencer sequencer;

    Play() : sequencer(*hub, keys, {.direct = true, .membership = {.min_hosts = 2}}) {
        for (const char * name : {"anna", "ben"}) {
            hub->put(paths.hello(name, 1), make_record(keys, {Kind::presence, 0, name, 1}, {}));
        }
        REQUIRE(poll());
    }

    bool poll() { return sequencer.poll(std::chrono::steady_clock::now()); }

    Bytes
    message(const MessageId & id, Phase phase = Phase::single, const Bytes & body = Bytes(40)) {
        MessageHead head;
        head.phase        = phase;
        head.base_index   = 1'000;  // a commit that the sequencer does not know
        head.n_body_bytes = static_cast<uint32_t>(body.size());
        return make_message(keys, id, head, body);
    }

    // `name` with its server, knowing the newest commit.
    std::unique_ptr<DirectStore> host(const std::string & name) {
        DirectOptions options{
            .name = name, .keys = keys, .hub = hub.get(), .held_timeout = kHeldTimeout};
        options.own             = name == "anna" ? at_anna.get() : at_ben.get();
        const std::string other = name == "anna" ? "ben" : "anna";
        Store &           there = name == "anna" ? *at_ben : *at_anna;
        options.peers[other]    = std::make_unique<Served>(there, is_cut);
        auto store              = std::make_unique<DirectStore>(std::move(options));
        REQUIRE(store->get(paths.commit(0), {}));
        return store;
    }
};

}  // namespace

TEST_CASE("a_message_counts_only_once_a_second_member_holds_it", "[net][direct]") {
    Play              play;
    const MessageId   id{1, "anna", 1};
    const Bytes       value = play.message(id);
    const std::string key   = play.paths.message({1, "anna", 1});
    play.at_anna->put(key, value);
    play.hub->put(play.paths.message({1, "ben", 1}), play.message({1, "ben", 1}));
    CHECK_FALSE(play.poll());  // only anna has it

    // records that prove nothing: by an unknown host, by anna herself, about another message
    for (const Bytes & word :
         {make_held(play.keys, id, "eve", value), make_held(play.keys, id, "anna", value),
          make_held(play.keys, {1, "ben", 1}, "anna", play.message({1, "ben", 1})),
          make_held(keys_from_secret(Key32{4}), id, "ben", value)}) {
        play.hub->put(play.paths.held(id), word);
        CHECK_FALSE(play.poll());
    }
    play.hub->remove(play.paths.held(id));
    {
        const auto ben = play.host("ben");
        for (int i = 0; i < 200 && !play.hub->get(play.paths.held(id)); ++i) {
            std::this_thread::sleep_for(Millis(10));
        }
    }
    CHECK(play.at_ben->get(key) == value);
    CHECK_FALSE(play.hub->get(key));
    REQUIRE(play.poll());
    const CommitMessage * listed = play.sequencer.head()->message_of("anna");
    REQUIRE(listed);
    CHECK(listed->where == "ben");
    CHECK(listed->digest == digest256(value));
    CHECK(play.sequencer.head()->message_of("ben")->where == "");
}

TEST_CASE("a_message_is_found_at_its_sender_or_at_its_holder", "[net][direct]") {
    Play            play;
    const MessageId id{1, "anna", 1};
    const Bytes     value = play.message(id);
    const auto      key   = play.paths.message({1, "anna", 1});
    play.at_anna->put(key, value);
    DirectOptions options{
        .name = "cleo", .keys = play.keys, .hub = play.hub.get()};  // serves nothing
    const bool never      = false;
    options.peers["anna"] = std::make_unique<Served>(*play.at_anna, play.is_cut);
    options.peers["ben"]  = std::make_unique<Served>(*play.at_ben, never);
    DirectStore cleo(std::move(options));
    CHECK(cleo.get(key, {}) == value);
    play.is_cut = true;
    CHECK_FALSE(cleo.get(key, {}));
    play.at_ben->put(key, value);
    play.hub->put(play.paths.held(id), make_held(play.keys, id, "ben", value));
    CHECK(cleo.get(key, {}) == value);
    play.at_ben->put(key, Bytes(100));  // damaged there, put again at the hub by its holder
    CHECK_FALSE(cleo.get(key, {}));
    play.hub->put(key, value);
    CHECK(cleo.get(key, {}) == value);
}

TEST_CASE("an_unreachable_host_delivers_through_the_hub", "[net][direct]") {
    Play       play;
    const auto anna  = play.host("anna");
    const auto shard = play.paths.shard({1, "anna", 1}, 0);
    for (uint64_t index : {1, 2}) {  // the second one at once
        const auto  begin = std::chrono::steady_clock::now();
        const auto  key   = play.paths.message({index, "anna", 1});
        const Bytes value = play.message({index, "anna", 1}, Phase::inputs);
        if (index == 1) {
            anna->put(shard, Bytes(10), false);
            CHECK_FALSE(play.hub->get(shard));
        }
        anna->put(key, value, false);
        CHECK(play.hub->get(key) == value);
        const auto took = std::chrono::steady_clock::now() - begin;
        CHECK((index == 1 ? took >= kHeldTimeout : took < kHeldTimeout));
    }
    CHECK(play.hub->get(shard) == Bytes(10));
}

TEST_CASE("a_holder_of_outputs_holds_their_shards_too", "[net][direct]") {
    Play            play;
    const MessageId id{1, "anna", 1};
    WireWriter      body;
    body.u64(7);  // index of the inputs
    body.u16(8);
    body.u16(1);
    body.u16(5);
    body.u64(10);
    body.raw(Key32{});
    const auto shard = play.paths.shard({7, "anna", 1}, 8 + 5);
    CHECK(output_keys(play.paths, id, body.bytes()) == std::vector<std::string>{shard});
    play.at_anna->put(
        play.paths.message({1, "anna", 1}), play.message(id, Phase::outputs, body.bytes())
    );
    const auto ben = play.host("ben");
    std::this_thread::sleep_for(Millis(200));
    CHECK_FALSE(play.hub->get(play.paths.held(id)));
    play.at_anna->put(shard, Bytes(10));
    for (int i = 0; i < 300 && !play.hub->get(play.paths.held(id)); ++i) {
        std::this_thread::sleep_for(Millis(10));
    }
    CHECK(play.hub->get(play.paths.held(id)));
    CHECK(play.at_ben->get(shard) == Bytes(10));
}

TEST_CASE("a_message_that_our_server_refuses_does_not_end_the_process", "[net][direct]") {
    Play     play;
    Refusing own(*play.at_ben);
    play.at_anna->put(play.paths.message({1, "anna", 1}), play.message({1, "anna", 1}));
    DirectOptions options{.name = "ben", .keys = play.keys, .hub = play.hub.get(), .own = &own};
    options.peers["anna"] = std::make_unique<Served>(*play.at_anna, play.is_cut);
    DirectStore ben(std::move(options));
    REQUIRE(ben.get(play.paths.commit(0), {}));
    for (int i = 0; i < 500 && own.n_refused < 2; ++i) {
        std::this_thread::sleep_for(Millis(10));
    }
    CHECK(own.n_refused >= 2);
    CHECK_FALSE(play.hub->get(play.paths.held(MessageId{1, "anna", 1})));
}
