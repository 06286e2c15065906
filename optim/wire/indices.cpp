#include "optim/wire/indices.h"

#include <bit>
#include <cstring>

namespace gt {

static const char * const kBadCount = "the number of indices is not k";
static const char * const kBadBits  = "unused bits are set";
static const char * const kBadOrder = "indices are repeated or out of order";
static const char * const kBadIndex = "an index beyond the chunk";

static constexpr int64_t kRoom = 1024;

// At least 57 bits from bit `at` on. REQUIRES: 8 bytes can be read there.
static uint64_t load_bits(const uint8_t * in, int64_t at) {
    uint64_t word = 0;
    std::memcpy(&word, in + (at >> 3), 8);
    return word >> (at & 7);
}

static void set_bit(uint8_t * out, int64_t at) {
    out[at >> 3] |= static_cast<uint8_t>(1u << (at & 7));
}

IndexCode::IndexCode(int64_t n, int64_t k) : n_(n), k_(k) {
    GT_CHECK(k >= 1 && k <= n && n <= 65536, "index code out of range");
    if (k == n) {
        return;
    }
    int64_t best = n;
    low_         = -1;
    for (int low = 0; low <= 16; ++low) {
        const int64_t upper = k + ((n - 1) >> low);
        if (k * low + upper < best) {
            best        = k * low + upper;
            low_        = low;
            upper_bits_ = upper;
        }
    }
    bytes_ = (best + 7) / 8;
}

void IndexCode::encode(const uint16_t * index, uint8_t * out) const {
    if (k_ == n_) {
        return;
    }
    std::memset(out, 0, bytes_);
    if (low_ < 0) {
        for (int64_t i = 0; i < k_; ++i) {
            set_bit(out, index[i]);
        }
        return;
    }
    const uint32_t mask = (1u << low_) - 1u;
    uint64_t       word = 0;
    int            fill = 0;
    uint8_t *      to   = out;
    for (int64_t i = 0; i < k_; ++i) {
        word |= static_cast<uint64_t>(index[i] & mask) << fill;
        fill += low_;
        if (fill >= 32) {
            const auto half = static_cast<uint32_t>(word);
            std::memcpy(to, &half, 4);
            to += 4;
            word >>= 32;
            fill -= 32;
        }
    }
    for (; fill > 0; fill -= 8, word >>= 8) {
        *to++ |= static_cast<uint8_t>(word);
    }
    for (int64_t i = 0; i < k_; ++i) {
        set_bit(out, k_ * low_ + (index[i] >> low_) + i);
    }
}

const char * IndexCode::decode(const uint8_t * in, uint16_t * index) const {
    if (k_ == n_) {
        for (int64_t i = 0; i < n_; ++i) {
            index[i] = static_cast<uint16_t>(i);
        }
        return nullptr;
    }
    // a padded copy, so that 8 bytes can be read at any offset
    uint8_t   local[kRoom];
    Bytes     large;
    uint8_t * bytes = local;
    if (bytes_ + 8 > kRoom) {
        large.resize(bytes_ + 8);
        bytes = large.data();
    }
    std::memcpy(bytes, in, bytes_);
    std::memset(bytes + bytes_, 0, 8);

    // positions of the set bits, 56 at a time
    const int64_t begin = low_ < 0 ? 0 : k_ * low_, end = low_ < 0 ? n_ : begin + upper_bits_;
    int64_t       count = 0;
    for (int64_t at = begin; at < end; at += 56) {
        const int64_t width = end - at < 56 ? end - at : 56;
        uint64_t      word  = load_bits(bytes, at) & ((1ull << width) - 1);
        if (count + std::popcount(word) > k_) {
            return kBadCount;
        }
        for (; word != 0; word &= word - 1) {
            index[count++] = static_cast<uint16_t>(at - begin + std::countr_zero(word));
        }
    }
    if (count != k_) {
        return kBadCount;
    }
    if (end < bytes_ * 8 && load_bits(bytes, end) != 0) {
        return kBadBits;
    }
    if (low_ < 0) {
        return nullptr;  // bits below n, each once
    }
    const uint64_t mask     = (1ull << low_) - 1;
    int64_t        last     = -1;
    bool           in_order = true;
    for (int64_t i = 0; i < k_; ++i) {
        const auto    low   = static_cast<int64_t>(load_bits(bytes, i * low_) & mask);
        const int64_t value = (index[i] - i) << low_ | low;
        in_order            = in_order && value > last;
        last                = value;
        index[i]            = static_cast<uint16_t>(value);
    }
    return !in_order ? kBadOrder : last >= n_ ? kBadIndex : nullptr;
}

}  // namespace gt
