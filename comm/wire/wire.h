// comm/wire/wire.h — writes and reads numbers and strings, little-endian.
//
// WireReader reads untrusted bytes: it never reads past the end, and after the first failure every
// read returns zero. Check ok() or at_end() before using what was read.
#pragma once

#include "ggml-train/base/base.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <type_traits>

namespace gt {

class WireWriter {
public:
    void number(uint64_t value, int n_bytes) {
        for (int i = 0; i < n_bytes; ++i) {
            out_.push_back(static_cast<uint8_t>(value >> (8 * i)));
        }
    }
    void u8(uint64_t value) { number(value, 1); }
    void u16(uint64_t value) { number(value, 2); }
    void u32(uint64_t value) { number(value, 4); }
    void u64(uint64_t value) { number(value, 8); }
    void f32(float value) {
        uint32_t bits = 0;
        std::memcpy(&bits, &value, 4);
        u32(bits);
    }
    void raw(std::span<const uint8_t> bytes) {
        out_.insert(out_.end(), bytes.begin(), bytes.end());
    }
    void text(const std::string & text) {  // at most 65535 bytes
        GT_CHECK(text.size() <= 65535, "text is too long for the wire");
        u16(text.size());
        out_.insert(out_.end(), text.begin(), text.end());
    }

    const Bytes & bytes() const { return out_; }
    Bytes         take() { return std::move(out_); }

private:
    Bytes out_;
};

class WireReader {
public:
    explicit WireReader(std::span<const uint8_t> in) : in_(in) {}

    uint64_t number(int n_bytes) {
        const auto part  = raw(static_cast<size_t>(n_bytes));
        uint64_t   value = 0;
        for (size_t i = 0; i < part.size(); ++i) {
            value |= static_cast<uint64_t>(part[i]) << (8 * i);
        }
        return value;
    }
    uint8_t  u8() { return static_cast<uint8_t>(number(1)); }
    uint16_t u16() { return static_cast<uint16_t>(number(2)); }
    uint32_t u32() { return static_cast<uint32_t>(number(4)); }
    uint64_t u64() { return number(8); }
    float    f32() {
           const uint32_t bits  = u32();
           float          value = 0;
           std::memcpy(&value, &bits, 4);
           return value;
    }
    std::array<uint8_t, 32> key() {
        std::array<uint8_t, 32> out{};
        const auto              part = raw(out.size());
        std::copy(part.begin(), part.end(), out.begin());
        return out;
    }
    std::string text(size_t max) {
        const size_t n = u16();
        if (n > max) {
            fail();
        }
        const auto part = raw(n);
        return {part.begin(), part.end()};
    }
    // The next n bytes. Fails if there are fewer.
    std::span<const uint8_t> raw(size_t n) {
        if (!ok_ || n > in_.size()) {
            fail();
            return {};
        }
        const auto part = in_.first(n);
        in_             = in_.subspan(n);
        return part;
    }
    std::span<const uint8_t> rest() { return raw(in_.size()); }

    void fail() {
        ok_ = false;
        in_ = {};
    }
    bool ok() const { return ok_; }
    bool at_end() const { return ok_ && in_.empty(); }

private:
    std::span<const uint8_t> in_;
    bool                     ok_ = true;
};

// One list of fields serves to write and to read: fields(out, x.a, x.b), fields(in, x.a, x.b).
constexpr size_t kMaxTextField = 128;

template <class T>
void field(WireWriter & out, const T & value) {
    if constexpr (std::is_same_v<T, std::string>) {
        out.text(value);
    } else if constexpr (std::is_same_v<T, float>) {
        out.f32(value);
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
        out.number(static_cast<uint64_t>(value), sizeof value);
    } else {
        out.raw(value);
    }
}
template <class T>
void field(WireReader & in, T & value) {
    if constexpr (std::is_same_v<T, std::string>) {
        value = in.text(kMaxTextField);
    } else if constexpr (std::is_same_v<T, float>) {
        value = in.f32();
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
        value = static_cast<T>(in.number(sizeof value));
    } else {
        value = in.key();
    }
}
template <class Io, class... T>
void fields(Io & io, T &... values) {
    (field(io, values), ...);
}

}  // namespace gt
