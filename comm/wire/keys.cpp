// comm/wire/keys.cpp — see keys.h.
#include "comm/wire/keys.h"

#include "comm/wire/frame.h"

#include <charconv>

namespace gt {

static std::string number(uint64_t value) {
    return format("%012llu", static_cast<unsigned long long>(value));
}

RunPaths::RunPaths(uint64_t run)
    : root(format("r%016llx/", static_cast<unsigned long long>(run))) {}

std::string RunPaths::messages() const {
    return root + "message/";
}
std::string RunPaths::messages(uint64_t index) const {
    return messages() + number(index) + "/";
}
std::string RunPaths::message(const MessageId & id) const {
    return messages(id.index) + id.host + "/" + number(id.incarnation);
}
std::string
RunPaths::message(uint64_t index, const std::string & host, uint64_t incarnation) const {
    return message({index, host, incarnation});
}
std::string RunPaths::held(uint64_t index) const {
    return root + "held/" + number(index) + "/";
}
std::string RunPaths::held(const MessageId & id) const {
    return held(id.index) + id.host + "/" + number(id.incarnation);
}
std::string RunPaths::commits() const {
    return root + "commit/";
}
std::string RunPaths::commit(uint64_t index, uint32_t revision) const {
    return commits() + number(index) + "-" + std::to_string(revision);
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
std::string RunPaths::ask(const std::string & host, uint64_t index) const {
    return presences(host) + number(index) + "-ask";
}
std::string RunPaths::removed(const std::string & host) const {
    return presences(host) + number(0) + "-removed";
}
std::string RunPaths::restored(const std::string & host, uint64_t index) const {
    return presences(host) + number(index) + "-restored";
}
std::string RunPaths::epochs() const {
    return root + "epoch/";
}
std::string RunPaths::epoch(uint64_t epoch) const {
    return epochs() + number(epoch);
}
std::string RunPaths::parts(uint64_t index) const {
    return root + "part/" + number(index) + "/";
}
std::string
RunPaths::pieces(uint64_t index, int part, const std::string & host, uint64_t incarnation) const {
    return parts(index) + std::to_string(part) + "/" + host + "/" + number(incarnation) + "/";
}
std::string RunPaths::piece(const std::string & pieces, int piece) const {
    return pieces + std::to_string(piece);
}
std::string RunPaths::readies(uint64_t index) const {
    return root + "ready/" + number(index) + "/";
}
std::string
RunPaths::ready(uint64_t index, int part, const std::string & host, uint64_t incarnation) const {
    return readies(index) + std::to_string(part) + "/" + host + "/" + number(incarnation);
}
std::string RunPaths::losts(uint64_t index, uint32_t revision) const {
    return root + "lost/" + number(index) + "-" + std::to_string(revision) + "/";
}
std::string RunPaths::lost(uint64_t index, uint32_t revision, const std::string & host) const {
    return losts(index, revision) + host;
}
std::string RunPaths::floors() const {
    return root + "floor/";
}
std::string RunPaths::floor(uint64_t index) const {
    return floors() + number(index);
}
std::string RunPaths::shards(uint64_t index) const {
    return root + "shard/" + number(index) + "/";
}
std::string
RunPaths::shard(uint64_t index, const std::string & host, uint64_t incarnation, int shard) const {
    return shards(index) + host + "/" + number(incarnation) + "/" + std::to_string(shard);
}
std::string RunPaths::settings() const {
    return root + "settings";
}
std::string RunPaths::model() const {
    return root + "model";
}
std::string RunPaths::probe() const {
    return root + "probe";
}
std::string RunPaths::check(const std::string & host) const {
    return root + "check/" + host;
}

std::optional<uint64_t> parse_number(std::string_view text) {
    uint64_t   value  = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || result.ec != std::errc() || result.ptr != text.data() + text.size()) {
        return std::nullopt;
    }
    return value;
}

// The rest of a key, part by part.
namespace {

class KeyParts {
public:
    KeyParts(std::string_view key, const std::string & prefix)
        : ok_(key.starts_with(prefix)), rest_(ok_ ? key.substr(prefix.size()) : "") {}

    // Everything up to `end`, which is required and skipped.
    std::string_view until(char end) {
        const size_t at = rest_.find(end);
        ok_             = ok_ && at != rest_.npos;
        if (!ok_) {
            return {};
        }
        const std::string_view part = rest_.substr(0, at);
        rest_                       = rest_.substr(at + 1);
        return part;
    }
    std::string_view rest() const { return rest_; }

    uint64_t number(std::string_view text) {
        const auto value = parse_number(text);
        ok_              = ok_ && value;
        return value.value_or(0);
    }
    std::string host(std::string_view text) {
        std::string name(text);
        ok_ = ok_ && valid_host_name(name);
        return name;
    }
    void require(bool good) { ok_ = ok_ && good; }
    bool ok() const { return ok_; }

private:
    bool             ok_;
    std::string_view rest_;
};

}  // namespace

// presence/HOST/INCARNATION-hello or -leave, presence/HOST/INDEX-ask or -restored,
// presence/HOST/0-removed
std::optional<PresenceKey> RunPaths::parse_presence(const std::string & key) const {
    KeyParts    parts(key, presences());
    PresenceKey out;
    out.host        = parts.host(parts.until('/'));
    out.incarnation = parts.number(parts.until('-'));
    out.kind        = parts.rest() == "leave"      ? PresenceKey::Kind::leave
                      : parts.rest() == "ask"      ? PresenceKey::Kind::ask
                      : parts.rest() == "removed"  ? PresenceKey::Kind::removed
                      : parts.rest() == "restored" ? PresenceKey::Kind::restored
                                                   : PresenceKey::Kind::hello;
    parts.require(out.kind != PresenceKey::Kind::hello || parts.rest() == "hello");
    return parts.ok() ? std::optional(out) : std::nullopt;
}

// commit/INDEX-REVISION
std::optional<CommitKey> RunPaths::parse_commit(const std::string & key) const {
    KeyParts       parts(key, commits());
    const uint64_t index    = parts.number(parts.until('-'));
    const uint64_t revision = parts.number(parts.rest());
    parts.require(revision <= UINT32_MAX);
    return parts.ok() ? std::optional(CommitKey{index, static_cast<uint32_t>(revision)})
                      : std::nullopt;
}

// message/INDEX/HOST/INCARNATION or shard/INDEX/HOST/INCARNATION/NUMBER
std::optional<BulkKey> RunPaths::parse_bulk(const std::string & key) const {
    BulkKey out;
    out.is_message = key.starts_with(messages());
    KeyParts parts(key, out.is_message ? messages() : root + "shard/");
    out.id.index       = parts.number(parts.until('/'));
    out.id.host        = parts.host(parts.until('/'));
    out.id.incarnation = parts.number(out.is_message ? parts.rest() : parts.until('/'));
    if (!out.is_message) {
        parts.number(parts.rest());
    }
    return parts.ok() ? std::optional(out) : std::nullopt;
}

bool is_bulk_key(const std::string & key) {
    const size_t slash = key.find('/');
    const auto   rest  = slash == key.npos ? "" : key.substr(slash + 1);
    return rest.starts_with("message/") || rest.starts_with("shard/") || rest.starts_with("part/");
}

std::optional<uint64_t> RunPaths::parse_epoch(const std::string & key) const {
    KeyParts       parts(key, epochs());
    const uint64_t epoch = parts.number(parts.rest());
    return parts.ok() ? std::optional(epoch) : std::nullopt;
}

std::optional<uint64_t> RunPaths::parse_floor(const std::string & key) const {
    KeyParts       parts(key, floors());
    const uint64_t index = parts.number(parts.rest());
    return parts.ok() ? std::optional(index) : std::nullopt;
}

}  // namespace gt
