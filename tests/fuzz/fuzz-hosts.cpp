// Any text: parse_host_lines and invite_text throw Error, or the result survives a round trip.
#include "comm/run/hosts.h"

using namespace gt;

static void check(const std::string & text) {
    try {
        const Hosts hosts = parse_host_lines(text, "f");
        const auto  again = hosts_text(parse_host_lines(hosts_text(hosts), "g"));
        GT_CHECK(again == hosts_text(hosts), "not the same after writing and reading");
        const Hosts invited = parse_host_lines(invite_text(make_invite(hosts)), "invite");
        GT_CHECK(invited.hosts.size() == hosts.hosts.size(), "invite");
    } catch (const Error & error) {
        GT_CHECK(error.what()[0] != 0, "no message");
    }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    const std::string text(data, data + size);
    check(text);
    check("key " + std::string(43, 'A') + "\nanna h:1\n" + text);
    try {
        (void) invite_text(text);
    } catch (const Error & error) {
        GT_CHECK(error.what()[0] != 0, "no message");
    }
    return 0;
}
