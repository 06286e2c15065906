// comm/records.cpp — makes and checks keys and small records.
#include "comm/records.h"

#include "comm/wire.h"

#include <charconv>

namespace gt {

static std::string number(uint64_t value) {
    return format("%012llu", static_cast<unsigned long long>(value));
}

RunPaths::RunPaths(uint64_t run)
    : root(format("r%016llx/", static_cast<unsigned long long>(run))) {}

std::string
RunPaths::message(uint64_t index, const std::string & host, uint64_t incarnation) const {
    return messages(index) + host + "/" + number(incarnation);
}
std::string RunPaths::messages(uint64_t index) const {
    return root + "message/" + number(index) + "/";
}
std::string RunPaths::held(const MessageId & id) const {
    return helds(id.index) + id.host + "/" + number(id.incarnation);
}
std::string RunPaths::helds(uint64_t index) const {
    return root + "held/" + number(index) + "/";
}
std::string RunPaths::commit(uint64_t index, uint32_t revision) const {
    return root + "commit/" + number(index) + "-" + std::to_string(revision);
}
std::string RunPaths::presences() const {
    return root + "presence/";
}
std::string RunPaths::presences(const std::string & host) const {
    return presences() + host + "/";
}
std::string RunPaths::hello(const std::string & host, uint64_t incarnation) const {
    return presences(host) + number(incarnation) + "-hello";
}
std::string RunPaths::leave(const std::string & host, uint64_t incarnation) const {
    return presences(host) + number(incarnation) + "-leave";
}
std::string RunPaths::epochs() const {
    return root + "epoch/";
}
std::string RunPaths::epoch(uint64_t epoch) const {
    return epochs() + number(epoch);
}
std::string
RunPaths::pieces(uint64_t index, int part, const std::string & host, uint64_t life) const {
    return root + "part/" + number(index) + "/" + std::to_string(part) + "/" + host + "/" +
           number(life) + "/";
}
std::string RunPaths::piece(const std::string & pieces, int piece) const {
    return pieces + std::to_string(piece);
}
std::string
RunPaths::ready(uint64_t index, int part, const std::string & host, uint64_t life) const {
    return root + "ready/" + number(index) + "/" + std::to_string(part) + "/" + host + "/" +
           number(life);
}
std::string RunPaths::lost(uint64_t index, uint32_t revision, const std::string & host) const {
    return root + "lost/" + number(index) + "-" + std::to_string(revision) + "/" + host;
}
std::string RunPaths::floors() const {
    return root + "floor/";
}
std::string RunPaths::floor(uint64_t index) const {
    return floors() + number(index);
}
std::string
RunPaths::shard(uint64_t index, const std::string & host, uint64_t life, int shard) const {
    return shards(index) + host + "/" + number(life) + "/" + std::to_string(shard);
}
std::string RunPaths::shards(uint64_t index) const {
    return root + "shard/" + number(index) + "/";
}
std::string RunPaths::settings() const {
    return root + "settings";
}

static std::optional<uint64_t> parse_number(std::string_view text) {
    uint64_t   value  = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || result.ec != std::errc() || result.ptr != text.data() + text.size()) {
        return std::nullopt;
    }
    return value;
}

std::optional<Presence> parse_presence(const RunPaths & paths, const std::string & key) {
    const std::string prefix = paths.presences();
    if (!key.starts_with(prefix)) {
        return std::nullopt;
    }
    const size_t slash = key.find('/', prefix.size());
    const size_t dash  = key.rfind('-');
    if (slash == std::string::npos || dash == std::string::npos || dash < slash) {
        return std::nullopt;
    }
    Presence out;
    out.host                = key.substr(prefix.size(), slash - prefix.size());
    const std::string state = key.substr(dash + 1);
    out.leaving             = state == "leave";
    const auto incarnation =
        parse_number(std::string_view(key).substr(slash + 1, dash - slash - 1));
    if (!incarnation || !valid_host_name(out.host) || (state != "hello" && state != "leave")) {
        return std::nullopt;
    }
    out.incarnation = *incarnation;
    return out;
}

std::optional<uint64_t> parse_tail(const std::string & prefix, const std::string & key) {
    if (!key.starts_with(prefix)) {
        return std::nullopt;
    }
    return parse_number(std::string_view(key).substr(prefix.size()));
}

static Key32 tag_of(const RunKeys & keys, const RecordHead & head, std::span<const uint8_t> body) {
    WireWriter out;
    out.u64(keys.run);
    out.u8(static_cast<uint8_t>(head.kind));
    out.u64(head.index);
    out.text(head.host);
    out.u64(head.incarnation);
    out.raw(body);
    return authenticate(keys.commit_key, out.bytes());
}

Bytes make_record(const RunKeys & keys, const RecordHead & head, std::span<const uint8_t> body) {
    Bytes       payload(body.begin(), body.end());
    const Key32 tag = tag_of(keys, head, body);
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
        (!expected.host.empty() && frame->host != expected.host) || frame->payload.size() < 32) {
        return std::nullopt;
    }
    const auto body = frame->payload.first(frame->payload.size() - 32);
    RecordHead head = expected;
    head.host       = frame->host;
    Key32 tag;
    std::copy(frame->payload.end() - 32, frame->payload.end(), tag.begin());
    if (tag_of(keys, head, body) != tag) {
        return std::nullopt;
    }
    if (author) {
        *author = frame->host;
    }
    return Bytes(body.begin(), body.end());
}

static Bytes head_bytes(const MessageHead & head) {
    WireWriter out;
    out.u64(head.step);
    out.u8(head.phase);
    out.u64(head.weight);
    out.raw(head.base);
    out.u64(head.state_index);
    out.u64(head.state_digest);
    out.u32(head.n_body_bytes);
    out.f32(head.loss);
    out.f32(head.tokens_s);
    out.f32(head.waited_s);
    out.u64(head.up_bytes);
    out.u64(head.down_bytes);
    out.u32(0);  // for later
    GT_CHECK(out.bytes().size() == kMessageHeadBytes, "the head of a message has a fixed size");
    return out.take();
}

std::optional<MessageHead> read_message_head(WireReader & in) {
    MessageHead head;
    head.step         = in.u64();
    head.phase        = in.u8();
    head.weight       = in.u64();
    head.base         = in.key();
    head.state_index  = in.u64();
    head.state_digest = in.u64();
    head.n_body_bytes = in.u32();
    head.loss         = in.f32();
    head.tokens_s     = in.f32();
    head.waited_s     = in.f32();
    head.up_bytes     = in.u64();
    head.down_bytes   = in.u64();
    in.u32();
    const bool is_good =
        in.ok() && head.phase <= 2 && head.weight >= 1 && head.weight <= (1ull << 40);
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
    GT_CHECK(head.n_body_bytes == body.size(), "the head tells the size of the body");
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
    // the sealed text is the head again and the body
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
