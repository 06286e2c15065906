// What one member of three writes, with valid tags and its own signature: no record stops the sequencer or a host,
// leads to a commit that can't be read, or makes an honest host join again; the run continues without it.
#include "comm/rounds/round-client.h"
#include "comm/sequencer/run-settings.h"
#include "comm/sequencer/sequencer.h"
#include "comm/wire/held-copy.h"
#include "comm/wire/wire.h"
#include "tests/fake/store-memory.h"

using namespace gt;

namespace {

RunKeys keys_of_host(uint8_t seed) {
    RunKeys keys   = keys_from_secret(Key32{1});
    keys.host_seed = Key32{seed};
    return keys;
}

// Follows the rounds without a trainer.
class Honest {
public:
    Honest(Store & store, const std::string & host, uint8_t seed)
        : client_(
              store,
              keys_of_host(seed),
              {.host = host, .n_fetch = 1},
              [&store](const std::string & key, const Bytes & value, uint64_t) {
                  store.put(key, value);
              }
          ) {}

    void work(Time now) {
        if (!is_in_) {
            const auto start = client_.try_join({}, true, now);
            if (start) {
                is_in_ = true;
                step_  = start->step + 1;
                client_.report({.step = start->step, .state_digest = 7});
            }
            return;
        }
        const bool is_behind = client_.n_behind(now) > 0;
        if (!is_behind && client_.n_in_flight() == 0) {
            client_.publish(step_++, Phase::single, 2, Bytes(3));
        }
        while (const auto round = client_.try_next({}, now)) {
            GT_CHECK(round->fault == Fault::none, "an honest host must join again");
            step_ = std::max(step_, round->commit.step + 1);
            client_.report({.step = round->commit.step, .state_digest = 7});
        }
    }

private:
    RoundClient client_;
    bool        is_in_ = false;
    uint64_t    step_  = 0;
};

// The bytes of the input, and what they make the member write.
class Mallory {
public:
    Mallory(Store & store, std::span<const uint8_t> bytes)
        : store_(store), keys_(keys_of_host(3)), paths_(keys_.run), in_(bytes) {}

    bool is_done() const { return !in_.ok() || in_.at_end(); }

    void write(const std::optional<Commit> & newest, const Key32 & head) {
        const uint64_t     open        = newest ? newest->index + 1 : 0;
        const std::string  host        = number() % 4 == 0 ? "anna" : "mallory";
        const CommitHost * me          = newest ? newest->find(host) : nullptr;
        const uint64_t     incarnation = number() % 4 == 0 ? number() : me ? me->incarnation : 1;
        const MessageId    id{open + number() % 2, host, incarnation};
        switch (in_.u8() % 5) {
            case 0: {
                const auto        kind = static_cast<PresenceKey::Kind>(in_.u8() % 6);
                const PresenceKey key{
                    kind == PresenceKey::Kind::removed ? PresenceKey::Kind::hello : kind, host,
                    near(open)};
                put(paths_.presence(key),
                    make_record(keys_, head_of(key), stuck_body(newest, head)));
                break;
            }
            case 1: {
                const Bytes body(in_.u8());
                put(paths_.message(id),
                    make_message(keys_, id, message_head(newest, head, body.size()), body));
                break;
            }
            case 2: {
                const uint64_t index = near(open);
                const int      slice = in_.u8() % 4;
                put(paths_.ready({index, host, incarnation}, slice),
                    make_record(keys_, {Kind::ready, index, host, incarnation}, ready_body(slice)));
                break;
            }
            case 3: {
                const Bytes body = held_body(id, message_head(newest, head, 0));
                put(paths_.held(id),
                    make_record(keys_, {Kind::held, id.index, "mallory", incarnation}, body));
                break;
            }
            default: {
                const auto  text = in_.raw(in_.u8() % 64);
                const Bytes body(text.begin(), text.end());
                put(paths_.presences() + std::string(text.begin(), text.end()), body);
            }
        }
    }

private:
    void put(const std::string & key, const Bytes & value) {
        if (valid_key(key) && !store_.get(key)) {  // a hub keeps the first value
            store_.put(key, value);
        }
    }
    uint64_t number() { return in_.u8(); }
    // An index that exists or may exist soon, or any other.
    uint64_t near(uint64_t open) {
        return number() % 4 == 0 ? in_.u64() : open - std::min(open, number() % 4) + number() % 3;
    }

    MessageHead
    message_head(const std::optional<Commit> & newest, const Key32 & head, size_t n_body) {
        MessageHead   out;
        const uint8_t flags = in_.u8();
        out.n_body_bytes    = static_cast<uint32_t>(n_body);
        out.weight          = flags & 1 ? 1 + in_.u64() % kMaxWeight : 2;
        out.step            = flags & 2 ? in_.u64() : newest ? newest->step + 1 : 0;
        out.phase           = static_cast<Phase>(flags & 4 ? in_.u8() % 3 : 0);
        out.base_index      = flags & 8 ? in_.u64() : newest ? newest->index : 0;
        out.base            = flags & 16 ? in_.key() : head;
        out.state_index     = flags & 32 ? in_.u64() : out.base_index;
        out.state_digest    = flags & 64 ? in_.u64() : 7;
        return out;
    }
    Bytes stuck_body(const std::optional<Commit> & newest, const Key32 & head) {
        WireWriter out;
        if (number() % 2 == 0) {
            out.u64(newest ? newest->index : 0);
            out.raw(head);
        } else {
            out.raw(in_.raw(in_.u8() % 48));
        }
        return out.take();
    }
    Bytes ready_body(int slice) {
        WireWriter out;
        out.u32(static_cast<uint64_t>(slice));
        out.u64(number() % 2 == 0 ? 7 : in_.u64());
        out.u64(in_.u64());
        out.u32(in_.u32());
        out.raw(Key32{});
        out.raw(in_.raw(in_.u8() % 4));
        return out.take();
    }
    Bytes held_body(const MessageId & id, const MessageHead & head) {
        const Bytes value = make_message(keys_, id, head, {});
        const auto  frame = parse_frame(value);
        WireWriter  out;
        out.text(id.host);
        out.u64(in_.u64());
        out.raw(Key32{});
        out.raw(frame->payload.first(kMessageHeadBytes));
        out.raw(in_.raw(in_.u8() % 4));
        return out.take();
    }

    Store &    store_;
    RunKeys    keys_;
    RunPaths   paths_;
    WireReader in_;
};

// Keys of any content: rejected, or those that are made of what was parsed.
void check_keys(std::span<const uint8_t> bytes) {
    const RunPaths    paths(1);
    const std::string rest(bytes.begin(), bytes.end());
    if (const auto key = paths.parse_presence(paths.presences() + rest)) {
        const auto again = paths.parse_presence(paths.presence(*key));
        GT_CHECK(
            again && again->host == key->host && again->incarnation == key->incarnation,
            "another key"
        );
    }
    for (const char * folder : {"message/", "shard/"}) {
        if (const auto key = paths.parse_bulk(paths.root + folder + rest)) {
            GT_CHECK(valid_host_name(key->id.host), "an invalid name");
        }
    }
    (void) paths.parse_commit(paths.commits() + rest);
    (void) paths.parse_floor(paths.floors() + rest);
}

// Settings of any content: rejected, or those that are read again from what they are written as.
void check_settings(std::span<const uint8_t> bytes) {
    const RunKeys keys  = keys_of_host(1);
    const auto    store = make_memory_store(), copy = make_memory_store();
    store->put(
        RunPaths(keys.run).settings(), make_record(keys, {Kind::settings, 0, "anna", 0}, bytes)
    );
    try {
        const auto settings = read_settings(*store, keys);
        GT_CHECK(agree_settings(*copy, keys, "anna", *settings, {}) == *settings, "other settings");
        MembershipOptions options;
        apply_settings(*settings, options);
    } catch (const StoreError &) {
        // malformed
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    check_keys({data, size});
    check_settings({data, size});
    const auto       store = make_memory_store();
    const RunKeys    hub   = keys_from_hub_form(hub_form(keys_of_host(0)));
    SequencerOptions options;
    options.direct        = size % 2 == 1;
    options.presence_poll = Millis(0);
    options.membership    = {.min_hosts = 2, .checkpoint_every = 4};
    agree_settings(*store, keys_of_host(1), "anna", {{"min-hosts", "2"}}, {});
    Sequencer  sequencer(*store, hub, options);
    Honest     anna(*store, "anna", 1), ben(*store, "ben", 2);
    Mallory    mallory(*store, {data, size});
    Time       now{std::chrono::hours(1)};
    const auto pass = [&](Millis time) {
        now += time;
        anna.work(now);
        ben.work(now);
        while (sequencer.poll(now)) {
        }
    };
    pass(Millis(100));
    for (int i = 0; i < 64 && !mallory.is_done(); ++i) {
        const auto chain = CommitLog(*store, hub).load();
        mallory.write(sequencer.head(), chain.empty() ? Key32{} : chain.back().digest);
        pass(Millis(i % 8 == 7 ? 10'000 : 100));
    }
    // from here on it is silent: the others continue
    const auto     index  = [&] { return sequencer.head() ? sequencer.head()->index : 0; };
    const uint64_t before = index();
    for (int i = 0; i < 100 && index() < before + 4; ++i) {
        pass(Millis(2'000));
    }
    GT_CHECK(index() >= before + 4, "the run does not continue");
    Sequencer next(*store, hub, options);
    (void) next.poll(now);
    GT_CHECK(next.head() && next.head()->index == index(), "the chain can't be read again");
    return 0;
}
