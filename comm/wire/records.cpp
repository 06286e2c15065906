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

static Bytes framed(
    const RunKeys &          keys,
    const RecordHead &       head,
    std::span<const uint8_t> payload,
    uint32_t                 part = 0
) {
    return make_frame(
        keys.host_seed, {.kind        = static_cast<uint8_t>(head.kind),
                         .run         = keys.run,
                         .round       = head.index,
                         .host        = head.host,
                         .incarnation = head.incarnation,
                         .part        = part,
                         .payload     = payload}
    );
}

// Nothing if it is not the frame that `expected` identifies; an empty host there accepts any.
static std::optional<Frame>
unframed(uint64_t run, const RecordHead & expected, std::span<const uint8_t> value) {
    auto       frame = parse_frame(value);
    const bool is_it = frame && frame->kind == static_cast<uint8_t>(expected.kind) &&
                       frame->run == run && frame->round == expected.index &&
                       frame->incarnation == expected.incarnation &&
                       (expected.host.empty() || frame->host == expected.host);
    return is_it ? std::move(frame) : std::nullopt;
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
    return framed(keys, head, payload);
}

std::optional<Bytes> parse_record(
    const RunKeys &          keys,
    const RecordHead &       expected,
    std::span<const uint8_t> value,
    Author *                 author
) {
    const auto frame = unframed(keys.run, expected, value);
    if (!frame || frame->payload.size() < sizeof(Key32)) {
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
        *author = {frame->host, frame->signer};
    }
    return Bytes(body.begin(), body.end());
}

Bytes make_sealed(
    const RunKeys & keys, Kind kind, const SealContext & place, std::span<const uint8_t> text
) {
    return framed(
        keys, {kind, place.round, place.host, place.incarnation}, seal(keys, place, text),
        place.part
    );
}

std::optional<Bytes>
open_frame(const RunKeys & keys, const SealContext & place, const std::optional<Bytes> & value) {
    const auto frame = value ? parse_frame(*value) : std::nullopt;
    return frame ? open_sealed(keys, place, frame->payload) : std::nullopt;
}

bool belongs_to(const RunPaths & paths, const std::string & key, const Frame & frame) {
    const MessageId id{frame.round, frame.host, frame.incarnation};
    switch (static_cast<Kind>(frame.kind)) {
        case Kind::message:
            return key == paths.message(id);
        case Kind::commit:
            return key == paths.commit(id.index);
        case Kind::presence: {
            const auto presence = paths.parse_presence(key);
            return presence && id.index == static_cast<uint64_t>(presence->kind) &&
                   id.host == presence->host && id.incarnation == presence->incarnation;
        }
        case Kind::piece:
        case Kind::ready: {
            const auto slice = paths.parse_slice(key);
            const bool piece = static_cast<Kind>(frame.kind) == Kind::piece;
            return slice &&
                   key == (piece ? paths.piece(id, *slice, frame.part) : paths.ready(id, *slice));
        }
        case Kind::shard:
            return key == paths.shard(id, static_cast<int>(frame.part));
        case Kind::settings:
            return key == paths.settings();
        case Kind::model:
            return key == paths.model();
        case Kind::held:
            return key.starts_with(paths.held(id.index));
        default:
            return false;
    }
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

static RecordHead head_of(const MessageId & id) {
    return {Kind::message, id.index, id.host, id.incarnation};
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
    return framed(keys, head_of(id), clear);
}

std::optional<SignedHead>
parse_message_head(uint64_t run, const MessageId & id, std::span<const uint8_t> value) {
    const auto frame = unframed(run, head_of(id), value);
    if (!frame) {
        return std::nullopt;
    }
    WireReader in(frame->payload);
    const auto head = read_message_head(in);
    // the sealed text repeats the head in front of the body
    const size_t n_sealed = kSealBytes + kMessageHeadBytes + (head ? head->n_body_bytes : 0);
    return head && in.rest().size() == n_sealed ? std::optional(SignedHead{*head, frame->signer})
                                                : std::nullopt;
}

std::optional<Bytes> open_message(
    const RunKeys & keys, const MessageId & id, std::span<const uint8_t> value, SignedHead * head
) {
    const auto about = parse_message_head(keys.run, id, value);
    if (!about) {
        return std::nullopt;
    }
    const auto payload = value.subspan(kFrameHeadBytes + id.host.size());
    const auto clear   = payload.first(kMessageHeadBytes);
    auto       text    = open_sealed(keys, context_of(keys.run, id), payload.subspan(clear.size()));
    if (!text || !std::equal(clear.begin(), clear.end(), text->begin())) {
        return std::nullopt;
    }
    if (head) {
        *head = *about;
    }
    text->erase(text->begin(), text->begin() + kMessageHeadBytes);
    return text;
}

}  // namespace gt
