// Our graphs and llama.cpp must compute the same logits: of our exports, and of files of other programs.
#include "ggml-train/gguf/gguf-read.h"
#include "models/text/generate.h"
#include "tests/catch.h"
#include "tests/models/stirred-model.h"
#include "tests/scratch.h"

#include <cstring>
#include <filesystem>
#include <llama.h>

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
        {"llama with biases of every matrix",
         "llama",
         {.layers = 2, .width = 96, .heads = 4, .kv_heads = 2, .context = 64},
         [](ModelConfig & c) {
             c.biases = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                         "ffn_gate", "ffn_up", "ffn_down"};
         }},
        {"llama with biases of queries and the MLP's output",
         "llama",
         {.layers = 2, .width = 96, .heads = 4, .kv_heads = 2, .context = 64},
         [](ModelConfig & c) {
             c.biases = {"attn_q", "ffn_down"};
         }},
        {"llama with one matrix for queries, keys and values",
         "llama",
         {.layers = 2, .width = 96, .heads = 4, .kv_heads = 2, .context = 64},
         [](ModelConfig & c) { c.fused_qkv = true; }},
        {"qwen2, the same with its bias",
         "qwen2",
         {.layers = 2, .width = 128, .heads = 4, .kv_heads = 2, .context = 64},
         [](ModelConfig & c) {
             c.fused_qkv = true;
             c.biases    = {"attn_qkv"};
         }},
        {"qwen3, the same",
         "qwen3",
         {.layers = 2, .width = 96, .heads = 4, .kv_heads = 2, .context = 64},
         [](ModelConfig & c) {
             c.fused_qkv = true;
             c.head_size = 32;
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

// Tokens as libllama makes them of the file itself.
static std::vector<int32_t> llama_tokens(const std::string & path, const std::string & text) {
    llama_model_params params = llama_model_default_params();
    params.vocab_only         = true;
    const std::unique_ptr<llama_model, void (*)(llama_model *)> model(
        llama_model_load_from_file(path.c_str(), params), llama_model_free
    );
    REQUIRE(model);
    std::vector<int32_t> tokens(text.size() + 16);
    tokens.resize(static_cast<size_t>(llama_tokenize(
        llama_model_get_vocab(model.get()), text.data(), static_cast<int32_t>(text.size()),
        tokens.data(), static_cast<int32_t>(tokens.size()), false, true
    )));
    return tokens;
}

static bool rounds_activations(const std::string & path) {
    const auto gguf = open_gguf(path);
    for (int64_t i = 0; i < gguf_get_n_tensors(gguf.get()); ++i) {
        if (gguf_get_tensor_type(gguf.get(), i) != GGML_TYPE_F32) {
            return true;
        }
    }
    return false;
}

template <class T>
static std::vector<T> read_values(const std::filesystem::path & path) {
    const std::string bytes = read_text(path.string());
    std::vector<T>    values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

static Batch one_sample(std::vector<int32_t> tokens) {
    Batch batch{.n_samples = 1, .tokens = std::move(tokens)};
    batch.labels.assign(batch.tokens.size(), 0);
    return batch;
}

// Files that other programs wrote, in the folder $GT_MODELS: e2e-others and lora-hf.py make some. Tokens,
// logits of the whole model, those of a base whose adapter is zero, and those that a third program computed.
TEST_CASE("llama_cpp_computes_our_logits_of_files_of_others", "[.][others]") {
    const char * folder = std::getenv("GT_MODELS");
    REQUIRE(folder);
    const std::string text = "Hello there! It's 3.14, größer\n\n  日本語 <|im_end|></s>\t<s> x==y";
    int               n = 0;
    for (const auto & entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() != ".gguf") {
            continue;
        }
        const std::string path  = entry.path().string();
        const ModelFile   model = load_model(path);
        INFO(path);
        const Tokenizer tokenizer(model.keys.get(), path);
        const Batch     batch = one_sample(tokenizer.encode_special(text));
        CHECK(batch.tokens == llama_tokens(path, text));
        const auto  T    = static_cast<int64_t>(batch.tokens.size());
        const auto  ours = our_logits(model, batch, T);
        const float got  = difference(ours, Generator(path, 1).logits(batch.tokens));
        // libllama rounds activations to 8 bits for products with quantized weights, to 16 for F16 and BF16
        CHECK(got < (rounds_activations(path) ? 5e-2f : 1e-3f));
        const ModelFile adapter = load_for_adapter(path, {.rank = 2, .alpha = 2.0f});
        CHECK(difference(our_logits(adapter, batch, T), ours) < 3e-5f);

        std::printf("%s: logits differ by %.1e of the largest", path.c_str(), got);
        auto more = entry.path();
        if (std::filesystem::exists(more.replace_extension(".logits"))) {
            const auto  theirs = read_values<float>(more);
            const Batch given = one_sample(read_values<int32_t>(more.replace_extension(".tokens")));
            const float third =
                difference(our_logits(model, given, std::ssize(given.tokens)), theirs);
            CHECK(third < 1e-3f);
            std::printf(", from the third program's by %.1e", third);
        }
        std::printf("\n");
        ++n;
    }
    CHECK(n > 0);
}
