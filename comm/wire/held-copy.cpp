// comm/wire/held-copy.cpp — see held-copy.h.
#include "comm/wire/held-copy.h"

#include "comm/wire/commit.h"
#include "comm/wire/wire.h"

namespace gt {

static RecordHead about(const MessageId & id, const std::string & holder) {
    return {Kind::held, id.index, holder, id.incarnation};
}

Bytes make_held(
    const RunKeys &          keys,
    const MessageId &        id,
    const std::string &      holder,
    std::span<const uint8_t> value
) {
    const auto frame = parse_frame(value);
    GT_CHECK(frame && frame->payload.size() >= kMessageHeadBytes, "the value is not a message");
    WireWriter out;
    out.text(id.host);
    out.u64(value.size());
    out.raw(digest256(value));
    out.raw(frame->payload.first(kMessageHeadBytes));
    return make_record(keys, about(id, holder), out.bytes());
}

std::optional<HeldMessage>
parse_held(const RunKeys & keys, const MessageId & id, std::span<const uint8_t> value) {
    HeldMessage held;
    const auto  body = parse_record(keys, about(id, ""), value, &held.holder);
    if (!body) {
        return std::nullopt;
    }
    WireReader        in(*body);
    const std::string sender = in.text(kMaxHostNameSize);
    held.size                = in.u64();
    held.digest              = in.key();
    const auto head          = read_message_head(in);
    if (!in.at_end() || !head || sender != id.host || held.holder.host == id.host ||
        held.size > kMaxSize) {
        return std::nullopt;
    }
    held.head = *head;
    return held;
}

}  // namespace gt
