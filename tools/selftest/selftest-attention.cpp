// tools/selftest/selftest-attention.cpp — attention on devices: the exact form within F32 rounding, the one on
// tensor cores within what rounding to bf16 explains.
#include "tools/selftest/selftest-cuda.h"

#include <cmath>

namespace gt {

namespace {

constexpr double kF32 = 1e-5;  // of the largest value: sums, exponentials
constexpr double kBf16 =
    1.0 / 256;  // bf16 keeps 8 bits: a rounded value is off by 2^-8 of itself at most

struct Case {
    cuda::Attention    a;
    std::string        name;
    std::vector<float> qkv, d_o;
    std::vector<float> o, lse, dqkv;  // of the CPU
    std::vector<float> given;         // o as the gradient gets it

    // places: null, or of each token in its segment.
    Case(const cuda::Attention & shape, const std::vector<int32_t> * places, bool exact)
        : a(shape) {
        a.positions = places ? places->data() : nullptr;
        name        = format(
                   "attention%s B%lld T%lld H%lld/%lld D%lld%s%s", exact ? "" : " bf16", (long long) a.B,
                   (long long) a.T, (long long) a.H, (long long) a.Hkv, (long long) a.D,
            a.causal ? "" : " both ways", places ? " in segments" : ""
               );
        qkv = selftest_values(a.B * a.T * (a.H + 2 * a.Hkv) * a.D, 18);
        d_o = selftest_values(a.B * a.T * a.H * a.D, 19);
        if (!exact) {
            qkv = selftest_widened(selftest_rounded(qkv));
            d_o = selftest_widened(selftest_rounded(d_o));
        }
        o.assign(d_o.size(), NAN);
        lse.assign(static_cast<size_t>(a.B * a.T * a.H), NAN);
        dqkv.assign(qkv.size(), NAN);
        cpu::attention({}, a, qkv.data(), o.data(), lse.data());
        given = exact ? o : selftest_widened(selftest_rounded(o));
        cpu::attention_back({}, a, qkv.data(), given.data(), lse.data(), d_o.data(), dqkv.data());
    }
};

struct Results {
    std::vector<float> o, lse, dqkv;
};

// positions: on the device. The gradient is that of the CPU's o and lse.
Results run(const Case & c, const int32_t * positions, bool exact) {
    cuda::Attention a = c.a;
    a.positions       = positions;
    const BothTypes          qkv(c.qkv), d_o(c.d_o), given(c.given);
    const BothResults        o(c.o.size()), dqkv(c.qkv.size());
    const DeviceArray<float> lse(c.lse), out_lse(c.lse.size()), delta(c.lse.size());
    if (exact) {
        const DeviceArray<float> dev_qkv(c.qkv), dev_d_o(c.d_o), dev_given(c.given);
        cuda::attention(nullptr, a, dev_qkv, o.f32, out_lse);
        cuda::attention_back(nullptr, a, dev_qkv, dev_given, lse, dev_d_o, delta, dqkv.f32);
        return {o.f32.get(), out_lse.get(), dqkv.f32.get()};
    }
    cuda::attention_bf16(nullptr, a, qkv.bf16, o.bf16, out_lse);
    cuda::attention_bf16_back(nullptr, a, qkv.bf16, given.bf16, lse, d_o.bf16, delta, dqkv.bf16);
    return {selftest_widened(o.bf16.get()), out_lse.get(), selftest_widened(dqkv.bf16.get())};
}

// What rounding may change, per value. The inputs are bf16, so that the first products are exact up to F32
// sums, and so are the weights P and dS = P (dO V' - delta) scale. Each is then rounded once, as a factor:
//   |error of o|  <= u sum over keys of P |v|
//   |error of dv| <= u sum over queries of P |dO|
//   |error of dq| <= u sum over keys of |dS| |k|,  of dk the same over queries with |q|
// with u = 2^-8. The result x with such an error e is rounded once more: by u (|x| + e) at most.
struct Bounds {
    std::vector<double> o, dqkv;

    explicit Bounds(const Case & c) : o(c.o.size()), dqkv(c.qkv.size()) {
        const cuda::Attention & a = c.a;
        for (int64_t i = 0; i < a.B * a.H * a.T * a.T; ++i) {
            const int64_t key = i % a.T, t = i / a.T % a.T, h = i / a.T / a.T % a.H;
            const int64_t b = i / a.T / a.T / a.H, begin = a.segment(b, t);
            if ((a.causal && key > t) || key < begin) {
                continue;
            }
            add(c, b, h, t, key);
        }
        for (size_t i = 0; i < o.size(); ++i) {
            o[i] += kBf16 * (std::fabs(c.o[i]) + o[i]);
        }
        for (size_t i = 0; i < dqkv.size(); ++i) {
            dqkv[i] += kBf16 * (std::fabs(c.dqkv[i]) + dqkv[i]);
        }
    }

private:
    void add(const Case & c, int64_t b, int64_t h, int64_t t, int64_t key) {
        const cuda::Attention & a  = c.a;
        const int64_t           hk = h / (a.H / a.Hkv), ld = a.H + 2 * a.Hkv;
        const int64_t q = ((b * a.T + t) * ld + h) * a.D, out = ((b * a.T + t) * a.H + h) * a.D;
        const int64_t k = ((b * a.T + key) * ld + a.H + hk) * a.D, v = k + a.Hkv * a.D;
        const double  scale = 1.0 / std::sqrt(static_cast<double>(a.D));
        double        s = 0.0, dp = 0.0, delta = 0.0;
        for (int64_t d = 0; d < a.D; ++d) {
            s += scale * c.qkv[q + d] * c.qkv[k + d];
            dp += static_cast<double>(c.d_o[out + d]) * c.qkv[v + d];
            delta += static_cast<double>(c.d_o[out + d]) * c.given[out + d];
        }
        const double p  = std::exp(s - c.lse[(b * a.H + h) * a.T + t]);
        const double ds = p * std::fabs(dp - delta) * scale;
        for (int64_t d = 0; d < a.D; ++d) {
            o[out + d] += kBf16 * p * std::fabs(c.qkv[v + d]);
            dqkv[v + d] += kBf16 * p * std::fabs(c.d_o[out + d]);
            dqkv[q + d] += kBf16 * ds * std::fabs(c.qkv[k + d]);
            dqkv[k + d] += kBf16 * ds * std::fabs(c.qkv[q + d]);
        }
    }
};

// segment: tokens per segment; 0: a sequence is one segment.
void test(SelftestTable & table, const cuda::Attention & shape, int32_t segment = 0) {
    std::vector<int32_t> places(static_cast<size_t>(shape.B * shape.T));
    for (size_t i = 0; segment > 0 && i < places.size(); ++i) {
        places[i] = static_cast<int32_t>(i % static_cast<size_t>(shape.T)) % segment;
    }
    const DeviceArray<int32_t> dev_places(places);
    const int32_t * positions = segment > 0 ? static_cast<const int32_t *>(dev_places) : nullptr;

    const Case    f32(shape, segment > 0 ? &places : nullptr, true);
    const Results exact = run(f32, positions, true);
    table.close(f32.name, exact.o, f32.o, kF32);
    table.close(f32.name + " lse", exact.lse, f32.lse, kF32);
    table.close(f32.name + " back", exact.dqkv, f32.dqkv, kF32);
    if (shape.D % cuda::kHeadStep != 0 || !cuda::has_tensor_cores()) {
        return;
    }
    const Case    bf16(shape, segment > 0 ? &places : nullptr, false);
    const Bounds  bounds(bf16);
    const Results rounded = run(bf16, positions, false);
    table.within(bf16.name, rounded.o, bf16.o, kF32, bounds.o);
    table.close(bf16.name + " lse", rounded.lse, bf16.lse, kF32);
    table.within(bf16.name + " back", rounded.dqkv, bf16.dqkv, kF32, bounds.dqkv);
}

}  // namespace

void selftest_cuda_attention(SelftestTable & table) {
    if (!table.wants("attention")) {
        return;
    }
    test(table, {.B = 1, .T = 5, .H = 2, .Hkv = 1, .D = 8, .causal = true});
    test(table, {.B = 1, .T = 70, .H = 1, .Hkv = 1, .D = 32, .causal = true});
    if (!table.small()) {
        test(table, {.B = 2, .T = 33, .H = 2, .Hkv = 2, .D = 32, .causal = true});
        test(table, {.B = 2, .T = 141, .H = 2, .Hkv = 1, .D = 32, .causal = true}, 67);
        test(table, {.B = 1, .T = 130, .H = 4, .Hkv = 2, .D = 64, .causal = true});
        test(table, {.B = 1, .T = 67, .H = 1, .Hkv = 1, .D = 80, .causal = false});
        test(table, {.B = 1, .T = 70, .H = 1, .Hkv = 1, .D = 128, .causal = true});
        test(table, {.B = 1, .T = 9, .H = 1, .Hkv = 1, .D = 6, .causal = true});
    }
}

}  // namespace gt
