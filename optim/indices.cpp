#include "optim/indices.h"

#include <bit>
#include <cstring>

namespace gt {

static const char * const kBadCount = "the number of indices is not k";
static const char * const kBadBits  = "bits that no sender writes";
static const char * const kBadOrder = "indices are repeated or out of order";
static const char * const kBadIndex = "an index beyond the chunk";

// The 64 bits from bit `at` on, of which those beyond n_bytes are zero.
static uint64_t load_bits(const uint8_t * in, int64_t n_bytes, int64_t at) {
    const int64_t byte = at >> 3;
    uint64_t      word = 0;
    if (byte + 8 <= n_bytes) {
        std::memcpy(&word, in + byte, 8);
    } else if (byte < n_bytes) {
        std::memcpy(&word, in + byte, n_bytes - byte);
    }
    return word >> (at & 7);  // at least 57 bits
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
    int64_t        byte = 0;
    for (int64_t i = 0; i < k_; ++i) {
        word |= static_cast<uint64_t>(index[i] & mask) << fill;
        fill += low_;
        for (; fill >= 8; fill -= 8, word >>= 8) {
            out[byte++] = static_cast<uint8_t>(word);
        }
    }
    if (fill > 0) {
        out[byte] |= static_cast<uint8_t>(word);
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
    // the set bits of the row, word by word; 56 bits at a time are always there
    const int64_t begin = low_ < 0 ? 0 : k_ * low_, end = low_ < 0 ? n_ : begin + upper_bits_;
    int64_t       count = 0;
    uint32_t      upper[64];
    for (int64_t at = begin; at < end; at += 56) {
        const int64_t width = end - at < 56 ? end - at : 56;
        uint64_t      word  = load_bits(in, bytes_, at) & ((1ull << width) - 1);
        int           found = 0;
        for (; word != 0; word &= word - 1) {
            upper[found++] = static_cast<uint32_t>(at - begin + std::countr_zero(word));
        }
        if (count + found > k_) {
            return kBadCount;
        }
        for (int j = 0; j < found; ++j, ++count) {
            uint32_t value = upper[j];
            if (low_ >= 0) {
                const uint32_t low = static_cast<uint32_t>(load_bits(in, bytes_, count * low_)) &
                                     ((1u << low_) - 1u);
                value = (value - static_cast<uint32_t>(count)) << low_ | low;
            }
            if (value >= n_) {
                return kBadIndex;
            }
            index[count] = static_cast<uint16_t>(value);
        }
    }
    if (count != k_) {
        return kBadCount;
    }
    for (int64_t i = 1; i < k_; ++i) {
        if (index[i] <= index[i - 1]) {
            return kBadOrder;
        }
    }
    return end < bytes_ * 8 && load_bits(in, bytes_, end) != 0 ? kBadBits : nullptr;
}

}  // namespace gt
