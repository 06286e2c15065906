// Products by cuBLASLt against the CPU's: all transpositions, rows longer than the matrix, bias, sums.
#include "tools/selftest/selftest-cuda.h"

#include <cmath>
#include <cstring>

namespace gt {

namespace {

constexpr double kSums = 3e-6;  // of some hundred terms, in another order

struct Shape {
    int64_t M, N, K;
};

enum class Adds { nothing, residual, itself };

// Bits of `flags`: ta, tb, bf16, bias, result of bf16 with bias and residual. That is another product of the library,
// whose sums may be of another order: its result may be the next bf16.
void test_product(SelftestTable & table, Shape s, int flags, Adds adds) {
    const bool      ta = flags & 1, tb = flags & 2, bf16 = flags & 4, bias = flags & 8;
    const bool      to_bf16 = flags & 16;
    const int64_t   lda = (ta ? s.M : s.K) + 3, ldb = (tb ? s.K : s.N) + 5, ldc = s.N + 2;
    const BothTypes a(selftest_values((ta ? s.K : s.M) * lda, 30)),
        b(selftest_values((tb ? s.N : s.K) * ldb, 31)), other(selftest_values(s.M * ldc, 33)),
        v(selftest_values(s.N, 34)), first(selftest_values(s.M * ldc, 32));

    auto c = first.values;
    cpu::gemm(
        {}, {.ta       = ta,
             .tb       = tb,
             .M        = s.M,
             .N        = s.N,
             .K        = s.K,
             .A        = a.values.data(),
             .lda      = lda,
             .B        = b.values.data(),
             .ldb      = ldb,
             .C        = c.data(),
             .ldc      = ldc,
             .beta     = adds == Adds::itself ? 1.0f : 0.0f,
             .bias     = bias ? v.values.data() : nullptr,
             .residual = adds == Adds::residual ? other.values.data() : nullptr}
    );
    const cuda::Out C        = to_bf16 ? cuda::Out(first.bf16) : cuda::Out(first.f32);
    const void *    residual = adds == Adds::residual ? other.as(to_bf16).at : C.at;
    cuda::gemm(
        nullptr, {.ta       = ta,
                  .tb       = tb,
                  .M        = s.M,
                  .N        = s.N,
                  .K        = s.K,
                  .bf16     = bf16,
                  .A        = a.as(bf16).at,
                  .lda      = lda,
                  .B        = b.as(bf16).at,
                  .ldb      = ldb,
                  .C        = C,
                  .ldc      = ldc,
                  .bias     = bias ? v.as(to_bf16).at : nullptr,
                  .residual = adds == Adds::nothing ? nullptr : residual}
    );
    std::vector<double> rounding;
    for (size_t i = 0; to_bf16 && i < c.size(); ++i) {
        rounding.push_back(std::fabs(c[i]) / 256.0);
    }
    table.within(
        format(
            "gemm %s %lldx%lldx%lld%s%s%s%s",
            to_bf16 ? "bf16 to bf16"
            : bf16  ? "bf16"
                    : "f32",
            (long long) s.M, (long long) s.N, (long long) s.K, ta ? " A'" : "", tb ? " B'" : "",
            bias ? " bias" : "",
            adds == Adds::nothing    ? ""
            : adds == Adds::residual ? " residual"
                                     : " added"
        ),
        to_bf16 ? selftest_widened(first.bf16.get()) : first.f32.get(), c, kSums, rounding
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
    if (table.wants("convert")) {
        // ties, the largest float, which becomes infinite, and the smallest
        std::vector<float> x = selftest_values(table.small() ? 300 : 70'000, 35);
        x.insert(x.end(), {0.0f, -0.0f, 1.00390625f, 1.01171875f, 3.4028235e38f, 1e-45f});
        const DeviceArray<float>    dev_x(x);
        const DeviceArray<uint16_t> dev_y(x.size());
        const DeviceArray<float>    dev_back(x.size());
        cuda::convert(nullptr, static_cast<int64_t>(x.size()), dev_x, dev_y);
        cuda::convert(nullptr, static_cast<int64_t>(x.size()), dev_y, dev_back);
        table.same("convert to bf16", dev_y.get(), selftest_rounded(x));
        table.same("convert from bf16", dev_back.get(), selftest_widened(selftest_rounded(x)));
    }
    if (!table.wants("gemm")) {
        return;
    }
    const bool bf16 = cuda::has_tensor_cores();
    for (const Shape & s : table.small()
                               ? std::vector<Shape>{{5, 3, 7}}
                               : std::vector<Shape>{{1, 1, 1}, {33, 70, 41}, {8, 16, 300}}) {
        for (int flags = 0; flags < 32; ++flags) {
            for (const Adds adds : {Adds::nothing, Adds::residual, Adds::itself}) {
                if (bf16 ? (flags & 20) != 16 : flags < 16 && !(flags & 4)) {
                    test_product(table, s, flags, adds);
                }
            }
        }
    }
}

}  // namespace gt
