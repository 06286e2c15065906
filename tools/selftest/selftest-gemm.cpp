// Products by cuBLASLt against the CPU's: all transpositions, rows longer than the matrix, bias, sums.
#include "tools/selftest/selftest-cuda.h"

#include <cstring>

namespace gt {

namespace {

constexpr double kSums = 3e-6;  // of some hundred terms, in another order

struct Shape {
    int64_t M, N, K;
};

enum class Adds { nothing, residual, itself };

// Bits of `flags`: ta, tb, bf16, bias.
void test_product(SelftestTable & table, Shape s, int flags, Adds adds) {
    const bool    ta = flags & 1, tb = flags & 2, bf16 = flags & 4, bias = flags & 8;
    const int64_t lda = (ta ? s.M : s.K) + 3, ldb = (tb ? s.K : s.N) + 5, ldc = s.N + 2;
    auto          a = selftest_values((ta ? s.K : s.M) * lda, 30),
         b          = selftest_values((tb ? s.N : s.K) * ldb, 31);
    const auto a16 = selftest_rounded(a), b16 = selftest_rounded(b);
    if (bf16) {
        a = selftest_widened(a16);
        b = selftest_widened(b16);
    }
    const auto first = selftest_values(s.M * ldc, 32), other = selftest_values(s.M * ldc, 33),
               v = selftest_values(s.N, 34);
    const DeviceArray<float>    dev_a(a), dev_b(b), dev_c(first), dev_other(other), dev_v(v);
    const DeviceArray<uint16_t> dev_a16(a16), dev_b16(b16);

    auto c = first;
    cpu::gemm(
        {}, {.ta       = ta,
             .tb       = tb,
             .M        = s.M,
             .N        = s.N,
             .K        = s.K,
             .A        = a.data(),
             .lda      = lda,
             .B        = b.data(),
             .ldb      = ldb,
             .C        = c.data(),
             .ldc      = ldc,
             .beta     = adds == Adds::itself ? 1.0f : 0.0f,
             .bias     = bias ? v.data() : nullptr,
             .residual = adds == Adds::residual ? other.data() : nullptr}
    );
    const void *  A = dev_a, *B = dev_b;
    const float * residual = adds == Adds::residual ? dev_other : dev_c;
    if (bf16) {
        A = static_cast<uint16_t *>(dev_a16);
        B = static_cast<uint16_t *>(dev_b16);
    }
    cuda::gemm(
        nullptr, {.ta       = ta,
                  .tb       = tb,
                  .M        = s.M,
                  .N        = s.N,
                  .K        = s.K,
                  .bf16     = bf16,
                  .A        = A,
                  .lda      = lda,
                  .B        = B,
                  .ldb      = ldb,
                  .C        = dev_c,
                  .ldc      = ldc,
                  .bias     = bias ? static_cast<float *>(dev_v) : nullptr,
                  .residual = adds == Adds::nothing ? nullptr : residual}
    );
    table.close(
        format(
            "gemm %s %lldx%lldx%lld%s%s%s%s", bf16 ? "bf16" : "f32", (long long) s.M,
            (long long) s.N, (long long) s.K, ta ? " A'" : "", tb ? " B'" : "", bias ? " bias" : "",
            adds == Adds::nothing    ? ""
            : adds == Adds::residual ? " residual"
                                     : " added"
        ),
        dev_c.get(), c, kSums
    );
}

}  // namespace

std::vector<float> selftest_widened(const std::vector<uint16_t> & x) {
    std::vector<float> y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
        const uint32_t bits = uint32_t{x[i]} << 16;
        std::memcpy(&y[i], &bits, sizeof(bits));
    }
    return y;
}

std::vector<uint16_t> selftest_rounded(const std::vector<float> & x) {
    std::vector<uint16_t> y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
        uint32_t bits;
        std::memcpy(&bits, &x[i], sizeof(bits));
        y[i] = static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
    return y;
}

void selftest_cuda_gemm(SelftestTable & table) {
    if (table.wants("round_bf16")) {
        // ties, the largest float, which becomes infinite, and the smallest
        std::vector<float> x = selftest_values(table.small() ? 300 : 70'000, 35);
        x.insert(x.end(), {0.0f, -0.0f, 1.00390625f, 1.01171875f, 3.4028235e38f, 1e-45f});
        const DeviceArray<float>    dev_x(x);
        const DeviceArray<uint16_t> dev_y(x.size());
        cuda::round_bf16(nullptr, static_cast<int64_t>(x.size()), dev_x, dev_y);
        table.same("round_bf16", dev_y.get(), selftest_rounded(x));
    }
    if (!table.wants("gemm")) {
        return;
    }
    const bool bf16 = cuda::has_tensor_cores();
    for (const Shape & s : table.small()
                               ? std::vector<Shape>{{5, 3, 7}}
                               : std::vector<Shape>{{1, 1, 1}, {33, 70, 41}, {8, 16, 300}}) {
        for (int flags = 0; flags < 16; ++flags) {
            for (const Adds adds : {Adds::nothing, Adds::residual, Adds::itself}) {
                if (bf16 || !(flags & 4)) {
                    test_product(table, s, flags, adds);
                }
            }
        }
    }
}

}  // namespace gt
