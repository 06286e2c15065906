// models/rope.h — RoPE as libllama knows it: base, linear scaling, YaRN, LongRoPE, and the factors of
// Llama 3 (rope_freqs). All of them come down to one divisor per pair: at position t pair i turns by
// t / divisor[i].
#pragma once

#include "ggml-train/base/base.h"

#include <array>

namespace gt {

class Checks;
class KeyReader;
class KeyWriter;

struct RopeConfig {
    float       freq_base   = 10000.0f;
    std::string scaling     = "none";  // none, linear, yarn, longrope
    float       factor      = 1.0f;    // how many times the context was stretched
    float       attn_factor = 1.0f;
    int64_t     n_ctx_orig  = 0;  // context before it was stretched; 0: the model's

    // One factor per pair, or empty: of Llama 3, or of LongRoPE for short and long contexts. In files they
    // are tensors.
    std::vector<float> freqs, factors_short, factors_long;
};

// The factors by the names of their tensors.
struct RopeFactors {
    const char *       name;
    std::vector<float> RopeConfig::*values;
};
inline constexpr std::array kRopeFactors = {
    RopeFactors{"rope_freqs.weight", &RopeConfig::freqs},
    RopeFactors{"rope_factors_short.weight", &RopeConfig::factors_short},
    RopeFactors{"rope_factors_long.weight", &RopeConfig::factors_long}};

// The keys; factors are read by load_model.
RopeConfig read_rope(const KeyReader & in);
void       write_rope(const RopeConfig & rope, const KeyWriter & out);
void       check_rope(const RopeConfig & rope, int64_t head_dim, const Checks & checks);

// Divisors of a head of D values, for sequences of T tokens; n_ctx: the model's context.
std::vector<float> rope_divisors(const RopeConfig & rope, int64_t D, int64_t n_ctx, int64_t T);

// Factor of queries and keys.
float rope_scale(const RopeConfig & rope);

}  // namespace gt
