// comm/wire/records.cpp — see records.h.
#include "comm/wire/records.h"

#include "comm/wire/wire.h"

namespace gt {

// What the tag of a record covers.
static Bytes tagged(const RunKeys & keys, const RecordHead & head, std::span<const uint8_t> body) {
    WireWriter out;
    out.u64(keys.run);
    out.u8(static_cast<uint8_t>(head.kind));
    out.u64(head.index);
    out.text(head.host);
    out.u64(head.incarnation);
    out.raw(body);
    return out.take();
}

Bytes make_record(const RunKeys & keys, const RecordHead & head, std::span<const uint8_t> body) {
    Bytes       payload(body.begin(), body.end());
    const Key32 tag = authenticate(keys.commit_key, tagged(keys, head, body));
    payload.insert(payload.end(), tag.begin(), tag.end());
    return make_frame(
        {.kind        = static_cast<uint8_t>(head.kind),
         .run         = keys.run,
         .round       = head.index,
         .host        = head.host,
         .incarnation = head.incarnation,
         .payload     = payload}
    );
}

std::optional<Bytes> parse_record(
    const RunKeys &          keys,
    const RecordHead &       expected,
    std::span<const uint8_t> value,
    std::string *            author
) {
    const auto frame = parse_frame(value);
    if (!frame || frame->kind != static_cast<uint8_t>(expected.kind) || frame->run != keys.run ||
        frame->round != expected.index || frame->incarnation != expected.incarnation ||
        (!expected.host.empty() && frame->host != expected.host) ||
        frame->payload.size() < sizeof(Key32)) {
        return std::nullopt;
    }
    const auto body = frame->payload.first(frame->payload.size() - sizeof(Key32));
    RecordHead head = expected;
    head.host       = frame->host;
    Key32 tag;
    std::copy(frame->payload.end() - sizeof tag, frame->payload.end(), tag.begin());
    if (!authentic(keys.commit_key, tagged(keys, head, body), tag)) {
        return std::nullopt;
    }
    if (author) {
        *author = frame->host;
    }
    return Bytes(body.begin(), body.end());
}

static RecordHead lost_head(uint64_t index, const std::string & host, uint64_t incarnation) {
    return {Kind::lost, index, host, incarnation};
}

Bytes make_lost(
    const RunKeys &                  keys,
    uint64_t                         index,
    const std::string &              host,
    uint64_t                         incarnation,
    const std::vector<std::string> & senders
) {
    WireWriter out;
    for (const std::string & sender : senders) {
        out.text(sender);
    }
    return make_record(keys, lost_head(index, host, incarnation), out.bytes());
}

std::optional<std::vector<std::string>> parse_lost(
    const RunKeys &          keys,
    uint64_t                 index,
    const std::string &      host,
    uint64_t                 incarnation,
    std::span<const uint8_t> value
) {
    const auto body = parse_record(keys, lost_head(index, host, incarnation), value);
    if (!body) {
        return std::nullopt;
    }
    std::vector<std::string> senders;
    WireReader               in(*body);
    while (in.ok() && !in.at_end()) {
        senders.push_back(in.text(kMaxHostNameSize));
    }
    return senders;
}

static Bytes head_bytes(const MessageHead & head) {
    WireWriter out;
    out.u64(head.step);
    out.u8(static_cast<uint8_t>(head.phase));
    out.u64(head.weight);
    out.u64(head.base_index);
    out.raw(head.base);
    out.u64(head.state_index);
    out.u64(head.state_digest);
    out.u32(head.n_body_bytes);
    out.f32(head.loss);
    out.f32(head.tokens_s);
    out.f32(head.waited_s);
    out.u64(head.up_bytes);
    out.u64(head.down_bytes);
    out.u32(0);  // reserved
    GT_CHECK(
        out.bytes().size() == kMessageHeadBytes,
        "the head of a message has another size than kMessageHeadBytes"
    );
    return out.take();
}

std::optional<MessageHead> read_message_head(WireReader & in) {
    MessageHead head;
    head.step           = in.u64();
    const uint8_t phase = in.u8();
    head.phase          = static_cast<Phase>(phase);
    head.weight         = in.u64();
    head.base_index     = in.u64();
    head.base           = in.key();
    head.state_index    = in.u64();
    head.state_digest   = in.u64();
    head.n_body_bytes   = in.u32();
    head.loss           = in.f32();
    head.tokens_s       = in.f32();
    head.waited_s       = in.f32();
    head.up_bytes       = in.u64();
    head.down_bytes     = in.u64();
    in.u32();  // reserved
    const bool is_good = in.ok() && phase <= static_cast<uint8_t>(Phase::outputs) &&
                         head.weight >= 1 && head.weight <= kMaxWeight;
    return is_good ? std::optional(head) : std::nullopt;
}

static SealContext context_of(uint64_t run, const MessageId & id) {
    return {
        .run         = run,
        .kind        = "message",
        .round       = id.index,
        .host        = id.host,
        .incarnation = id.incarnation};
}

Bytes make_message(
    const RunKeys &          keys,
    const MessageId &        id,
    const MessageHead &      head,
    std::span<const uint8_t> body
) {
    GT_CHECK(head.n_body_bytes == body.size(), "n_body_bytes is not the size of the body");
    Bytes clear = head_bytes(head);
    Bytes text  = clear;
    text.insert(text.end(), body.begin(), body.end());
    const Bytes sealed = seal(keys, context_of(keys.run, id), text);
    clear.insert(clear.end(), sealed.begin(), sealed.end());
    return make_frame(
        {.kind        = static_cast<uint8_t>(Kind::message),
         .run         = keys.run,
         .round       = id.index,
         .host        = id.host,
         .incarnation = id.incarnation,
         .payload     = clear}
    );
}

std::optional<MessageHead>
parse_message_head(uint64_t run, const MessageId & id, std::span<const uint8_t> value) {
    const auto frame = parse_frame(value);
    if (!frame || frame->kind != static_cast<uint8_t>(Kind::message) || frame->run != run ||
        frame->round != id.index || frame->host != id.host ||
        frame->incarnation != id.incarnation) {
        return std::nullopt;
    }
    WireReader in(frame->payload);
    const auto head = read_message_head(in);
    // the sealed text repeats the head in front of the body
    if (!head || in.rest().size() != kSealBytes + kMessageHeadBytes + head->n_body_bytes) {
        return std::nullopt;
    }
    return head;
}

std::optional<Bytes> open_message(
    const RunKeys & keys, const MessageId & id, std::span<const uint8_t> value, MessageHead * head
) {
    const auto clear = parse_message_head(keys.run, id, value);
    if (!clear) {
        return std::nullopt;
    }
    const size_t sealed_bytes = kSealBytes + kMessageHeadBytes + clear->n_body_bytes;
    auto         text = open_sealed(keys, context_of(keys.run, id), value.last(sealed_bytes));
    if (!text || !std::equal(
                     text->begin(), text->begin() + kMessageHeadBytes,
                     value.end() - sealed_bytes - kMessageHeadBytes
                 )) {
        return std::nullopt;
    }
    if (head) {
        *head = *clear;
    }
    text->erase(text->begin(), text->begin() + kMessageHeadBytes);
    return text;
}

}  // namespace gt
