// Products by cuBLASLt against the CPU's: all transpositions, rows longer than the matrix, bias, sums, GELU.
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

// In one with the product, or by kernels of ours after it.
//
// By how much more than its sum may GELU differ? Kernels read the sum x as bf16, 2^-8 |x| away, and GELU's slope is at
// most 1.13; the result is rounded by as much, that of the slope twice. PTX's tanh.approx, which the library may take,
// has an error t of 2^-11: of GELU that is |x| t/2, of its slope t/2 + |x| t z', with z' the slope of tanh's argument.
void test_gelu(SelftestTable & table, Shape s, bool bias) {
    const int64_t   n = s.M * s.N;
    const BothTypes a(selftest_values(s.M * s.K, 36)), b(selftest_values(s.N * s.K, 37, 0.2f)),
        v(selftest_values(s.N, 38)), x(selftest_values(n, 39));
    std::vector<float> sum(static_cast<size_t>(n)), y(sum), dx(sum);
    cpu::Gemm          host{
                 .tb  = true,
                 .M   = s.M,
                 .N   = s.N,
                 .K   = s.K,
                 .A   = a.values.data(),
                 .lda = s.K,
                 .B   = b.values.data(),
                 .ldb = s.K,
                 .C   = dx.data(),
                 .ldc = s.N};
    cuda::Gemm device{
        .tb   = true,
        .M    = s.M,
        .N    = s.N,
        .K    = s.K,
        .bf16 = true,
        .A    = a.bf16,
        .lda  = s.K,
        .B    = b.bf16,
        .ldb  = s.K,
        .ldc  = s.N};
    cpu::gemm({}, host);
    const std::vector<float> back = dx;
    cpu::gelu_back({}, n, cpu::Gelu::tanh, x.values.data(), back.data(), dx.data());
    host.C    = sum.data();
    host.bias = bias ? v.values.data() : nullptr;
    cpu::gemm({}, host);
    cpu::gelu({}, n, cpu::Gelu::tanh, sum.data(), y.data());

    const DeviceArray<uint16_t> dev_y(sum.size()), dev_sum(sum.size()), dev_dx(sum.size());
    device.C     = dev_dx;
    device.then  = cuda::Gemm::Then::gelu_back;
    device.inner = x.bf16;
    cuda::gemm(nullptr, device);
    device.C     = dev_y;
    device.bias  = bias ? static_cast<const void *>(v.bf16) : nullptr;
    device.then  = cuda::Gemm::Then::gelu;
    device.inner = dev_sum;
    cuda::gemm(nullptr, device);

    constexpr double    kTanh = 1.0 / 2048.0;
    std::vector<double> of_sum, of_y, of_dx;
    for (size_t i = 0; i < sum.size(); ++i) {
        const double u = std::fabs(sum[i]), w = std::fabs(x.values[i]);
        const double slope = 0.8 * (1.0 + 3.0 * 0.045 * w * w);
        of_sum.push_back(u / 256.0);
        of_y.push_back(std::fabs(y[i]) / 256.0 + u * (1.13 / 256.0 + kTanh / 2.0));
        of_dx.push_back(std::fabs(dx[i]) / 128.0 + std::fabs(back[i]) * kTanh * (0.5 + w * slope));
    }
    const std::string name = format(
        "gemm %lldx%lldx%lld%s", (long long) s.M, (long long) s.N, (long long) s.K,
        bias ? " bias" : ""
    );
    const auto got = [](const DeviceArray<uint16_t> & x) { return selftest_widened(x.get()); };
    table.within(name + " before gelu", got(dev_sum), sum, kSums, of_sum);
    table.within(name + " gelu", got(dev_y), y, 1.13 * kSums, of_y);
    table.within(name + " gelu's slope", got(dev_dx), dx, 1.13 * kSums, of_dx);
}

// The gradient of a bias beside that of its weight.
void test_sums(SelftestTable & table, Shape s, bool bf16) {
    const int64_t            lda = s.M + 3;
    const BothTypes          a(selftest_values(s.K * lda, 40)), b(selftest_values(s.K * s.N, 41));
    const DeviceArray<float> C(std::vector<float>(static_cast<size_t>(s.M * s.N))),
        sums(static_cast<size_t>(s.M));
    std::vector<float> want(static_cast<size_t>(s.M));
    cpu::sum_rows({}, s.K, s.M, a.values.data(), lda, 0.0f, want.data());
    cuda::gemm(
        nullptr, {.ta       = true,
                  .M        = s.M,
                  .N        = s.N,
                  .K        = s.K,
                  .bf16     = bf16,
                  .A        = a.as(bf16).at,
                  .lda      = lda,
                  .B        = b.as(bf16).at,
                  .ldb      = s.N,
                  .C        = C,
                  .ldc      = s.N,
                  .residual = C,
                  .a_sums   = sums}
    );
    table.close(
        format(
            "gemm %s %lldx%lldx%lld, sums of A", bf16 ? "bf16" : "f32", (long long) s.M,
            (long long) s.N, (long long) s.K
        ),
        sums.get(), want, kSums
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
                               ? std::vector<Shape>{{5, 3, 7}, {3, 8, 5}}
                               : std::vector<Shape>{{1, 1, 1}, {33, 70, 41}, {8, 16, 300}}) {
        for (int flags = 0; flags < 32; ++flags) {
            for (const Adds adds : {Adds::nothing, Adds::residual, Adds::itself}) {
                if (bf16 ? (flags & 20) != 16 : flags < 16 && !(flags & 4)) {
                    test_product(table, s, flags, adds);
                }
            }
        }
        test_sums(table, s, false);
        if (bf16) {
            test_sums(table, s, true);
            test_gelu(table, s, false);
            test_gelu(table, s, true);
        }
    }
}

}  // namespace gt
