// tests/comm/hub-fixture.h — a hub on loopback and its clients, for the net-hub tests.
#pragma once

#include "comm/http/http-client.h"
#include "comm/hub/hub.h"
#include "tests/catch.h"
#include "tests/comm/store-suite.h"
#include "tests/scratch.h"

namespace gt {

using namespace std::chrono_literals;

inline RunKeys keys_of(uint8_t fill) {
    Key32 secret;
    secret.fill(fill);
    return keys_from_secret(secret);
}

inline HubOptions hub_options(const Scratch & folder) {
    HubOptions options;
    options.path  = folder / "hub";
    options.keys  = keys_from_hub_form(hub_form(keys_of('A')));  // a hub needs no more
    options.quiet = true;
    return options;
}

inline HttpStoreOptions client_options(const Hub & hub, const RunKeys & keys) {
    HttpStoreOptions options;
    options.address = "127.0.0.1:" + std::to_string(hub.port());
    options.keys    = &keys;
    options.host    = "anna";
    options.stall   = 10s;
    options.give_up = 10s;
    return options;
}

inline HttpOptions raw_options(const Hub & hub, const RunKeys & keys) {
    HttpOptions options;
    options.base    = "https://127.0.0.1:" + std::to_string(hub.port());
    options.keys    = &keys;
    options.headers = {"X-Host: anna"};
    options.stall   = 2s;
    options.give_up = 1s;
    return options;
}

}  // namespace gt
