// Dense exchanges, whose messages are averaged in shares: time is virtual, store and sequencer are real.
#include "comm/rounds/butterfly.h"
#include "comm/sequencer/sequencer.h"
#include "tests/catch.h"
#include "tests/comm/sim/rounds-sim.h"
#include "tests/fake/dense-floats.h"

using namespace gt;
using namespace gt::sim;

// Butterfly and sequencer with virtual time: local steps of 100 s, a few seconds for the exchange.
TEST_CASE("two_hosts_with_local_steps_of_100_s_keep_both_members", "[rounds][dense]") {
    const RunKeys    keys  = keys_from_secret(Key32{3});
    const auto       store = make_memory_store();
    SequencerOptions order;
    order.membership.min_hosts = 2;
    Sequencer sequencer(*store, keys, order);
    struct One {
        std::unique_ptr<RoundClient> client;
        std::unique_ptr<Butterfly>   butterfly;
        std::optional<Time>          done;
        bool                         has_joined = false, is_waiting = false;
        uint64_t                     step = 0, n_mine = 0;
    };
    std::vector<One> hosts(2);
    const auto       upload = [&](const std::string & key, const Bytes & value, uint64_t) {
        store->put(key, value);
    };
    for (size_t i = 0; i < 2; ++i) {
        const std::string name = i == 0 ? "anna" : "ben";
        hosts[i].client        = std::make_unique<RoundClient>(
            *store, keys, RoundClientOptions{.host = name, .n_fetch = 1}, upload
        );
        hosts[i].butterfly = std::make_unique<Butterfly>(
            *store, keys, *hosts[i].client, name, make_float_codec(4), upload, Millis(1000)
        );
    }
    Time now{std::chrono::hours(1)};
    for (; std::min(hosts[0].step, hosts[1].step) < 20 * 30; now += Millis(500)) {
        REQUIRE(now < Time(std::chrono::hours(1)) + Millis(30 * 110'000));
        sequencer.poll(now);
        for (size_t i = 0; i < 2; ++i) {
            One & host = hosts[i];
            if (!host.has_joined) {
                host.has_joined = host.client->try_join({}, true, now).has_value();
            } else if (host.is_waiting) {
                auto opened = host.client->try_next({}, now);
                auto whole  = opened ? host.butterfly->take(std::move(*opened)) : std::nullopt;
                if (whole && !whole->commit.messages.empty()) {
                    host.n_mine += whole->has_mine ? 1 : 0;
                    host.step       = whole->commit.step + 30;
                    host.is_waiting = false;
                    host.done.reset();
                }
            } else if (!host.done) {
                host.done = now + Millis(i == 0 ? 100'000 : 104'000);
            } else if (now >= *host.done && host.client->n_behind(now) == 0) {
                host.butterfly->publish(host.step, 8, Bytes(64, 0));
                host.is_waiting = true;
            }
        }
    }
    for (const One & host : hosts) {
        CHECK(host.n_mine == 20);
        CHECK(host.client->incarnation() == 1);
    }
    CHECK(sequencer.head()->pace_ms >= 100'000);
}

// A round of outputs closes without a host whose line is slow, and drops its uploads; the shards must come
// all the same, because a later message may list them.
TEST_CASE("a_late_averager_lists_no_shard_that_it_has_not_put", "[rounds][dense]") {
    const RunKeys    keys  = keys_from_secret(Key32{4});
    const auto       store = make_memory_store();
    SequencerOptions order;
    order.membership.min_hosts      = 2;
    order.membership.first_deadline = Millis(5'000);
    Sequencer sequencer(*store, keys, order);
    struct One {
        std::vector<Put>             uploads;
        std::unique_ptr<RoundClient> client;
        std::unique_ptr<Butterfly>   butterfly;
        std::optional<OpenedRound>   whole;
        bool                         is_cut = false;
    };
    std::map<std::string, One> hosts;
    Time                       now{std::chrono::hours(1)};
    const auto                 for_each = [&](const auto & what) {
        for (auto & [name, host] : hosts) {
            what(host);
        }
    };
    const auto play = [&](Millis time) {
        for (const Time end = now + time; now < end; now += Millis(500)) {
            for_each([&](One & host) {
                std::erase_if(host.uploads, [&](const Put & put) {
                    return put.index <= host.client->newest();
                });
                for (const Put & put : host.is_cut ? std::vector<Put>() : host.uploads) {
                    store->put(put.key, put.value);
                }
                host.uploads.erase(
                    host.uploads.begin(), host.is_cut ? host.uploads.begin() : host.uploads.end()
                );
            });
            sequencer.poll(now);
            for_each([&](One & host) {
                auto opened = host.whole ? std::nullopt : host.client->try_next({}, now);
                host.whole  = opened ? host.butterfly->take(std::move(*opened)) : host.whole;
            });
        }
    };
    for (const char * name : {"anna", "ben"}) {
        One &      host   = hosts[name];
        const auto upload = [&host](const std::string & key, Bytes value, uint64_t index) {
            host.uploads.push_back({key, std::move(value), index});
        };
        host.client = std::make_unique<RoundClient>(
            *store, keys, RoundClientOptions{.host = name, .n_fetch = 1}, upload
        );
        host.butterfly = std::make_unique<Butterfly>(
            *store, keys, *host.client, name, make_float_codec(4), upload, Millis(100)
        );
        CHECK_FALSE(host.client->try_join({}, true, now));
    }
    sequencer.poll(now);
    for_each([&](One & host) {
        REQUIRE(host.client->try_join({}, true, now));
        host.butterfly->publish(29, 8, Bytes(64, 0));
    });
    const auto play_until_listed = [&](const char * name) {
        const auto is_listed = [&] {
            return sequencer.head()->phase == Phase::outputs && sequencer.head()->message_of(name);
        };
        for (int i = 0; i < 60 && !is_listed(); ++i) {
            play(Millis(500));
        }
        REQUIRE(is_listed());
    };
    play(Millis(500));  // the inputs
    hosts.at("ben").is_cut = true;
    play_until_listed("anna");
    hosts.at("anna").is_cut = true;
    hosts.at("ben").is_cut  = false;
    play_until_listed("ben");  // it averages all that is missing next
    hosts.at("anna").is_cut = false;
    play(Millis(5'000));
    for_each([&](One & host) {
        REQUIRE(host.whole);
        CHECK(host.whole->fault == Fault::none);
        CHECK(host.whole->messages.size() == 4);
    });
}

// Three hosts, each with a line of its own to the store that may lack some keys.
class GapStore : public Store {
public:
    explicit GapStore(Store & inner) : inner_(inner) {}

    bool put(const std::string & key, std::span<const uint8_t> value, bool if_absent) override {
        return inner_.put(key, value, if_absent);
    }
    std::optional<Bytes> get(const std::string & key, std::chrono::milliseconds wait) override {
        return key.find(gap) != std::string::npos ? std::nullopt : inner_.get(key, wait);
    }
    std::vector<std::string> list(const std::string & prefix) override {
        return inner_.list(prefix);
    }
    void remove(const std::string & key) override { inner_.remove(key); }

    std::string gap = "no key has this";

private:
    Store & inner_;
};

namespace {

struct ThreeHosts {
    struct One {
        std::unique_ptr<GapStore>    line;
        std::unique_ptr<RoundClient> client;
        std::unique_ptr<Butterfly>   butterfly;
        std::optional<OpenedRound>   whole;
    };

    ThreeHosts() : store(make_memory_store()) {
        SequencerOptions order;
        order.membership.min_hosts = 3;
        sequencer                  = std::make_unique<Sequencer>(*store, keys, order);
        const auto upload          = [&](const std::string & key, const Bytes & value, uint64_t) {
            store->put(key, value);
        };
        for (const char * name : {"anna", "ben", "cleo"}) {
            One & host  = hosts[name];
            host.line   = std::make_unique<GapStore>(*store);
            host.client = std::make_unique<RoundClient>(
                *host.line, keys, RoundClientOptions{.host = name, .n_fetch = 1}, upload
            );
            host.butterfly = std::make_unique<Butterfly>(
                *host.line, keys, *host.client, name, make_float_codec(6), upload, Millis(10)
            );
            CHECK_FALSE(host.client->try_join({}, true, now));
        }
        sequencer->poll(now);
        for (auto & [name, host] : hosts) {
            REQUIRE(host.client->try_join({}, true, now));
            Bytes message(24 * sizeof(float));
            for (int i = 0; i < 24; ++i) {
                const auto value = static_cast<float>(name[0] - 'a' + i);
                std::memcpy(&message[4 * i], &value, sizeof value);
            }
            host.butterfly->publish(29, 1, message);
        }
    }
    // All hosts have the mean of the inputs of the first letters `first`, a = 0.
    void check_mean(double first) {
        for (int i = 0; i < 20; ++i, now += Millis(500)) {
            sequencer->poll(now);
            for (auto & [name, host] : hosts) {
                auto opened = host.whole ? std::nullopt : host.client->try_next({}, now);
                host.whole  = opened ? host.butterfly->take(std::move(*opened)) : host.whole;
            }
        }
        for (const auto & [name, host] : hosts) {
            REQUIRE(host.whole);
            CHECK(host.whole->in_shares);
            CHECK(host.whole->has_mine);
            REQUIRE(host.whole->messages.size() == 6);
            for (int i = 0; i < 24; ++i) {
                float value = 0.0f;
                std::memcpy(&value, &host.whole->messages[i / 4].bytes[4 * (i % 4)], sizeof value);
                CHECK(value == Approx(first + i));
            }
        }
    }

    RunKeys                    keys = keys_from_secret(Key32{5});
    std::unique_ptr<Store>     store;
    std::unique_ptr<Sequencer> sequencer;
    std::map<std::string, One> hosts;
    Time                       now{std::chrono::hours(1)};
};

}  // namespace

TEST_CASE("a_shard_that_one_averager_can_not_fetch_counts_all_the_same", "[rounds][dense]") {
    ThreeHosts three;
    for (const auto & [name, host] : three.hosts) {
        host.line->gap = name == "ben" ? "anna/1/" : host.line->gap;  // anna's shards
    }
    three.check_mean(1.0);
}

TEST_CASE("a_shard_that_the_store_has_lost_is_put_again_by_its_sender", "[rounds][dense]") {
    ThreeHosts     three;
    const RunPaths paths(three.keys.run);
    for (int j = 0; j < 6; j += 2) {
        three.store->remove(paths.shard({1, "cleo", 1}, j));
    }
    three.check_mean(1.0);
}

// Its sender has gone, too: the mean is that of the others.
TEST_CASE("a_shard_that_is_gone_for_good_does_not_stop_the_run", "[rounds][dense]") {
    ThreeHosts three;
    three.hosts.at("anna").butterfly->reset();  // it does not have its shards any more
    const RunPaths paths(three.keys.run);
    for (int j = 0; j < 6; ++j) {
        three.store->remove(paths.shard({1, "anna", 1}, j));
    }
    three.check_mean(1.5);
}
