// Our graphs and llama.cpp, given our exports, must compute the same logits.
#include "models/text/generate.h"
#include "tests/catch.h"
#include "tests/models/stirred-model.h"
#include "tests/scratch.h"

using namespace gt;

TEST_CASE("our_logits_are_llama_cpps_logits_of_our_export", "[ref]") {
    const struct {
        const char * name;
        const char * arch;
        ModelSizes   sizes;
        void (*change)(ModelConfig & config) = nullptr;
    } cases[] = {
        {"gpt2", "gpt2", {.layers = 3, .width = 96, .heads = 3, .context = 64}},
        {"gpt2, untied",
         "gpt2",
         {.layers = 1, .width = 64, .heads = 2, .context = 64, .untied = true}},
        {"llama", "llama", {.layers = 3, .width = 96, .heads = 3, .context = 64}},
        {"llama, grouped heads, untied, other RoPE base",
         "llama",
         {.layers    = 2,
          .width     = 128,
          .heads     = 4,
          .kv_heads  = 2,
          .mlp       = 160,
          .context   = 64,
          .rope_base = 500000.0f,
          .untied    = true}},
        {"llama 3: RoPE factors, heads wider than width / heads",
         "llama",
         {.layers = 2, .width = 96, .heads = 3, .kv_heads = 1, .context = 64},
         [](ModelConfig & c) {
             c.head_size = 64;
             for (int i = 0; i < 32; ++i) {
                 c.rope.freqs.push_back(i < 4 ? 1.0f : i < 10 ? 2.5f : 8.0f);
             }
         }},
        {"llama, linear scaling",
         "llama",
         {.layers = 2, .width = 96, .heads = 3, .context = 64},
         [](ModelConfig & c) {
             c.rope.scaling = "linear";
             c.rope.factor  = 4.0f;
         }},
        {"llama, YaRN",
         "llama",
         {.layers = 2, .width = 128, .heads = 2, .context = 64},
         [](ModelConfig & c) {
             c.rope.scaling     = "yarn";
             c.rope.factor      = 4.0f;
             c.rope.attn_factor = 1.1f;
             c.rope.n_ctx_orig  = 32;
         }},
        {"llama, LongRoPE",
         "llama",
         {.layers = 2, .width = 64, .heads = 2, .context = 64},
         [](ModelConfig & c) {
             c.rope.scaling       = "longrope";
             c.rope.n_ctx_orig    = 32;
             c.rope.factors_short = std::vector<float>(16, 1.5f);
             c.rope.factors_long  = std::vector<float>(16, 3.5f);
         }},
        {"qwen2", "qwen2", {.layers = 3, .width = 128, .heads = 4, .kv_heads = 2, .context = 64}},
        {"qwen3",
         "qwen3",
         {.layers = 3, .width = 96, .heads = 4, .kv_heads = 2, .context = 64},
         [](ModelConfig & c) { c.head_size = 32; }},
        {"gemma3: windows, two RoPE bases, a layer that sees all",
         "gemma3",
         {.layers = 7, .width = 96, .heads = 4, .kv_heads = 1, .context = 64},
         [](ModelConfig & c) {
             c.head_size = 32;
             c.window    = 16;
         }},
        {"gemma3, linear scaling of the layers that see all, every third",
         "gemma3",
         {.layers = 3, .width = 64, .heads = 2, .context = 64, .untied = true},
         [](ModelConfig & c) {
             c.window           = 20;
             c.window_every     = 3;
             c.window_rope_base = 20000.0f;
             c.rope.scaling     = "linear";
             c.rope.factor      = 8.0f;
         }},
        {"gemma3 without windows",
         "gemma3",
         {.layers = 2, .width = 64, .heads = 2, .context = 64},
         [](ModelConfig & c) { c.window = 0; }},
        {"qwen3, YaRN, untied",
         "qwen3",
         {.layers = 2, .width = 64, .heads = 2, .context = 64, .untied = true},
         [](ModelConfig & c) {
             c.rope.scaling    = "yarn";
             c.rope.factor     = 2.0f;
             c.rope.n_ctx_orig = 32;
         }},
    };
    for (const auto & c : cases) {
        constexpr int64_t        T     = 48;
        const ModelFile          model = stirred_model(c.arch, c.sizes, c.change);
        const Batch              batch = some_tokens(T);
        const std::vector<float> ours  = our_logits(model, batch, T);
        const Scratch            dir;
        // rounded weights differ, so the tolerance is wider
        const std::pair<const char *, float> types[] = {
            {"f32", 1e-3f}, {"f16", 2e-2f}, {"bf16", 5e-2f}, {"q8_0", 5e-2f}};
        for (const auto & [type, most] : types) {
            save_model(dir / "m.gguf", model, parse_weight_type(type));
            if (most == 1e-3f) {
                CHECK(our_logits(load_model(dir / "m.gguf"), batch, T) == ours);
            }
            Generator   llama_cpp(dir / "m.gguf", 1);
            const float got = difference(ours, llama_cpp.logits(batch.tokens));
            INFO(c.name << " " << type << ": " << got);
            CHECK(got < most);
            WARN(c.name << ", " << type << ": logits differ by " << got << " of the largest");
        }
    }
}
