// Port mapping against a NAT-PMP gateway on loopback (RFC 6886) that answers as a router would.
#include "comm/hub/port-map.h"
#include "ggml-train/base/base.h"
#include "tests/catch.h"

#include <arpa/inet.h>
#include <atomic>
#include <cstring>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace gt;

namespace {

class Gateway {
public:
    Gateway(const std::string & external, uint8_t result) : external_(external), result_(result) {
        sockaddr_in at{};
        at.sin_family      = AF_INET;
        at.sin_port        = htons(5351);
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        REQUIRE(::bind(socket_, reinterpret_cast<sockaddr *>(&at), sizeof at) == 0);
        const timeval soon{0, 50'000};
        ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
        thread_ = std::thread([this] { serve(); });
    }
    ~Gateway() {
        stop_ = true;
        thread_.join();
        ::close(socket_);
    }
    std::atomic<int> mapped{0};  // the port that was asked for

private:
    void serve() {
        while (!stop_) {
            uint8_t     ask[16] = {};
            sockaddr_in from{};
            socklen_t   size = sizeof from;
            if (::recvfrom(
                    socket_, ask, sizeof ask, 0, reinterpret_cast<sockaddr *>(&from), &size
                ) < 2) {
                continue;
            }
            uint8_t answer[16] = {0, uint8_t(ask[1] + 128), 0, 0, 0, 0, 0, 1};
            if (ask[1] == 0) {
                ::inet_pton(AF_INET, external_.c_str(), answer + 8);
            } else {
                mapped    = ask[4] << 8 | ask[5];
                answer[3] = result_;
                std::memcpy(answer + 8, ask + 4, 8);
            }
            ::sendto(
                socket_, answer, ask[1] == 0 ? 12 : 16, 0, reinterpret_cast<sockaddr *>(&from), size
            );
        }
    }

    std::string       external_;
    uint8_t           result_;
    int               socket_ = ::socket(AF_INET, SOCK_DGRAM, 0);
    std::atomic<bool> stop_{false};
    std::thread       thread_;
};

std::string map_at(const std::string & external, uint8_t result) {
    Gateway           gateway(external, result);
    const std::string text = map_port(7077, "127.0.0.1");
    CHECK((text.empty() || gateway.mapped == 7077));  // empty: built without libnatpmp
    return text.empty() ? "skipped" : text;
}

}  // namespace

TEST_CASE("the_hub_asks_the_router_for_its_port_and_says_what_came_of_it", "[hub]") {
    CHECK_THAT(
        map_at("203.0.113.9", 0),
        ContainsSubstring("forwards 203.0.113.9:7077") || ContainsSubstring("skipped")
    );
    CHECK_THAT(
        map_at("203.0.113.9", 2),
        ContainsSubstring("forward TCP port 7077") || ContainsSubstring("skipped")
    );
    CHECK_THAT(
        map_at("100.77.1.2", 0),
        ContainsSubstring("shares addresses") || ContainsSubstring("skipped")
    );
    CHECK_THAT(
        map_at("192.168.0.7", 0),
        ContainsSubstring("shares addresses") || ContainsSubstring("skipped")
    );
}

TEST_CASE("only_public_addresses_need_the_router", "[hub]") {
    for (const char * address :
         {"anna.example.org:7077", "203.0.113.5:7077", "192.168.1.5:1,8.8.8.8:1"}) {
        CHECK(is_public_address(address));
    }
    for (const char * address :
         {"127.0.0.1:7077", "localhost:1", "192.168.1.5:7077", "10.9.0.1:7077", "172.16.0.1:1",
          "100.64.0.1:1", "[2001:db8::1]:7077"}) {
        CHECK_FALSE(is_public_address(address));
    }
}
