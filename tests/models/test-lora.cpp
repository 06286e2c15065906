// Adapters: gradients on a quantized base, and the same logits in our graph, in llama.cpp, and merged.
#include "ggml-train/gguf/gguf-write.h"
#include "models/base-weights.h"
#include "models/text/generate.h"
#include "tests/catch.h"
#include "tests/models/stirred-model.h"
#include "tests/scratch.h"

using namespace gt;
using Catch::Contains;

static constexpr int64_t kT = 48;

static const ModelSizes kSizes{
    .layers = 2, .width = 256, .heads = 4, .kv_heads = 2, .mlp = 512, .context = 64};

// The model with matrices in any type of ggml, as others make such files.
static void save_as(const std::string & path, const ModelFile & model, ggml_type type) {
    const ModelHead head = model_head(model.config, model.keys.get());
    GgufWriter      writer(path);
    gguf_set_kv(writer.keys(), head.keys.get());
    const auto type_of = [&](const TensorSpec & spec) {
        return spec.kind == ParamKind::vector ? GGML_TYPE_F32 : type;
    };
    for (const TensorSpec & spec : head.tensors) {
        writer.declare(spec.name, spec.ne, type_of(spec));
    }
    for (const TensorSpec & spec : head.tensors) {
        const ggml_type stored = type_of(spec);
        const int64_t   n_rows = spec.n_elements() / spec.ne[0];
        Bytes           packed(ggml_row_size(stored, spec.ne[0]) * static_cast<size_t>(n_rows));
        ggml_quantize_chunk(
            stored, model.at(spec.name).data.data(), packed.data(), 0, n_rows, spec.ne[0], nullptr
        );
        writer.write(packed.data(), packed.size());
    }
    writer.commit();
}

// An adapter with B away from zero.
static ModelFile stirred_adapter(const std::string & base, const LoraConfig & lora) {
    ModelFile model = load_for_adapter(base, lora);
    for (ModelTensor & tensor : model.tensors) {
        for (size_t j = 0; j < tensor.data.size(); ++j) {
            const uint64_t bits = random_bits(9, digest64(tensor.spec.name), j, 0);
            tensor.data[j] += 0.1f * (random_uniform(bits) - 0.5f);
        }
    }
    return model;
}

static const LoraConfig kLora{.rank = 8, .alpha = 16.0f, .on = "", .base = nullptr};

// All gradients of one micro-batch.
static std::vector<float> gradients(const ModelFile & file, int n_threads) {
    const Backend backend("cpu", n_threads);
    const auto    model = make_model(backend, file.config, true);
    for (const ModelTensor & tensor : file.tensors) {
        model->weights().set(model->weights().at(tensor.spec.name), tensor.data);
    }
    StepGraph graph(backend, *model, {.B = 1, .T = kT});
    graph.run(some_tokens(kT), 1.0f / kT);
    std::vector<float> all;
    for (const Param & param : model->params()) {
        std::vector<float> grad(static_cast<size_t>(n_elements(param)));
        model->weights().get_grad(param, grad);
        all.insert(all.end(), grad.begin(), grad.end());
    }
    return all;
}

// Both read the same F32 values of the weights and never round activations: only the order of sums of at
// most 512 products differs, 512 * 2^-24 = 3e-5 of the sum of magnitudes.
TEST_CASE("adapter_gradients_on_a_quantized_base_are_those_on_its_f32_values") {
    const std::pair<const char *, ggml_type> cases[] = {
        {"llama", GGML_TYPE_Q4_K},   {"llama", GGML_TYPE_Q6_K}, {"llama", GGML_TYPE_Q8_0},
        {"llama", GGML_TYPE_Q5_K},   {"llama", GGML_TYPE_F16},  {"llama", GGML_TYPE_BF16},
        {"llama", GGML_TYPE_IQ4_XS}, {"gpt2", GGML_TYPE_Q8_0}};
    for (const auto & [arch, type] : cases) {
        const Scratch dir;
        ModelSizes    sizes = kSizes;
        sizes.kv_heads      = std::string(arch) == "gpt2" ? sizes.heads : sizes.kv_heads;
        save_as(dir / "quantized.gguf", stirred_model(arch, sizes), type);
        save_model(dir / "f32.gguf", load_model(dir / "quantized.gguf"));
        const auto want = gradients(stirred_adapter(dir / "f32.gguf", kLora), 1);
        INFO(arch << " " << ggml_type_name(type));
        const ModelFile adapter = stirred_adapter(dir / "quantized.gguf", kLora);
        for (const int n_threads : {2, 5}) {
            CHECK(difference(gradients(adapter, n_threads), want) < 3e-5f);
        }
        CHECK(gradients(adapter, 2) == gradients(adapter, 2));
    }
}

TEST_CASE("gradients_of_an_adapter_are_central_differences_of_the_loss") {
    const Scratch dir;
    save_as(dir / "m.gguf", stirred_model("qwen3", kSizes), GGML_TYPE_Q8_0);
    LoraConfig lora               = kLora;
    lora.on                       = "attn_q,ffn_down";  // only some of the matrices side by side
    ModelFile                file = stirred_adapter(dir / "m.gguf", lora);
    const std::vector<float> grad = gradients(file, 1);
    const Backend            backend("cpu", 1);
    const auto               model = make_model(backend, file.config, false);
    StepGraph  graph(backend, *model, {.B = 1, .T = kT, .goal = GraphOptions::Goal::loss});
    const auto loss = [&] {
        for (const ModelTensor & tensor : file.tensors) {
            model->weights().set(model->weights().at(tensor.spec.name), tensor.data);
        }
        return graph.run(some_tokens(kT)) / kT;
    };
    size_t at      = 0;
    double largest = 0.0, worst = 0.0;
    for (ModelTensor & tensor : file.tensors) {
        for (const size_t i : {size_t{0}, tensor.data.size() / 2 + 3}) {
            const float value  = tensor.data[i];
            tensor.data[i]     = value + 0.01f;
            const double more  = loss();
            tensor.data[i]     = value - 0.01f;
            const double slope = (more - loss()) / 0.02;
            tensor.data[i]     = value;
            largest            = std::max(largest, std::fabs(slope));
            worst = std::max(worst, std::fabs(slope - static_cast<double>(grad[at + i])));
        }
        at += tensor.data.size();
    }
    INFO("largest " << largest << ", worst " << worst);
    CHECK(largest > 1e-4);
    CHECK(worst < 1e-2 * largest);
}

TEST_CASE("llama_cpp_computes_our_logits_of_base_and_adapter_and_of_the_merged_model") {
    const struct {
        const char * arch;
        void (*change)(ModelConfig & config);
        const char * on;
    } cases[] = {
        {"llama",
         [](ModelConfig & c) {
             c.rope.freqs     = std::vector<float>(32, 1.0f);
             c.rope.freqs[20] = 8.0f;
         },
         ""},
        {"qwen2", nullptr, ""},
        {"qwen3", nullptr, "attn_q,attn_k,ffn_up"},
        {"gpt2", [](ModelConfig & c) { c.n_head_kv = c.n_head; }, ""},
    };
    for (const auto & c : cases) {
        const Scratch dir;
        INFO(c.arch);
        save_model(dir / "base.gguf", stirred_model(c.arch, kSizes, c.change));
        LoraConfig lora       = kLora;
        lora.on               = c.on;
        const ModelFile file  = stirred_adapter(dir / "base.gguf", lora);
        const Batch     batch = some_tokens(kT);
        const auto      ours  = our_logits(file, batch, kT);
        save_model(dir / "lora.gguf", file);
        save_merged(dir / "merged.gguf", dir / "base.gguf", dir / "lora.gguf");

        CHECK(difference(ours, Generator(dir / "base.gguf", 1).logits(batch.tokens)) > 1e-2f);
        Generator with(dir / "base.gguf", 1, dir / "lora.gguf");
        CHECK(difference(ours, with.logits(batch.tokens)) < 1e-3f);
        CHECK(difference(ours, Generator(dir / "merged.gguf", 1).logits(batch.tokens)) < 1e-3f);
        // the adapter's file is read back
        const ModelFile again = load_model(dir / "lora.gguf");
        CHECK(again.config.lora.rank == 8);
        CHECK(again.at(file.tensors[0].spec.name).data == file.tensors[0].data);
    }
}

TEST_CASE("wrong_adapters_are_refused_with_a_reason") {
    const Scratch dir;
    save_model(dir / "base.gguf", stirred_model("llama", kSizes));
    const auto why = [&](LoraConfig lora) {
        return error_of([&] { load_for_adapter(dir / "base.gguf", lora); });
    };
    CHECK_THAT(
        why({.rank = 8, .alpha = 8.0f, .on = "attn_q,mlp", .base = nullptr}),
        Contains("no matrix \"mlp\"; it has attn_k, attn_output, attn_q, attn_v, ffn_down")
    );
    CHECK_THAT(
        why({.rank = 400, .alpha = 8.0f, .on = "", .base = nullptr}), Contains("--lora 400")
    );
    save_model(dir / "lora.gguf", stirred_adapter(dir / "base.gguf", kLora));
    CHECK_THAT(
        error_of([&] { load_for_adapter(dir / "lora.gguf", kLora); }), Contains("is an adapter")
    );
    CHECK_THAT(
        error_of([&] { save_merged(dir / "x.gguf", dir / "base.gguf", dir / "base.gguf"); }),
        Contains("base.gguf is not an adapter")
    );
}
