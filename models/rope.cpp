#include "models/rope.h"

#include "models/arch-parts.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gt {

RopeConfig read_rope(const KeyReader & in) {
    RopeConfig rope;
    rope.freq_base = in.get_float("rope.freq_base", 10000.0f);
    // libllama's defaults: linear, by the factor of an older key
    rope.scaling     = in.get_string("rope.scaling.type", "linear");
    const float old  = in.get_float("rope.scale_linear", 0.0f);
    const float told = in.get_float("rope.scaling.factor", old);
    rope.factor      = told == 0.0f || rope.scaling == "none" ? 1.0f : told;
    rope.attn_factor = in.get_float("rope.scaling.attn_factor", 1.0f);
    rope.n_ctx_orig  = in.find_int("rope.scaling.original_context_length").value_or(0);
    if (rope.scaling == "linear" && rope.factor == 1.0f) {
        rope.scaling = "none";
    }
    return rope;
}

void write_rope(const RopeConfig & rope, const KeyWriter & out) {
    out.set_float("rope.freq_base", rope.freq_base);
    if (rope.scaling != "none") {
        out.set_string("rope.scaling.type", rope.scaling);
        out.set_float("rope.scaling.factor", rope.factor);
    }
    if (rope.attn_factor != 1.0f) {
        out.set_float("rope.scaling.attn_factor", rope.attn_factor);
    }
    if (rope.n_ctx_orig > 0) {
        out.set_int("rope.scaling.original_context_length", rope.n_ctx_orig);
    }
}

void check_rope(const RopeConfig & rope, int64_t head_dim, const Checks & checks) {
    if (head_dim % 2 != 0) {
        checks.fail(format(
            "the head size is %lld; it must be even: RoPE rotates pairs",
            static_cast<long long>(head_dim)
        ));
    }
    if (!(rope.freq_base > 1.0f)) {
        checks.fail(format("RoPE frequency base is %g; it must be above 1", rope.freq_base));
    }
    if (!(rope.factor > 0.0f) || !(rope.attn_factor > 0.0f)) {
        checks.fail(
            format("RoPE scaling by %g and %g; both must be above 0", rope.factor, rope.attn_factor)
        );
    }
    const std::array known = {"none", "linear", "yarn", "longrope"};
    if (std::find(known.begin(), known.end(), rope.scaling) == known.end()) {
        checks.fail(
            "RoPE scaling \"" + rope.scaling + "\" is not one of none, linear, yarn, longrope"
        );
    }
    for (const RopeFactors & factors : kRopeFactors) {
        const std::vector<float> & values = rope.*factors.values;
        const bool                 valid =
            std::all_of(values.begin(), values.end(), [](float x) { return x > 0.0f; });
        if (!valid || (!values.empty() && static_cast<int64_t>(values.size()) != head_dim / 2)) {
            checks.fail(format(
                "%s must have %lld values above 0", factors.name,
                static_cast<long long>(head_dim / 2)
            ));
        }
    }
}

// YaRN, arXiv 2309.00071: pairs that turn often keep their speed, slow ones are slowed down by the factor,
// between them lies a ramp. Returns where pair i is on it: 1 keeps, 0 slows down.
static double yarn_ramp(const RopeConfig & rope, int64_t D, int64_t n_ctx, int64_t i) {
    constexpr double kFast = 32.0, kSlow = 1.0;  // turns within the original context
    const auto       pair_of = [&](double turns) {
        const double n = static_cast<double>(rope.n_ctx_orig > 0 ? rope.n_ctx_orig : n_ctx);
        return static_cast<double>(D) * std::log(n / (turns * 2.0 * std::numbers::pi)) /
               (2.0 * std::log(static_cast<double>(rope.freq_base)));
    };
    const double low  = std::max(0.0, std::floor(pair_of(kFast)));
    const double high = std::min(static_cast<double>(D - 1), std::ceil(pair_of(kSlow)));
    return 1.0 - std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
}

std::vector<float> rope_divisors(const RopeConfig & rope, int64_t D, int64_t n_ctx, int64_t T) {
    const int64_t              n_orig  = rope.n_ctx_orig > 0 ? rope.n_ctx_orig : n_ctx;
    const std::vector<float> & longs   = T > n_orig ? rope.factors_long : rope.factors_short;
    const std::vector<float> & factors = rope.freqs.empty() ? longs : rope.freqs;
    std::vector<float>         divisors;
    for (int64_t i = 0; i < D / 2; ++i) {
        double speed = std::pow(
            static_cast<double>(rope.freq_base),
            -2.0 * static_cast<double>(i) / static_cast<double>(D)
        );
        speed /= factors.empty() ? 1.0 : static_cast<double>(factors[static_cast<size_t>(i)]);
        const double slow = speed / static_cast<double>(rope.factor);
        const double ramp = rope.scaling == "yarn" ? yarn_ramp(rope, D, n_ctx, i) : 0.0;
        divisors.push_back(static_cast<float>(1.0 / (slow * (1.0 - ramp) + speed * ramp)));
    }
    return divisors;
}

float rope_scale(const RopeConfig & rope) {
    const float yarn =
        rope.scaling == "yarn" && rope.factor > 1.0f ? 1.0f + 0.1f * std::log(rope.factor) : 1.0f;
    return yarn * rope.attn_factor;
}

}  // namespace gt
