// comm/wire/frame.cpp — writes and parses frames; the byte table is in frame.h.
#include "comm/wire/frame.h"

#include "comm/wire/wire.h"

#include <algorithm>
#include <sodium.h>

namespace gt {

static constexpr uint32_t kMagic       = 0x31465447;  // "GTF1"
static constexpr size_t   kKeyAt       = 44;
static constexpr size_t   kSignatureAt = kKeyAt + sizeof(Key32);

// The digest of all but the signature.
static Key32 sum_of(std::span<const uint8_t> frame) {
    Key32                    sum{};
    crypto_generichash_state state;
    crypto_generichash_init(&state, nullptr, 0, sum.size());
    crypto_generichash_update(&state, frame.data(), kSignatureAt);
    crypto_generichash_update(
        &state, frame.data() + kFrameHeadBytes, frame.size() - kFrameHeadBytes
    );
    crypto_generichash_final(&state, sum.data(), sum.size());
    return sum;
}

bool valid_host_name(const std::string & name) {
    if (name.empty() || name.size() > kMaxHostNameSize || name[0] == '.' || name[0] == '-') {
        return false;
    }
    for (const char c : name) {
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && c != '.' && c != '_' && c != '-') {
            return false;
        }
    }
    return true;
}

Bytes make_frame(const Key32 & host_seed, const Frame & frame) {
    GT_CHECK(valid_host_name(frame.host), "a frame needs a valid host name");
    WireWriter head;
    head.u32(kMagic);
    head.u16(kProtocol);
    head.u8(frame.kind);
    head.u8(frame.host.size());
    head.u64(frame.run);
    head.u64(frame.round);
    head.u64(frame.incarnation);
    head.u64(frame.payload.size());
    head.u32(frame.part);
    head.raw(public_key(host_seed));
    Bytes out(kFrameHeadBytes + frame.host.size() + frame.payload.size());
    std::copy(head.bytes().begin(), head.bytes().end(), out.begin());
    const auto name = out.begin() + kFrameHeadBytes;
    std::copy(frame.host.begin(), frame.host.end(), name);
    std::copy(frame.payload.begin(), frame.payload.end(), name + std::ptrdiff_t(frame.host.size()));
    std::ranges::copy(sign(host_seed, sum_of(out)), out.begin() + kSignatureAt);
    return out;
}

std::optional<Frame> parse_frame(std::span<const uint8_t> value, std::string * why) {
    const auto refuse = [&](const std::string & reason) -> std::optional<Frame> {
        if (why) {
            *why = reason;
        }
        return std::nullopt;
    };
    if (value.size() < kFrameHeadBytes) {
        return refuse("shorter than the head of a frame");
    }
    WireReader head(value);
    if (head.u32() != kMagic) {
        return refuse("not a frame");
    }
    const uint16_t version = head.u16();
    if (version != kProtocol) {
        return refuse(format(
            "protocol version %d, expected %d; use the same version on all hosts", int(version),
            int(kProtocol)
        ));
    }
    Frame frame;
    frame.kind             = head.u8();
    const size_t name_size = head.u8();
    frame.run              = head.u64();
    frame.round            = head.u64();
    frame.incarnation      = head.u64();
    const uint64_t length  = head.u64();
    const size_t   rest    = value.size() - kFrameHeadBytes;
    Signature      signature;
    frame.part   = head.u32();
    frame.signer = head.key();
    std::ranges::copy(head.raw(signature.size()), signature.begin());
    if (name_size > rest || length != rest - name_size) {
        return refuse("truncated: its length differs from the one in its head");
    }
    frame.host.assign(value.begin() + kFrameHeadBytes, value.begin() + kFrameHeadBytes + name_size);
    frame.payload = value.subspan(kFrameHeadBytes + name_size);
    if (!valid_host_name(frame.host)) {
        return refuse("invalid host name");
    }
    if (!is_signed(frame.signer, sum_of(value), signature)) {
        return refuse("damaged: wrong signature");
    }
    return frame;
}

}  // namespace gt
