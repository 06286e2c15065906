// comm/wire/seal.h — the keys of a run, all derived from one secret; sealing and digests.
//
// HKDF-SHA256 derives from the 32 secret bytes a TLS identity (the same Ed25519 certificate on every
// machine, pinned by all), a token, the key that authenticates commits, and the key that seals
// messages end to end. A hub on a rented machine gets only the TLS and commit keys (hub_form): it
// can order messages, but neither read nor forge them.
// Read next: hosts.h (where the secret is written down), frame.h (what is sealed).
#pragma once

#include "ggml-train/base/base.h"

#include <array>
#include <optional>
#include <string>

namespace gt {

using Key32     = std::array<uint8_t, 32>;
using Signature = std::array<uint8_t, 64>;

struct RunKeys {
    uint64_t    run = 0;           // the run's number, in every frame
    std::string certificate, key;  // PEM: our TLS identity, and the only one we accept
    std::string pin;               // sha256//... of the public key, for libcurl
    std::string token;             // sent with every request
    Key32       tls_seed{};
    Key32       commit_key{};
    Key32       seal_key{};
    bool        can_read = false;  // has the seal key
    Key32       host_seed{};       // of this host's own key (host-key.h), which the others pin
    Key32       process{};         // of processes that can't be alive at the same time (NameLock)
};

Key32 new_secret();

RunKeys keys_from_secret(const Key32 & secret);

// The key text for a hub that must not read messages: the TLS and commit keys, 86 characters.
std::string hub_form(const RunKeys & keys);
RunKeys     keys_from_hub_form(const std::string & text);

// What a receiver expects a sealed text to be. Never read from the message: a text of another run,
// round, host or part does not open.
struct SealContext {
    uint64_t    run = 0;
    std::string kind;
    uint64_t    round = 0;
    std::string host;
    uint64_t    incarnation = 0;
    uint32_t    part        = 0;
    uint32_t    n_parts     = 1;
};

// 24 bytes of random nonce | XChaCha20-Poly1305 of the text | 16 bytes of tag.
constexpr size_t kNonceBytes = 24;
constexpr size_t kSealBytes  = kNonceBytes + 16;

Bytes seal(const RunKeys & keys, const SealContext & context, std::span<const uint8_t> text);

// Nothing unless it was sealed with this key for exactly this context.
[[nodiscard]] std::optional<Bytes>
open_sealed(const RunKeys & keys, const SealContext & context, std::span<const uint8_t> sealed);

// BLAKE2b-256; with a key: a tag that only owners of the key can make.
Key32              digest256(std::span<const uint8_t> data);
Key32              authenticate(const Key32 & key, std::span<const uint8_t> data);
[[nodiscard]] bool authentic(const Key32 & key, std::span<const uint8_t> data, const Key32 & tag);

// Ed25519. A host signs with its own key, which tells it from others that have the run's secret.
Key32     public_key(const Key32 & seed);
Signature sign(const Key32 & seed, std::span<const uint8_t> data);
[[nodiscard]] bool
is_signed(const Key32 & public_key, std::span<const uint8_t> data, const Signature & signature);

// URL-safe base64 without padding; decoding is strict.
std::string          to_base64(std::span<const uint8_t> data);
std::optional<Bytes> from_base64(const std::string & text);

}  // namespace gt
