// comm/wire/seal.cpp — key derivation and the certificate by OpenSSL 3, sealing and digests by libsodium.
#include "comm/wire/seal.h"

#include "comm/wire/wire.h"

#include <algorithm>
#include <memory>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sodium.h>

namespace gt {

constexpr uint32_t kSealMagic = 0x31535447;  // "GTS1"

template <typename T, void (*F)(T *)>
struct Freed {
    void operator()(T * x) const { F(x); }
};
using KdfContext = std::unique_ptr<EVP_KDF_CTX, Freed<EVP_KDF_CTX, EVP_KDF_CTX_free>>;
using Kdf        = std::unique_ptr<EVP_KDF, Freed<EVP_KDF, EVP_KDF_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY, EVP_PKEY_free>>;
using Cert       = std::unique_ptr<X509, Freed<X509, X509_free>>;
using MemoryBio  = std::unique_ptr<BIO, Freed<BIO, BIO_free_all>>;

static void need_sodium() {
    static const int ready = sodium_init();
    GT_CHECK(ready >= 0, "sodium_init failed");
}

static Key32 hkdf(const Key32 & secret, const std::string & info) {
    const Kdf        kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
    const KdfContext context(EVP_KDF_CTX_new(kdf.get()));
    char             digest[]  = "SHA256";
    char             salt[]    = "ggml-train-run-v1";
    Key32            key       = secret;
    std::string      info_copy = info;
    Key32            out{};
    const OSSL_PARAM parameter[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, key.data(), key.size()),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt, sizeof salt - 1),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info_copy.data(), info_copy.size()),
        OSSL_PARAM_construct_end(),
    };
    GT_CHECK(
        context && EVP_KDF_derive(context.get(), out.data(), out.size(), parameter) > 0, "HKDF"
    );
    return out;
}

static std::string text_of(BIO * bio) {
    char *     data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    return {data, size_t(size)};
}

// Valid for a machine whose clock starts in 1970, too. Serial number, dates and name are fixed, and Ed25519 signatures are deterministic: every machine
// makes the same certificate, so none has to be distributed.
static void make_identity(RunKeys & keys) {
    const PrivateKey key(
        EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, keys.tls_seed.data(), 32)
    );
    const Cert cert(X509_new());
    GT_CHECK(key && cert, "OpenSSL without Ed25519");
    X509_set_version(cert.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert.get()), 1);
    ASN1_TIME_set_string_X509(X509_getm_notBefore(cert.get()), "19700101000000Z");
    ASN1_TIME_set_string_X509(X509_getm_notAfter(cert.get()), "20991231235959Z");
    X509_set_pubkey(cert.get(), key.get());
    X509_NAME * name = X509_get_subject_name(cert.get());
    const auto  run  = reinterpret_cast<const unsigned char *>("ggml-train run");
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, run, -1, -1, 0);
    X509_set_issuer_name(cert.get(), name);
    GT_CHECK(X509_sign(cert.get(), key.get(), nullptr) > 0, "can't sign the run's certificate");

    const MemoryBio cert_text(BIO_new(BIO_s_mem())), key_text(BIO_new(BIO_s_mem()));
    PEM_write_bio_X509(cert_text.get(), cert.get());
    PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    keys.certificate = text_of(cert_text.get());
    keys.key         = text_of(key_text.get());

    unsigned char * der     = nullptr;
    const int       n_der   = i2d_PUBKEY(key.get(), &der);
    unsigned char   sha[32] = {};
    EVP_Digest(der, size_t(n_der), sha, nullptr, EVP_sha256(), nullptr);
    OPENSSL_free(der);
    unsigned char pin[64] = {};
    EVP_EncodeBlock(pin, sha, 32);  // libcurl wants padded base64
    keys.pin = std::string("sha256//") + reinterpret_cast<char *>(pin);
}

// The keys of a hub that must not read messages; everything here is derived from these two.
static RunKeys keys_for_hub(const Key32 & tls_seed, const Key32 & commit_key) {
    need_sodium();
    RunKeys keys;
    keys.tls_seed   = tls_seed;
    keys.commit_key = commit_key;
    keys.token      = to_base64(hkdf(tls_seed, "token"));
    const Key32 run = hkdf(tls_seed, "run");
    keys.run        = WireReader(run).u64();
    make_identity(keys);
    return keys;
}

Key32 new_secret() {
    need_sodium();
    Key32 secret{};
    randombytes_buf(secret.data(), secret.size());
    return secret;
}

RunKeys keys_from_secret(const Key32 & secret) {
    RunKeys keys  = keys_for_hub(hkdf(secret, "tls-ed25519"), hkdf(secret, "commit"));
    keys.seal_key = hkdf(secret, "seal-xchacha20");
    keys.can_read = true;
    return keys;
}

std::string hub_form(const RunKeys & keys) {
    Bytes both(keys.tls_seed.begin(), keys.tls_seed.end());
    both.insert(both.end(), keys.commit_key.begin(), keys.commit_key.end());
    return to_base64(both);
}

RunKeys keys_from_hub_form(const std::string & text) {
    const std::optional<Bytes> both = from_base64(text);
    if (!both || both->size() != 64) {
        throw Error("hub-key: not 64 bytes in base64; copy the whole line of hosts.txt again");
    }
    Key32 tls_seed{}, commit_key{};
    std::copy_n(both->begin(), 32, tls_seed.begin());
    std::copy_n(both->begin() + 32, 32, commit_key.begin());
    return keys_for_hub(tls_seed, commit_key);
}

// Strings have their length in front, so that different contexts never give the same bytes.
static Bytes associated_data(const SealContext & context) {
    WireWriter out;
    const auto text = [&](const std::string & value) {
        out.u64(value.size());
        out.raw({reinterpret_cast<const uint8_t *>(value.data()), value.size()});
    };
    out.u32(kSealMagic);
    out.u64(context.run);
    text(context.kind);
    out.u64(context.round);
    text(context.host);
    out.u64(context.incarnation);
    out.u64(context.part);
    out.u64(context.n_parts);
    return out.take();
}

Bytes seal(const RunKeys & keys, const SealContext & context, std::span<const uint8_t> text) {
    need_sodium();
    GT_CHECK(keys.can_read, "sealing needs the run's secret");
    const Bytes aad = associated_data(context);
    Bytes       out(text.size() + kSealBytes);
    randombytes_buf(out.data(), kNonceBytes);
    crypto_aead_xchacha20poly1305_ietf_encrypt(
        out.data() + kNonceBytes, nullptr, text.data(), text.size(), aad.data(), aad.size(),
        nullptr, out.data(), keys.seal_key.data()
    );
    return out;
}

std::optional<Bytes>
open_sealed(const RunKeys & keys, const SealContext & context, std::span<const uint8_t> sealed) {
    need_sodium();
    GT_CHECK(keys.can_read, "opening needs the run's secret");
    if (sealed.size() < kSealBytes) {
        return std::nullopt;
    }
    const Bytes aad = associated_data(context);
    Bytes       out(sealed.size() - kSealBytes);
    if (crypto_aead_xchacha20poly1305_ietf_decrypt(
            out.data(), nullptr, nullptr, sealed.data() + kNonceBytes, sealed.size() - kNonceBytes,
            aad.data(), aad.size(), sealed.data(), keys.seal_key.data()
        ) != 0) {
        return std::nullopt;
    }
    return out;
}

Key32 digest256(std::span<const uint8_t> data) {
    need_sodium();
    Key32 out{};
    crypto_generichash(out.data(), out.size(), data.data(), data.size(), nullptr, 0);
    return out;
}

Key32 authenticate(const Key32 & key, std::span<const uint8_t> data) {
    need_sodium();
    Key32 out{};
    crypto_generichash(out.data(), out.size(), data.data(), data.size(), key.data(), key.size());
    return out;
}

bool authentic(const Key32 & key, std::span<const uint8_t> data, const Key32 & tag) {
    const Key32 expected = authenticate(key, data);
    return sodium_memcmp(expected.data(), tag.data(), tag.size()) == 0;
}

struct SigningPair {
    explicit SigningPair(const Key32 & seed) {
        need_sodium();
        crypto_sign_seed_keypair(open.data(), secret.data(), seed.data());
    }
    ~SigningPair() { sodium_memzero(secret.data(), secret.size()); }

    Key32                                           open{};
    std::array<uint8_t, crypto_sign_SECRETKEYBYTES> secret{};
};

Key32 public_key(const Key32 & seed) {
    return SigningPair(seed).open;
}

Signature sign(const Key32 & seed, std::span<const uint8_t> data) {
    const SigningPair pair(seed);
    Signature         signature;
    crypto_sign_detached(signature.data(), nullptr, data.data(), data.size(), pair.secret.data());
    return signature;
}

bool is_signed(
    const Key32 & public_key, std::span<const uint8_t> data, const Signature & signature
) {
    return crypto_sign_verify_detached(
               signature.data(), data.data(), data.size(), public_key.data()
           ) == 0;
}

std::string to_base64(std::span<const uint8_t> data) {
    constexpr int kind = sodium_base64_VARIANT_URLSAFE_NO_PADDING;
    std::string   out(sodium_base64_encoded_len(data.size(), kind), '\0');
    sodium_bin2base64(out.data(), out.size(), data.data(), data.size(), kind);
    out.pop_back();  // the terminating zero
    return out;
}

std::optional<Bytes> from_base64(const std::string & text) {
    Bytes        out(text.size() * 3 / 4 + 1);
    size_t       n_out = 0;
    const char * end   = nullptr;
    if (sodium_base642bin(
            out.data(), out.size(), text.data(), text.size(), nullptr, &n_out, &end,
            sodium_base64_VARIANT_URLSAFE_NO_PADDING
        ) != 0 ||
        end != text.data() + text.size()) {
        return std::nullopt;
    }
    out.resize(n_out);
    if (to_base64(out) != text) {  // libsodium 1.0.18 accepts some bytes above 127
        return std::nullopt;
    }
    return out;
}

}  // namespace gt
