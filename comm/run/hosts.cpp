// comm/run/hosts.cpp — reads and writes hosts.txt and invites; errors have the line and what to do.
#include "comm/run/hosts.h"

#include "comm/store/store-kinds.h"
#include "comm/wire/frame.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace gt {

static constexpr size_t kMaxFileBytes   = 1 << 20;
static constexpr size_t kMaxAddress     = 300;
static constexpr double kMaxMbit        = 1e6;
static constexpr size_t kHubKeyBytes    = 64;
static constexpr size_t kMaxInviteBytes = 2 << 20;
static constexpr size_t kInviteSumBytes = 4;
static constexpr char   kInviteMark[]   = "gt1.";

namespace {

struct Place {
    const std::string & file;
    int                 line;

    [[noreturn]] void fail(const std::string & what) const {
        throw Error(file + ":" + std::to_string(line) + ": " + what);
    }
};

}  // namespace

// Splits a line at blanks; quotes keep blanks inside a word; '#' starts a comment.
static std::vector<std::string> words_of(const std::string & line, const Place & place) {
    std::vector<std::string> words;
    std::string              word;
    bool                     in_word = false, quoted = false;
    for (const char c : line) {
        if (c == '"') {
            quoted  = !quoted;
            in_word = true;
        } else if (quoted) {
            word += c;
        } else if (c == '#' && !in_word) {
            break;
        } else if (c == ' ' || c == '\t' || c == '\r') {
            if (in_word) {
                words.push_back(word);
            }
            word.clear();
            in_word = false;
        } else {
            word += c;
            in_word = true;
        }
        if (static_cast<unsigned char>(c) < 32 && c != '\t' && c != '\r') {
            place.fail("control character; save the file as plain text");
        }
    }
    if (quoted) {
        place.fail("missing closing quote; add \"");
    }
    if (in_word) {
        words.push_back(word);
    }
    return words;
}

static void check_address(const std::string & text, const Place & place) {
    const size_t colon = text.rfind(':');
    const auto   wrong = [&](const std::string & what) {
        place.fail(
              "address '" + text.substr(0, 80) + "': " + what +
              "; use host:port, as in anna.example.org:7077 or [2001:db8::1]:7077 (several with "
                "commas), or - for none"
          );
    };
    if (colon == text.npos || colon == 0 || text.size() > kMaxAddress) {
        wrong("no port");
    }
    const std::string host = text.substr(0, colon), port = text.substr(colon + 1);
    if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != port.npos ||
        std::stoi(port) < 1 || std::stoi(port) > 65535) {
        wrong("the port is not a number from 1 to 65535");
    }
    const bool        v6      = host.size() > 2 && host.front() == '[' && host.back() == ']';
    const std::string inner   = v6 ? host.substr(1, host.size() - 2) : host;
    const char *      letters = v6 ? "0123456789abcdefABCDEF:."
                                   : "0123456789abcdefghijklmnopqrstuvwxyz"
                                     "ABCDEFGHIJKLMNOPQRSTUVWXYZ.-_";
    if (inner.empty() || inner.find_first_not_of(letters) != inner.npos) {
        wrong("not a host name or IP address");
    }
}

static std::string check_addresses(const std::string & text, const Place & place) {
    std::istringstream all(text + ",");  // so that a comma at the end is an empty address
    for (std::string address; std::getline(all, address, ',');) {
        check_address(address, place);
    }
    return text;
}

static double check_speed(const std::string & name, const std::string & text, const Place & place) {
    char *       end   = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !std::isfinite(value) || value <= 0 || value > kMaxMbit) {
        place.fail(name + "=" + text + ": invalid speed; use Mbit/s, as in " + name + "=20");
    }
    return value;
}

std::string host_name_problem(const std::string & name) {
    return valid_host_name(name) ? ""
                                 : "host name '" + name.substr(0, 80) +
                                       "' is invalid; use 1 to 64 letters, digits and ._-";
}

static HostEntry parse_host(const std::vector<std::string> & words, const Place & place) {
    HostEntry host;
    host.name = words[0];
    if (const std::string problem = host_name_problem(host.name); !problem.empty()) {
        place.fail(problem);
    }
    for (size_t i = 1; i < words.size(); i++) {
        const std::string & word  = words[i];
        const size_t        equal = word.find('=');
        const std::string   name  = word.substr(0, equal);
        const std::string   value = equal == word.npos ? "" : word.substr(equal + 1);
        if (equal == word.npos && i == 1) {
            host.address = word == "-" ? "" : check_addresses(word, place);
        } else if (name == "up" && equal != word.npos) {
            host.up = check_speed(name, value, place);
        } else if (name == "down" && equal != word.npos) {
            host.down = check_speed(name, value, place);
        } else if (name == "data" && !value.empty()) {
            host.data = value;
        } else {
            place.fail(
                "'" + word.substr(0, 80) +
                "' is unknown; after name and address only up=, down= and data= are allowed"
            );
        }
    }
    return host;
}

static void parse_key(Hosts & out, const std::vector<std::string> & words, const Place & place) {
    if (!out.key.empty() || !out.hub_key.empty()) {
        place.fail("second key; a run has exactly one: remove one of the lines");
    }
    const std::string next = "copy the line again from the file that `hub --new` wrote";
    if (words.size() != 2) {
        place.fail("a key line must have two words; " + next);
    }
    const std::optional<Bytes> bytes = from_base64(words[1]);
    if (words[0] == "key") {
        if (!bytes || bytes->size() != sizeof(Key32)) {
            place.fail("the key is not 43 characters of base64; " + next);
        }
        out.key = words[1];
    } else {
        if (!bytes || bytes->size() != kHubKeyBytes) {
            place.fail("the hub-key is not 86 characters of base64; " + next);
        }
        out.hub_key = words[1];
    }
}

static void parse_store(Hosts & out, const std::vector<std::string> & words, const Place & place) {
    const std::string & url = words.size() == 2 ? words[1] : words[0];
    if (words.size() != 2 || !find_store_kind(url)) {
        place.fail("invalid store; use " + store_examples());
    }
    if (!out.store.empty()) {
        place.fail("second store; a run has one: remove one of the lines");
    }
    out.store = url;
}

static void
parse_delivery(Hosts & out, const std::vector<std::string> & words, const Place & place) {
    if (words.size() != 2 || (words[1] != "direct" && words[1] != "star")) {
        place.fail("invalid delivery; use delivery direct or delivery star");
    }
    out.direct = words[1] == "direct";
}

Hosts parse_host_lines(const std::string & text, const std::string & file) {
    if (text.size() > kMaxFileBytes) {
        throw Error(file + ": larger than 1 MiB: not a hosts file");
    }
    Hosts              out;
    std::istringstream in(text);
    std::string        line;
    Place              place{file, 0};
    while (std::getline(in, line)) {
        place.line++;
        const std::vector<std::string> words = words_of(line, place);
        if (words.empty()) {
            continue;
        }
        if (words[0] == "key" || words[0] == "hub-key") {
            parse_key(out, words, place);
        } else if (words[0] == "store") {
            parse_store(out, words, place);
        } else if (words[0] == "delivery") {
            parse_delivery(out, words, place);
        } else {
            HostEntry host = parse_host(words, place);
            if (out.find(host.name)) {
                place.fail("host '" + host.name + "' is listed twice; give each its own name");
            }
            if (out.hosts.size() == kMaxHosts) {
                place.fail(format("more than %zu hosts", kMaxHosts));
            }
            out.hosts.push_back(std::move(host));
        }
    }
    if (out.key.empty() && out.hub_key.empty()) {
        throw Error(file + ": no 'key' line; create the file with: hub --new --address HOST:PORT");
    }
    if (out.direct && !out.store.empty()) {
        throw Error(file + ": delivery direct needs a hub; remove that line or the store line");
    }
    if (out.store.empty() && !out.hub()) {
        throw Error(
            file +
            ": no host has an address; add host:port to one that others can reach, or a line " +
            store_examples()
        );
    }
    return out;
}

Hosts parse_hosts(const std::string & text, const std::string & file) {
    Hosts      out   = parse_host_lines(text, file);
    const auto bytes = from_base64(out.key);
    if (out.key.empty() || !bytes) {  // parse_key has checked it
        out.keys = keys_from_hub_form(out.hub_key);
    } else {
        Key32 secret{};
        std::copy(bytes->begin(), bytes->end(), secret.begin());
        out.keys = keys_from_secret(secret);
    }
    return out;
}

Hosts read_hosts(const std::string & path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) {
        throw Error(path + ": can't be read; create it with: hub --new --address HOST:PORT");
    }
    std::string text(kMaxFileBytes + 1, '\0');
    in.read(text.data(), std::streamsize(text.size()));
    text.resize(size_t(in.gcount()));
    return parse_hosts(text, path);
}

std::string port_of(const HostEntry & host) {
    const std::string first = host.address.substr(0, host.address.find(','));
    return first.substr(first.rfind(':'));
}

std::string listen_address(const HostEntry & host) {
    return "[::]" + port_of(host);
}

const HostEntry * Hosts::find(const std::string & name) const {
    for (const HostEntry & host : hosts) {
        if (host.name == name) {
            return &host;
        }
    }
    return nullptr;
}

const HostEntry * Hosts::hub() const {
    if (!store.empty()) {
        return nullptr;
    }
    for (const HostEntry & host : hosts) {
        if (!host.address.empty()) {
            return &host;
        }
    }
    return nullptr;
}

std::string hosts_text(const Hosts & hosts) {
    const auto quoted = [](const std::string & word) {
        return word.find_first_of(" \t#") == word.npos ? word : format("\"%s\"", word.c_str());
    };
    std::string out = hosts.key.empty() ? "hub-key " + hosts.hub_key : "key " + hosts.key;
    out += "\n";
    if (!hosts.store.empty()) {
        out += "store " + quoted(hosts.store) + "\n";
    }
    out += hosts.direct ? "delivery direct\n" : "";
    for (const HostEntry & host : hosts.hosts) {
        out += host.name + " " + (host.address.empty() ? "-" : host.address);
        out += host.up > 0 ? format(" up=%.15g", host.up) : "";
        out += host.down > 0 ? format(" down=%.15g", host.down) : "";
        out += host.data.empty() ? "" : " data=" + quoted(host.data);
        out += "\n";
    }
    return out;
}

std::string make_invite(const Hosts & hosts) {
    Hosts shared = hosts;
    for (HostEntry & host : shared.hosts) {
        host.data.clear();  // a path is valid on one machine only
    }
    const std::string text = hosts_text(shared);
    Bytes             bytes(text.begin(), text.end());
    const Key32       sum = digest256(bytes);
    bytes.insert(bytes.end(), sum.begin(), sum.begin() + kInviteSumBytes);
    return kInviteMark + to_base64(bytes);
}

std::string invite_text(const std::string & invite) {
    const std::string next = "; copy the whole line again, from gt1. to its end";
    std::string       characters;
    for (const char c : invite.substr(0, kMaxInviteBytes)) {
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
            characters += c;  // chat programs break long lines
        }
    }
    if (!characters.starts_with(kInviteMark)) {
        throw Error("invite: must begin with gt1." + next);
    }
    const std::optional<Bytes> bytes = from_base64(characters.substr(sizeof kInviteMark - 1));
    if (!bytes || bytes->size() <= kInviteSumBytes) {
        throw Error("invite: incomplete" + next);
    }
    const std::span<const uint8_t> text = std::span(*bytes).first(bytes->size() - kInviteSumBytes);
    const Key32                    sum  = digest256(text);
    if (!std::equal(sum.begin(), sum.begin() + 4, bytes->end() - kInviteSumBytes)) {
        throw Error("invite: incomplete, or a character is wrong" + next);
    }
    return {text.begin(), text.end()};
}

Hosts parse_invite(const std::string & invite) {
    return parse_hosts(invite_text(invite), "invite");
}

}  // namespace gt
