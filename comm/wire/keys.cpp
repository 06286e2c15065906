// comm/wire/keys.cpp — see keys.h.
#include "comm/wire/keys.h"

#include "comm/wire/frame.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <sstream>
#include <vector>

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

// The rest of a key, cut at slashes; none: it has another prefix.
static std::vector<std::string> parts_of(const std::string & key, const std::string & prefix) {
    std::vector<std::string> parts;
    std::istringstream       rest(key.starts_with(prefix) ? key.substr(prefix.size()) + "/" : "");
    for (std::string part; std::getline(rest, part, '/');) {
        parts.push_back(part);
    }
    return parts;
}

static std::optional<uint64_t> parse_numbered(const std::string & key, const std::string & prefix) {
    return key.starts_with(prefix) ? parse_number(std::string_view(key).substr(prefix.size()))
                                   : std::nullopt;
}

// presence/HOST/NUMBER-KIND
std::optional<PresenceKey> RunPaths::parse_presence(const std::string & key) const {
    const auto   parts = parts_of(key, presences());
    const size_t dash  = parts.size() == 2 ? parts[1].find('-') : std::string::npos;
    const auto   number =
        dash == std::string::npos ? std::nullopt : parse_number(parts[1].substr(0, dash));
    if (!number || !valid_host_name(parts[0])) {
        return std::nullopt;
    }
    const auto * end  = std::end(kPresences);
    const auto * it   = std::find(kPresences, end, parts[1].substr(dash));
    const auto   kind = static_cast<PresenceKey::Kind>(it - kPresences);
    return it == end ? std::nullopt : std::optional(PresenceKey{kind, parts[0], *number});
}

std::optional<uint64_t> RunPaths::parse_commit(const std::string & key) const {
    return parse_numbered(key, commits());
}

bool RunPaths::is_sequencers(const std::string & key) const {
    return key.starts_with(commits()) || key.starts_with(floors());
}

// part/INDEX/SLICE/... or ready/INDEX/SLICE/...
std::optional<int> RunPaths::parse_slice(const std::string & key) const {
    const auto parts = parts_of(key, root);
    const auto slice = parts.size() > 2 ? parse_number(parts[2]) : std::nullopt;
    return slice && *slice < kMaxSlices ? std::optional(static_cast<int>(*slice)) : std::nullopt;
}

// message/INDEX/HOST/INCARNATION or shard/INDEX/HOST/INCARNATION/NUMBER
std::optional<BulkKey> RunPaths::parse_bulk(const std::string & key) const {
    const bool is_message = key.starts_with(messages());
    const auto parts      = parts_of(key, is_message ? messages() : shards());
    if (parts.size() != (is_message ? 3 : 4) || !valid_host_name(parts[1])) {
        return std::nullopt;
    }
    const auto index = parse_number(parts[0]), incarnation = parse_number(parts[2]);
    if (!index || !incarnation || !parse_number(parts.back())) {
        return std::nullopt;
    }
    return BulkKey{{*index, parts[1], *incarnation}, is_message};
}

bool is_bulk_key(const std::string & key) {
    const size_t slash = key.find('/');
    const auto   rest  = slash == key.npos ? "" : key.substr(slash + 1);
    return rest.starts_with("message/") || rest.starts_with("shard/") || rest.starts_with("part/");
}

std::optional<uint64_t> RunPaths::parse_floor(const std::string & key) const {
    return parse_numbered(key, floors());
}

}  // namespace gt
