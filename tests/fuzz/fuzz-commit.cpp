// Any body with a valid tag: parse_commit rejects it, or returns a commit that encodes to the same
// bytes. Any bytes: message heads are rejected or parsed, and no model is made by a host.
#include "comm/wire/commit.h"

#include <cstring>

using namespace gt;

static const RunKeys & keys() {
    static const RunKeys keys = keys_from_secret(Key32{1});
    return keys;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    const std::span<const uint8_t> bytes(data, size);
    (void) parse_commit(keys(), 7, bytes);
    (void) parse_message_head(keys().run, {7, "anna", 1}, bytes);
    (void) open_message(keys(), {7, "anna", 1}, bytes);

    const RecordHead head{Kind::commit, 7, "hub", 0};
    const Bytes      value = make_record(keys(), head, bytes);
    std::string      why;
    const auto       commit = parse_commit(keys(), 7, value, &why);
    if (!commit) {
        GT_CHECK(!why.empty(), "a refusal without a reason");
    } else {
        GT_CHECK(encode_commit(keys(), *commit) == value, "written back in other bytes");
    }

    // a message in a valid frame, so that its head is parsed
    const Bytes framed = make_frame(
        keys().host_seed, {.kind        = static_cast<uint8_t>(Kind::message),
                           .run         = keys().run,
                           .round       = 7,
                           .host        = "anna",
                           .incarnation = 1,
                           .payload     = bytes}
    );
    (void) parse_message_head(keys().run, {7, "anna", 1}, framed);
    GT_CHECK(!open_message(keys(), {7, "anna", 1}, framed), "forged");

    // records that a hub can make: without the tag of a host
    static const RunKeys hub = keys_from_hub_form(hub_form(keys()));
    const RecordHead     model{Kind::model, 0, "anna", 0};
    GT_CHECK(!parse_record(keys(), model, make_record(hub, model, bytes)), "forged model");
    return 0;
}
