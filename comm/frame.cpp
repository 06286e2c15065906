// comm/frame.cpp — writes and checks frames; the byte table is in frame.h.
#include "comm/frame.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <sodium.h>

namespace gt {

static constexpr uint8_t kMagic[4] = {'G', 'T', 'F', '1'};
static constexpr size_t  kSumAt    = 40;
static constexpr size_t  kSumBytes = 16;

static void put_number(uint8_t * at, uint64_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) {
        at[i] = uint8_t(value >> (8 * i));
    }
}

static uint64_t get_number(const uint8_t * at, int n_bytes) {
    uint64_t value = 0;
    for (int i = 0; i < n_bytes; i++) {
        value |= uint64_t(at[i]) << (8 * i);
    }
    return value;
}

// Over everything but the sum itself: head, name, payload.
static std::array<uint8_t, 32> sum_of(std::span<const uint8_t> frame) {
    std::array<uint8_t, 32>  sum{};
    crypto_generichash_state state;
    crypto_generichash_init(&state, nullptr, 0, sum.size());
    crypto_generichash_update(&state, frame.data(), kSumAt);
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

Bytes make_frame(const Frame & frame) {
    GT_CHECK(valid_host_name(frame.host), "a frame needs its host's name");
    Bytes out(kFrameHeadBytes + frame.host.size() + frame.payload.size());
    std::memcpy(out.data(), kMagic, 4);
    put_number(&out[4], kProtocol, 2);
    out[6] = frame.kind;
    out[7] = uint8_t(frame.host.size());
    put_number(&out[8], frame.run, 8);
    put_number(&out[16], frame.round, 8);
    put_number(&out[24], frame.incarnation, 8);
    put_number(&out[32], frame.payload.size(), 8);
    const auto name = out.begin() + kFrameHeadBytes;
    std::copy(frame.host.begin(), frame.host.end(), name);
    std::copy(frame.payload.begin(), frame.payload.end(), name + std::ptrdiff_t(frame.host.size()));
    const auto sum = sum_of(out);
    std::memcpy(&out[kSumAt], sum.data(), kSumBytes);
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
        return refuse("shorter than a frame's head");
    }
    if (std::memcmp(value.data(), kMagic, 4) != 0) {
        return refuse("not a frame");
    }
    const uint64_t version = get_number(&value[4], 2);
    if (version != kProtocol) {
        return refuse(format(
            "protocol %d, this program speaks %d; use the same version on all hosts", int(version),
            int(kProtocol)
        ));
    }
    const size_t   name_size = value[7];
    const uint64_t length    = get_number(&value[32], 8);
    const size_t   rest      = value.size() - kFrameHeadBytes;
    if (name_size > rest || length != rest - name_size) {
        return refuse("torn: its length is not what its head says");
    }
    Frame frame;
    frame.kind        = value[6];
    frame.run         = get_number(&value[8], 8);
    frame.round       = get_number(&value[16], 8);
    frame.incarnation = get_number(&value[24], 8);
    frame.host.assign(value.begin() + kFrameHeadBytes, value.begin() + kFrameHeadBytes + name_size);
    frame.payload = value.subspan(kFrameHeadBytes + name_size);
    if (!valid_host_name(frame.host)) {
        return refuse("its host name is not valid");
    }
    const auto sum = sum_of(value);
    if (std::memcmp(sum.data(), &value[kSumAt], kSumBytes) != 0) {
        return refuse("damaged: the checksum is wrong");
    }
    return frame;
}

}  // namespace gt
