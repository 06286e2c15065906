// Keys, sealing, frames, hosts.txt and invites: no network.
#include "comm/run/hosts.h"
#include "comm/wire/frame.h"
#include "comm/wire/seal.h"
#include "tests/catch.h"
#include "tests/comm/store-suite.h"
#include "tests/scratch.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

using namespace gt;

static Key32 secret_of(uint8_t fill) {
    Key32 secret;
    secret.fill(fill);
    return secret;
}

TEST_CASE("the_same_secret_gives_the_same_identity_everywhere", "[seal]") {
    const RunKeys a = keys_from_secret(secret_of('A')), b = keys_from_secret(secret_of('A'));
    const RunKeys c = keys_from_secret(secret_of('B'));
    CHECK(a.certificate == b.certificate);
    CHECK(a.key == b.key);
    CHECK(a.pin == b.pin);
    CHECK(a.token == b.token);
    CHECK(a.run == b.run);
    CHECK(a.certificate != c.certificate);
    CHECK(a.token != c.token);
    CHECK(a.run != c.run);
    // all versions of this program must make the same certificate
    CHECK(a.pin == "sha256//gP1Hd6jWHMS8LbhzIw+woo61vWb7RhdCLLraakwTtXw=");
    CHECK(new_secret() != new_secret());
}

TEST_CASE("a_hub_gets_tls_and_commit_keys_and_cannot_read", "[seal]") {
    const RunKeys full = keys_from_secret(secret_of('A'));
    const RunKeys hub  = keys_from_hub_form(hub_form(full));
    CHECK(hub.certificate == full.certificate);
    CHECK(hub.token == full.token);
    CHECK(hub.run == full.run);
    CHECK(hub.commit_key == full.commit_key);
    CHECK_FALSE(hub.can_read);
    CHECK(hub.seal_key == Key32{});
    CHECK_THROWS_AS(keys_from_hub_form("short"), Error);
}

TEST_CASE("a_sealed_text_opens_only_in_its_context", "[seal]") {
    const RunKeys     keys = keys_from_secret(secret_of('A'));
    const SealContext is{
        .run         = 1,
        .kind        = "message",
        .round       = 7,
        .host        = "anna",
        .incarnation = 2,
        .part        = 0,
        .n_parts     = 2};
    const Bytes text   = some_bytes(1000, 1);
    const Bytes sealed = seal(keys, is, text);
    CHECK(sealed.size() == text.size() + kSealBytes);
    CHECK(open_sealed(keys, is, sealed) == text);
    CHECK(seal(keys, is, text) != sealed);  // another nonce
    const auto differs = [&](const auto & change) {
        SealContext other = is;
        change(other);
        return !open_sealed(keys, other, sealed).has_value();
    };
    CHECK(differs([](SealContext & c) { c.run++; }));
    CHECK(differs([](SealContext & c) { c.kind = "commit"; }));
    CHECK(differs([](SealContext & c) { c.round--; }));
    CHECK(differs([](SealContext & c) { c.host = "ben"; }));
    CHECK(differs([](SealContext & c) { c.incarnation++; }));
    CHECK(differs([](SealContext & c) { c.part++; }));
    CHECK(differs([](SealContext & c) { c.n_parts--; }));
    CHECK_FALSE(open_sealed(keys_from_secret(secret_of('B')), is, sealed).has_value());
    for (size_t n = 0; n < sealed.size(); n += 37) {
        CHECK_FALSE(open_sealed(keys, is, std::span(sealed).first(n)).has_value());
        Bytes damaged = sealed;
        damaged[n] ^= 1;
        CHECK_FALSE(open_sealed(keys, is, damaged).has_value());
    }
    CHECK(open_sealed(keys, is, seal(keys, is, {})) == Bytes{});
}

TEST_CASE("a_commit_is_authentic_only_with_its_key", "[seal]") {
    const RunKeys keys = keys_from_secret(secret_of('A'));
    const Bytes   data = some_bytes(100, 2);
    const Key32   tag  = authenticate(keys.commit_key, data);
    CHECK(authentic(keys.commit_key, data, tag));
    CHECK_FALSE(authentic(keys.seal_key, data, tag));
    CHECK_FALSE(authentic(keys.commit_key, some_bytes(100, 3), tag));
    CHECK(digest256(data) != tag);
}

TEST_CASE("base64_is_strict", "[seal]") {
    for (size_t n = 0; n < 50; n++) {
        const Bytes data = some_bytes(n, n);
        CHECK(from_base64(to_base64(data)) == data);
    }
    for (const char * text :
         {"A", "AA=", "A A", "AA==", "AB", "****", "AAAAA", "\366\365\365\276"}) {
        CHECK_FALSE(from_base64(text).has_value());
    }
}

TEST_CASE("a_damaged_frame_is_rejected", "[frame]") {
    const Bytes payload = some_bytes(500, 1);
    const Frame frame{
        .kind = 3, .run = 11, .round = 12, .host = "anna-1", .incarnation = 4, .payload = payload};
    const Bytes bytes = make_frame(secret_of('K'), frame);
    CHECK(bytes.size() == kFrameHeadBytes + 6 + 500);
    std::string why;
    const auto  got = parse_frame(bytes, &why);
    REQUIRE(got.has_value());
    CHECK(got->kind == 3);
    CHECK(got->run == 11);
    CHECK(got->round == 12);
    CHECK(got->incarnation == 4);
    CHECK(got->host == "anna-1");
    CHECK(got->signer == public_key(secret_of('K')));
    CHECK(Bytes(got->payload.begin(), got->payload.end()) == payload);
    for (size_t n = 0; n < bytes.size(); n++) {
        CHECK_FALSE(parse_frame(std::span(bytes).first(n)).has_value());
        Bytes damaged = bytes;
        damaged[n] ^= 0x10;
        why.clear();
        CHECK_FALSE(parse_frame(damaged, &why).has_value());
        CHECK_FALSE(why.empty());
    }
    Bytes longer = bytes;
    longer.push_back(0);
    CHECK_FALSE(parse_frame(longer).has_value());
    Bytes newer = bytes;
    newer[4]    = kProtocol + 1;
    CHECK_FALSE(parse_frame(newer, &why).has_value());
    CHECK_THAT(why, ContainsSubstring("same version"));
}

static const std::string kKeyLine = "key " + to_base64(secret_of('A')) + "\n";

TEST_CASE("hosts_txt_is_read_as_written", "[hosts]") {
    const Hosts hosts = parse_hosts(
        "# our run\n" + kKeyLine +
            "\r\n"
            "anna anna.example.org:7077 up=20 down=100 data=\"my books\"  # the hub\n"
            "ben  -   up=10.5\n"
            "carl [2001:db8::1]:7077\n"
            "dora\n",
        "hosts.txt"
    );
    REQUIRE(hosts.hosts.size() == 4);
    CHECK(hosts.hub() == hosts.find("anna"));
    CHECK(hosts.find("anna")->up == 20);
    CHECK(hosts.find("anna")->down == 100);
    CHECK(hosts.find("anna")->data == "my books");
    CHECK(hosts.find("ben")->address.empty());
    CHECK(hosts.find("ben")->up == 10.5);
    CHECK(hosts.find("carl")->address == "[2001:db8::1]:7077");
    CHECK(hosts.find("dora")->address.empty());
    CHECK(hosts.find("emil") == nullptr);
    CHECK(hosts.keys.can_read);
    CHECK(hosts_text(parse_hosts(hosts_text(hosts), "x")) == hosts_text(hosts));

    const HostEntry several =
        parse_hosts(kKeyLine + "anna a.org:7077,[2001:db8::1]:7078,192.168.1.5:7079\n", "h")
            .hosts[0];
    CHECK(several.address == "a.org:7077,[2001:db8::1]:7078,192.168.1.5:7079");
    CHECK(listen_address(several) == "[::]:7077");
    const Hosts bucket = parse_hosts(kKeyLine + "anna\nstore s3://b/p\n", "hosts.txt");
    CHECK(bucket.store == "s3://b/p");
    CHECK(bucket.hub() == nullptr);

    const Hosts direct = parse_hosts(kKeyLine + "anna h:1\ndelivery direct\n", "hosts.txt");
    CHECK(direct.direct);
    CHECK(parse_hosts(hosts_text(direct), "x").direct);
    CHECK_FALSE(hosts.direct);

    const Hosts hub =
        parse_hosts("hub-key " + hub_form(hosts.keys) + "\nanna 1.2.3.4:7077\n", "hosts.txt");
    CHECK_FALSE(hub.keys.can_read);
    CHECK(hub.keys.token == hosts.keys.token);
}

TEST_CASE("an_error_in_hosts_txt_has_the_line_and_what_to_do", "[hosts]") {
    const auto message = [](const std::string & text) {
        return error_of([&] { parse_hosts(kKeyLine + text, "hosts.txt"); });
    };
    CHECK_THAT(
        message("anna host\n"), ContainsSubstring("hosts.txt:2") && ContainsSubstring("host:port")
    );
    CHECK_THAT(message("anna host:99999\n"), ContainsSubstring("65535"));
    CHECK_THAT(
        message("anna h:1\nanna -\n"),
        ContainsSubstring("hosts.txt:3") && ContainsSubstring("twice")
    );
    CHECK_THAT(message("anna h:1 up=fast\n"), ContainsSubstring("Mbit/s"));
    CHECK_THAT(message("anna h:1 speed=3\n"), ContainsSubstring("up=, down= and data="));
    CHECK_THAT(message("an/na h:1\n"), ContainsSubstring("host name"));
    CHECK_THAT(message("anna -\n"), ContainsSubstring("no host has an address"));
    CHECK_THAT(message("anna h:1 data=\"x\n"), ContainsSubstring("quote"));
    CHECK_THAT(message("store http://x\n"), ContainsSubstring("s3://bucket/prefix"));
    CHECK_THAT(message("anna h:1\ndelivery pigeon\n"), ContainsSubstring("delivery direct"));
    CHECK_THAT(message("store s3://b/p\ndelivery direct\n"), ContainsSubstring("needs a hub"));
    CHECK_THAT(message(kKeyLine + "anna h:1\n"), ContainsSubstring("second key"));
    CHECK_THAT(error_of([] { parse_hosts("anna h:1\n", "f"); }), ContainsSubstring("hub --new"));
    CHECK_THAT(error_of([] { parse_hosts("key abc\n", "f"); }), ContainsSubstring("f:1"));
    CHECK_THAT(error_of([] { read_hosts("/nowhere"); }), ContainsSubstring("hub --new"));
}

TEST_CASE("an_invite_is_the_file_in_one_line", "[hosts]") {
    const Hosts       hosts  = parse_hosts(kKeyLine + "anna h:1 up=20 data=x\nben -\n", "f");
    const std::string invite = make_invite(hosts);
    CHECK(invite.find_first_of(" \n") == invite.npos);
    const Hosts got = parse_invite(invite);
    CHECK(got.hosts.size() == 2);
    CHECK(got.find("anna")->data.empty());
    CHECK(got.keys.token == hosts.keys.token);
    CHECK(
        parse_invite("  " + invite.substr(0, 40) + "\n" + invite.substr(40) + "\n").hosts.size() ==
        2
    );
    for (size_t n = 0; n < invite.size(); n += 5) {
        CHECK_THAT(
            error_of([&] { parse_invite(invite.substr(0, n)); }), ContainsSubstring("whole line")
        );
    }
}

TEST_CASE("the_certificate_is_valid_on_a_machine_whose_clock_starts_in_1970", "[seal]") {
    const RunKeys keys = keys_from_secret(secret_of('A'));
    const auto    bio  = BIO_new_mem_buf(keys.certificate.data(), int(keys.certificate.size()));
    X509 *        cert = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    REQUIRE(cert);
    time_t clock = 60;  // a minute after the epoch
    CHECK(X509_cmp_time(X509_get0_notBefore(cert), &clock) < 0);
    clock = 4'000'000'000;  // 2096
    CHECK(X509_cmp_time(X509_get0_notAfter(cert), &clock) > 0);
    X509_free(cert);
    BIO_free(bio);
}
