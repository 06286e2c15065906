// comm/wire/keys.cpp — see keys.h.
#include "comm/wire/keys.h"

#include "comm/wire/frame.h"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace gt {

// In the order of PresenceKey::Kind.
constexpr std::string_view kPresences[] = {"-hello",   "-leave",    "-ask",
                                           "-removed", "-restored", "-stuck"};

std::string RunPaths::number(uint64_t value) {
    return format("%012llu", static_cast<unsigned long long>(value));
}

RunPaths::RunPaths(uint64_t run)
    : root(format("r%016llx/", static_cast<unsigned long long>(run))) {}

std::string RunPaths::presence(const PresenceKey & key) const {
    const std::string_view kind = kPresences[static_cast<size_t>(key.kind)];
    return presences(key.host) + number(key.incarnation) + std::string(kind);
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

static std::optional<uint64_t> parse_numbered(const std::string & key, const std::string & prefix) {
    return key.starts_with(prefix) ? parse_number(std::string_view(key).substr(prefix.size()))
                                   : std::nullopt;
}

// presence/HOST/NUMBER-KIND
std::optional<PresenceKey> RunPaths::parse_presence(const std::string & key) const {
    KeyParts    parts(key, presences());
    PresenceKey out;
    out.host         = parts.host(parts.until('/'));
    out.incarnation  = parts.number(parts.until('-'));
    const auto * end = std::end(kPresences);
    const auto * it  = std::find(kPresences, end, "-" + std::string(parts.rest()));
    parts.require(it != end);
    out.kind = static_cast<PresenceKey::Kind>(it - kPresences);
    return parts.ok() ? std::optional(out) : std::nullopt;
}

std::optional<uint64_t> RunPaths::parse_commit(const std::string & key) const {
    return parse_numbered(key, commits());
}

// message/INDEX/HOST/INCARNATION or shard/INDEX/HOST/INCARNATION/NUMBER
std::optional<BulkKey> RunPaths::parse_bulk(const std::string & key) const {
    BulkKey out;
    out.is_message = key.starts_with(messages());
    KeyParts parts(key, out.is_message ? messages() : shards());
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
    return parse_numbered(key, epochs());
}

std::optional<uint64_t> RunPaths::parse_floor(const std::string & key) const {
    return parse_numbered(key, floors());
}

}  // namespace gt
