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

static bool is_by_hosts_only(Kind kind) {
    return kind == Kind::settings || kind == Kind::model;
}

static Key32 host_tag(const RunKeys & keys, std::span<const uint8_t> data) {
    static const std::string info  = "record";
    const auto *             bytes = reinterpret_cast<const uint8_t *>(info.data());
    return authenticate(authenticate(keys.seal_key, {bytes, info.size()}), data);
}

Bytes make_record(const RunKeys & keys, const RecordHead & head, std::span<const uint8_t> body) {
    Bytes      payload(body.begin(), body.end());
    const auto append = [&](const Key32 & tag) {
        payload.insert(payload.end(), tag.begin(), tag.end());
    };
    if (is_by_hosts_only(head.kind)) {
        append(host_tag(keys, tagged(keys, head, payload)));
    }
    append(authenticate(keys.commit_key, tagged(keys, head, payload)));
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
    RecordHead head     = expected;
    head.host           = frame->host;
    auto       body     = frame->payload;
    const auto take_tag = [&] {
        Key32 tag;
        body = body.first(body.size() - sizeof tag);
        std::copy_n(body.end(), sizeof tag, tag.begin());
        return tag;
    };
    Key32 tag = take_tag();
    if (!authentic(keys.commit_key, tagged(keys, head, body), tag)) {
        return std::nullopt;
    }
    if (is_by_hosts_only(head.kind)) {
        if (body.size() < sizeof tag) {
            return std::nullopt;
        }
        tag = take_tag();
        if (keys.can_read && host_tag(keys, tagged(keys, head, body)) != tag) {
            return std::nullopt;
        }
    }
    if (author) {
        *author = frame->host;
    }
    return Bytes(body.begin(), body.end());
}

Bytes make_signed_record(
    const RunKeys & keys, const RecordHead & head, std::span<const uint8_t> body
) {
    WireWriter out;
    out.raw(body);
    out.raw(public_key(keys.host_seed));
    out.raw(sign(keys.host_seed, tagged(keys, head, out.bytes())));
    return make_record(keys, head, out.bytes());
}

std::optional<Bytes> parse_signed_record(
    const RunKeys &          keys,
    const RecordHead &       expected,
    std::span<const uint8_t> value,
    Key32 &                  signer
) {
    auto      body = parse_record(keys, expected, value);
    Signature signature;
    if (!body || body->size() < sizeof signer + sizeof signature) {
        return std::nullopt;
    }
    const auto text = std::span(*body).first(body->size() - sizeof signature);
    std::copy(text.end(), text.end() + sizeof signature, signature.begin());
    std::copy(text.end() - sizeof signer, text.end(), signer.begin());
    if (!is_signed(signer, tagged(keys, expected, text), signature)) {
        return std::nullopt;
    }
    body->resize(text.size() - sizeof signer);
    return body;
}

Bytes make_sealed(
    const RunKeys & keys, Kind kind, const SealContext & place, std::span<const uint8_t> text
) {
    const Bytes sealed = seal(keys, place, text);
    return make_frame(
        {.kind        = static_cast<uint8_t>(kind),
         .run         = place.run,
         .round       = place.round,
         .host        = place.host,
         .incarnation = place.incarnation,
         .payload     = sealed}
    );
}

std::optional<Bytes>
open_frame(const RunKeys & keys, const SealContext & place, const std::optional<Bytes> & value) {
    const auto frame = value ? parse_frame(*value) : std::nullopt;
    return frame ? open_sealed(keys, place, frame->payload) : std::nullopt;
}

template <class Io, class Head>
static void head_fields(Io & io, Head & head) {
    fields(io, head.step, head.phase, head.weight, head.base_index, head.base, head.state_index);
    fields(io, head.state_digest, head.n_body_bytes, head.loss, head.tokens_s, head.waited_s);
    fields(io, head.up_bytes, head.down_bytes, head.n_shard_bytes);
}

static Bytes head_bytes(const MessageHead & head) {
    WireWriter out;
    head_fields(out, head);
    GT_CHECK(
        out.bytes().size() == kMessageHeadBytes,
        "the head of a message has another size than kMessageHeadBytes"
    );
    return out.take();
}

std::optional<MessageHead> read_message_head(WireReader & in) {
    MessageHead head;
    head_fields(in, head);
    const bool is_good =
        in.ok() && head.phase <= Phase::outputs && head.weight >= 1 && head.weight <= kMaxWeight;
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

// What the signature of a message covers: its identity, and the digest of head and sealed text.
static Bytes signed_text(
    uint64_t                 run,
    const MessageId &        id,
    std::span<const uint8_t> head,
    std::span<const uint8_t> sealed
) {
    WireWriter out;
    out.u64(run);
    out.u64(id.index);
    out.text(id.host);
    out.u64(id.incarnation);
    out.raw(head);
    out.raw(digest256(sealed));
    return out.take();
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
    const Bytes     sealed = seal(keys, context_of(keys.run, id), text);
    const Signature by_us  = sign(keys.host_seed, signed_text(keys.run, id, clear, sealed));
    clear.insert(clear.end(), by_us.begin(), by_us.end());
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

namespace {

// A message in its parts.
struct MessageParts {
    MessageHead              head;
    std::span<const uint8_t> clear, sealed;  // the head's bytes; the same and the body, sealed
    Signature                by;
};

// Nothing if it is none, or another one.
std::optional<MessageParts>
split_message(uint64_t run, const MessageId & id, std::span<const uint8_t> value) {
    const auto frame = parse_frame(value);
    if (!frame || frame->kind != static_cast<uint8_t>(Kind::message) || frame->run != run ||
        frame->round != id.index || frame->host != id.host ||
        frame->incarnation != id.incarnation) {
        return std::nullopt;
    }
    WireReader in(frame->payload);
    const auto head = read_message_head(in);
    const auto by   = in.raw(sizeof(Signature));
    const auto rest = in.rest();
    // the sealed text repeats the head in front of the body
    if (!head || !in.ok() || rest.size() != kSealBytes + kMessageHeadBytes + head->n_body_bytes) {
        return std::nullopt;
    }
    MessageParts parts{*head, frame->payload.first(kMessageHeadBytes), rest, {}};
    std::copy(by.begin(), by.end(), parts.by.begin());
    return parts;
}

}  // namespace

std::optional<MessageHead>
parse_message_head(uint64_t run, const MessageId & id, std::span<const uint8_t> value) {
    const auto parts = split_message(run, id, value);
    return parts ? std::optional(parts->head) : std::nullopt;
}

bool is_signed_message(
    const Key32 & public_key, uint64_t run, const MessageId & id, std::span<const uint8_t> value
) {
    const auto parts = split_message(run, id, value);
    return parts &&
           is_signed(public_key, signed_text(run, id, parts->clear, parts->sealed), parts->by);
}

std::optional<Bytes> open_message(
    const RunKeys & keys, const MessageId & id, std::span<const uint8_t> value, MessageHead * head
) {
    const auto parts = split_message(keys.run, id, value);
    auto text = parts ? open_sealed(keys, context_of(keys.run, id), parts->sealed) : std::nullopt;
    if (!text || !std::equal(parts->clear.begin(), parts->clear.end(), text->begin())) {
        return std::nullopt;
    }
    if (head) {
        *head = parts->head;
    }
    text->erase(text->begin(), text->begin() + kMessageHeadBytes);
    return text;
}

}  // namespace gt
