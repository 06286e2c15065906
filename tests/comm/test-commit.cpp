#include "comm/sequencer/commit-log.h"
#include "comm/wire/commit.h"
#include "tests/catch.h"
#include "tests/fake/store-memory.h"

using namespace gt;

static const RunKeys & keys() {
    static const RunKeys keys = keys_from_secret(Key32{7});
    return keys;
}

static Commit sample() {
    Commit commit;
    commit.index        = 12;
    commit.writer       = "hub";
    commit.step         = 40;
    commit.previous     = digest256(Bytes{1});
    commit.pace_ms      = 900;
    commit.state_index  = 11;
    commit.state_digest = 0xabcdef;
    commit.complete_at  = 12;
    commit.validator    = "ben";
    commit.hosts        = {
               {"anna", Key32{1}, 1, true, false, 0, 12, 0xff},
               {"ben", Key32{2}, 4, true, false, 3, 11, 0x0e},
               {"carl", Key32{3}, 2, false, true, 1, kNone, 0}};
    commit.messages = {{"anna", 1, 32, 1000, digest256(Bytes{2}), ""}};
    commit.diverged = {"ben"};
    commit.writers  = {"anna", "anna", "ben"};
    commit.complete =
        CheckpointList{8, 36, 99, digest256(Bytes{3}), {{"anna", 1, 5000, 2, digest256(Bytes{4})}}};
    return commit;
}

TEST_CASE("a_commit_survives_the_wire", "[commit]") {
    const Bytes value = encode_commit(keys(), sample());
    const auto  back  = parse_commit(keys(), 12, value);
    REQUIRE(back);
    CHECK(encode_commit(keys(), *back) == value);
    CHECK(back->step == 40);
    CHECK(back->message_of("anna")->weight == 32);
    CHECK(back->find("carl")->last_listed == kNone);
    CHECK(back->complete->slices[0].n_pieces == 2);
}

TEST_CASE("a_commit_is_valid_only_for_its_key_and_run", "[commit]") {
    const Bytes value = encode_commit(keys(), sample());
    CHECK_FALSE(parse_commit(keys(), 13, value));                      // another round
    CHECK_FALSE(parse_commit(keys_from_secret(Key32{8}), 12, value));  // another run
    RunKeys other = keys();
    other.commit_key[0] ^= 1;
    CHECK_FALSE(parse_commit(other, 12, value));  // without the key
    for (size_t i = 0; i < value.size(); ++i) {
        Bytes torn = value;
        torn[i] ^= 1;
        std::string why;
        REQUIRE_FALSE(parse_commit(keys(), 12, torn, &why));
        REQUIRE_FALSE(why.empty());
        REQUIRE_FALSE(parse_commit(keys(), 12, std::span(value).first(i)));
    }
}

TEST_CASE("an_invalid_commit_is_rejected_with_a_reason", "[commit]") {
    const auto why = [](const std::function<void(Commit &)> & change) {
        Commit commit = sample();
        change(commit);
        std::string why;
        CHECK_FALSE(parse_commit(keys(), 12, encode_commit(keys(), commit), &why));
        return why;
    };
    CHECK(why([](Commit & c) { c.phase = Phase(3); }).find("phase") != std::string::npos);
    CHECK(why([](Commit & c) { c.messages[0].weight = 0; }).find("weight") != std::string::npos);
    CHECK(why([](Commit & c) { c.hosts[1].since = 99; }).find("joined after") != std::string::npos);
    CHECK(why([](Commit & c) { c.hosts[2].name = "a/b"; }).find("name") != std::string::npos);
    CHECK(why([](Commit & c) {
              c.hosts.push_back(c.hosts[0]);
          }).find("twice") != std::string::npos);
    CHECK(why([](Commit & c) {
              c.messages.push_back(c.messages[0]);
          }).find("order") != std::string::npos);
    CHECK(why([](Commit & c) { c.complete->index = 12; }).find("newer") != std::string::npos);
    CHECK(why([](Commit & c) { c.complete_at = 11; }).find("complete_at") != std::string::npos);
}

TEST_CASE("a_message_opens_only_for_its_host_round_and_incarnation", "[commit]") {
    const MessageId id{5, "anna", 2};
    MessageHead     head;
    head.step         = 9;
    head.weight       = 64;
    head.n_body_bytes = 3;
    const Bytes body{1, 2, 3};
    const Bytes value = make_message(keys(), id, head, body);
    SignedHead  back;
    CHECK(open_message(keys(), id, value, &back) == body);
    CHECK(back.head.weight == 64);
    CHECK(parse_message_head(keys().run, id, value)->head.step == 9);
    CHECK_FALSE(open_message(keys(), {6, "anna", 2}, value));
    CHECK_FALSE(open_message(keys(), {5, "ben", 2}, value));
    CHECK_FALSE(open_message(keys(), {5, "anna", 3}, value));
    // a hub can read the head, but neither open nor change the message
    const RunKeys hub = keys_from_hub_form(hub_form(keys()));
    CHECK(parse_message_head(hub.run, id, value));
    Bytes changed = value;
    changed[kFrameHeadBytes + 4 + 9] ^= 1;  // the weight, in clear
    const auto frame = parse_frame(value);
    REQUIRE(frame);
    Frame again          = *frame;
    again.payload        = std::span(changed).last(frame->payload.size());
    const Bytes resealed = make_frame(keys().host_seed, again);  // with a valid signature
    CHECK(parse_message_head(keys().run, id, resealed));
    CHECK_FALSE(open_message(keys(), id, resealed));
}

TEST_CASE("a_commit_takes_the_place_of_those_that_it_undoes", "[commit]") {
    const auto     store = make_memory_store();
    const RunPaths paths(keys().run);
    CommitLog      log(*store, keys());
    CHECK(log.load().empty());
    const auto put = [&](uint64_t index, const Key32 & previous, uint64_t n_undone) {
        Commit commit;
        commit.index      = index;
        commit.writer     = "hub";
        commit.previous   = previous;
        commit.n_undone   = n_undone;
        const Bytes value = encode_commit(keys(), commit);
        store->put(paths.commit(index), value, true);
        return digest256(value);
    };
    const auto indices = [&] {
        std::vector<uint64_t> out;
        for (const ChainEntry & entry : log.load()) {
            out.push_back(entry.commit.index);
        }
        return out;
    };
    const Key32 zero = put(0, {}, 0);
    const Key32 one  = put(1, zero, 0);
    put(3, one, 1);
    CHECK(indices() == std::vector<uint64_t>{0, 1});
    put(2, one, 0);
    CHECK(indices() == std::vector<uint64_t>{0, 1, 3});
    put(4, Key32{7}, 3);  // follows a commit that is not in the store
    CHECK(indices() == std::vector<uint64_t>{4});
    put(5, one, 0);  // fits none
    CHECK_THROWS_AS(log.load(), StoreError);
    store->remove(paths.commit(5));
    store->put(paths.commit(5), Bytes{1, 2, 3});  // damaged is not missing
    CHECK_THROWS_AS(log.load(), StoreError);
}
