// Like cuda-emu.cpp, never compiled with sanitizers.
#include "matrix-unit.h"

#include <cstdint>
#include <cstring>

namespace cuda_emu {

// Element i of words that hold two each.
static unsigned half_of(const unsigned * words, int i) {
    return words[i / 2] >> 16 * (i % 2) & 0xffffu;
}

static float bf16(const unsigned * words, int i) {
    const uint32_t bits = half_of(words, i) << 16;
    float          x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

void exchange_matrices(const MatrixLane * const (&lanes)[32], bool transposed) {
    for (int m = 0; m < 4; ++m) {
        for (int l = 0; l < 32; ++l) {
            unsigned word = 0;
            for (int i = 0; i < 2; ++i) {
                const int row = l / 4, column = l % 4 * 2 + i;
                word |=
                    half_of(
                        lanes[8 * m + (transposed ? column : row)]->row, transposed ? row : column
                    )
                    << 16 * i;
            }
            lanes[l]->to[m] = word;
        }
    }
}

void multiply_tiles(const ProductLane * const (&lanes)[32]) {
    float a[16][16], b[16][8];
    for (int l = 0; l < 32; ++l) {
        const int group = l / 4, in_group = l % 4;
        for (int i = 0; i < 8; ++i) {
            const int row    = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
            const int column = in_group * 2 + i % 2 + (i >= 4 ? 8 : 0);
            a[row][column]   = bf16(lanes[l]->a, i);
        }
        for (int i = 0; i < 4; ++i) {
            b[in_group * 2 + i % 2 + (i >= 2 ? 8 : 0)][group] = bf16(lanes[l]->b, i);
        }
    }
    for (int l = 0; l < 32; ++l) {
        for (int i = 0; i < 4; ++i) {
            const int row = i < 2 ? l / 4 : l / 4 + 8, column = l % 4 * 2 + i % 2;
            float     sum = lanes[l]->c[i];
            for (int k = 0; k < 16; ++k) {
                sum += a[row][k] * b[k][column];
            }
            lanes[l]->c[i] = sum;
        }
    }
}

}  // namespace cuda_emu
