// Any text: parse_hosts and parse_invite refuse with a message, or what they read is written and
// read again as the same.
// SOURCES: comm/hosts.cpp comm/invite.cpp comm/frame.cpp comm/seal.cpp ggml-train/base.cpp
// LIBS: -lsodium -lcrypto
#include "comm/hosts.h"

using namespace gt;

static void check(const std::string & text) {
    try {
        const Hosts hosts = parse_hosts(text, "f");
        const auto  again = hosts_text(parse_hosts(hosts_text(hosts), "g"));
        GT_CHECK(again == hosts_text(hosts), "not the same after writing and reading");
        GT_CHECK(parse_invite(make_invite(hosts)).hosts.size() == hosts.hosts.size(), "invite");
    } catch (const Error & error) {
        GT_CHECK(error.what()[0] != 0, "no message");
    }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    const std::string text(data, data + size);
    check(text);
    check("key " + std::string(43, 'A') + "\nanna h:1\n" + text);
    try {
        (void) parse_invite(text);
    } catch (const Error &) {
    }
    return 0;
}
