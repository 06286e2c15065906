// comm/invite.cpp — hosts.txt as one line of text, and back.
#include "comm/hosts.h"

namespace gt {

static constexpr size_t kMaxInviteBytes = 2 << 20;
static constexpr char   kInviteMark[]   = "gt1.";

std::string make_invite(const Hosts & hosts) {
    Hosts shared = hosts;
    for (HostLine & host : shared.hosts) {
        host.data.clear();  // a path on one machine says nothing to another
    }
    const std::string text = hosts_text(shared);
    Bytes             bytes(text.begin(), text.end());
    const Key32       sum = digest256(bytes);
    bytes.insert(bytes.end(), sum.begin(), sum.begin() + 4);
    return kInviteMark + to_base64(bytes);
}

std::string invite_text(const std::string & invite) {
    const std::string next = "; copy the whole line again, from gt1. to its end";
    std::string       letters;
    for (const char c : invite.substr(0, kMaxInviteBytes)) {
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
            letters += c;  // chat programs break long lines
        }
    }
    if (!letters.starts_with(kInviteMark)) {
        throw Error("invite: does not begin with gt1." + next);
    }
    const std::optional<Bytes> bytes = from_base64(letters.substr(4));
    if (!bytes || bytes->size() < 5) {
        throw Error("invite: not complete" + next);
    }
    const std::span<const uint8_t> text = std::span(*bytes).first(bytes->size() - 4);
    const Key32                    sum  = digest256(text);
    if (!std::equal(sum.begin(), sum.begin() + 4, bytes->end() - 4)) {
        throw Error("invite: not complete, or a letter is wrong" + next);
    }
    return {text.begin(), text.end()};
}

Hosts parse_invite(const std::string & invite) {
    return parse_hosts(invite_text(invite), "invite");
}

}  // namespace gt
