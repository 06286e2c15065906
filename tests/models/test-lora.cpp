// Adapters: gradients on a quantized base, and the same logits in our graph, in llama.cpp, and merged.
#include "ggml-train/cpu/kernels.h"
#include "ggml-train/gguf/gguf-read.h"
#include "ggml-train/gguf/gguf-write.h"
#include "ggml-train/graph/frozen-linear.h"
#include "models/base-weights.h"
#include "models/merge.h"
#include "models/text/generate.h"
#include "tests/catch.h"
#include "tests/models/stirred-model.h"
#include "tests/scratch.h"

using namespace gt;

static constexpr int64_t kT = 48;

static const ModelSizes kSizes{
    .layers = 2, .width = 256, .heads = 4, .kv_heads = 2, .mlp = 512, .context = 64};

// The model with matrices in any type of ggml, as others make such files; Q4_K as in Q4_K_M.
static void save_as(
    const std::string & path,
    const ModelFile &   model,
    ggml_type           type,
    ggml_type           vectors = GGML_TYPE_F32
) {
    const ModelHead head = model_head(model.config, model.keys.get());
    GgufWriter      writer(path);
    gguf_set_kv(writer.keys(), head.keys.get());
    const auto type_of = [&](const TensorSpec & spec) {
        const std::string & name = spec.name;
        const bool          finer =
            name.ends_with("attn_v.weight") || name.ends_with("ffn_down.weight") || spec.per_token;
        const ggml_type matrices = finer && type == GGML_TYPE_Q4_K ? GGML_TYPE_Q6_K : type;
        return spec.kind == ParamKind::vector ? vectors : matrices;
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

// Samples with keys of dropout.
static Batch some_samples(int64_t n) {
    Batch batch     = some_tokens(n * kT);
    batch.n_samples = n;
    batch.add_dropout_keys(5, 3, "anna");
    return batch;
}

// All gradients of n samples in micro-batches of B.
static std::vector<float> gradients(
    const ModelFile &   file,
    int                 n_threads,
    float               dropout   = 0.0f,
    int64_t             n         = 1,
    int64_t             B         = 1,
    Recompute           recompute = Recompute::cheap,
    const std::string & device    = "cpu",
    Form                form      = Form::fused
) {
    const Backend backend(device, n_threads);
    const auto    model = make_model(backend, file.config, true);
    for (const ModelTensor & tensor : file.tensors) {
        model->weights().set(model->weights().at(tensor.spec.name), tensor.data);
    }
    StepGraph graph(
        backend, *model, {.B = B, .T = kT, .form = form, .recompute = recompute, .dropout = dropout}
    );
    const Batch batch = some_samples(n);
    for (int64_t i = 0; i < n; i += B) {
        graph.run(batch.part(i, i + B), 1.0f / static_cast<float>(n * kT), i == 0);
    }
    std::vector<float> all;
    for (const Param & param : model->params()) {
        std::vector<float> grad(static_cast<size_t>(n_elements(param)));
        model->weights().get_grad(param, grad);
        all.insert(all.end(), grad.begin(), grad.end());
    }
    return all;
}

static std::vector<float> some_values(int64_t n, uint64_t seed) {
    std::vector<float> values(static_cast<size_t>(n));
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = random_uniform(random_bits(seed, i)) - 0.5f;
    }
    return values;
}

// Both bases give the same F32 weights, and activations are never rounded: gradients differ only because products
// are summed in another order. A sum of n products in F32 is off by at most n u of the sum of magnitudes, u = 2^-24.
// The longest sums here have 512 products: 3e-5. A path through two blocks has 28 such sums, so that 28 times as much
// is the worst case; their errors have random signs, and the check is the bound of a single one.
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
        const auto      two     = gradients(adapter, 2);
        CHECK(difference(two, want) < 3e-5f);
        CHECK(gradients(adapter, 2) == two);
        if (type == GGML_TYPE_Q4_K) {
            CHECK(difference(gradients(adapter, 5), want) < 3e-5f);
        }
    }
}

// Every type that ggml can turn into F32: forward and backward see those values, whatever the number of threads. Bound:
// that of the test above.
TEST_CASE("products_with_weights_of_every_type_are_those_with_their_f32_values") {
    constexpr int64_t        K = 512, N = 48, M = 5;
    const std::vector<float> x = some_values(K * M, 1), dy = some_values(N * M, 2);
    int                      n_types = 0;
    for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
        const auto   type   = static_cast<ggml_type>(t);
        const auto * traits = ggml_get_type_traits(type);
        if (traits->blck_size == 0 || !traits->to_float || type == GGML_TYPE_Q8_1 ||
            type == GGML_TYPE_Q8_K) {
            continue;  // not a type of weights
        }
        INFO(traits->type_name);
        Bytes packed(ggml_row_size(type, K) * N);
        for (size_t i = 0; i < packed.size(); ++i) {
            packed[i] = static_cast<uint8_t>(random_bits(3, i) & 0x3b);  // scales are finite
        }
        std::vector<float> w(K * N);
        traits->to_float(packed.data(), w.data(), K * N);
        CHECK(std::all_of(w.begin(), w.end(), [](float value) { return std::isfinite(value); }));
        const ggml_context_ptr ctx(
            ggml_init({.mem_size = 4096, .mem_buffer = nullptr, .no_alloc = true})
        );
        ggml_tensor * weight = ggml_new_tensor_2d(ctx.get(), type, K, N);
        weight->data         = packed.data();

        std::vector<float> y(N * M), dx(K * M), want_y(N * M), want_dx(K * M);
        for (int64_t m = 0; m < M; ++m) {
            for (int64_t n = 0; n < N; ++n) {
                double sum = 0.0;
                for (int64_t k = 0; k < K; ++k) {
                    sum += static_cast<double>(x[m * K + k]) * w[n * K + k];
                    want_dx[m * K + k] += dy[m * N + n] * w[n * K + k];
                }
                want_y[m * N + n] = static_cast<float>(sum);
            }
        }
        for (const int n_threads : {1, 3}) {
            Workers workers(n_threads);
            workers.run([&](int i, int n) {
                frozen_linear(
                    {i, n}, {.w = weight, .M = M, .x = x.data(), .ldx = K, .y = y.data(), .ldy = N}
                );
                frozen_linear_back(
                    {i, n}, {.weights   = &weight,
                             .n_weights = 1,
                             .M         = M,
                             .dy        = dy.data(),
                             .ldy       = N,
                             .dx        = dx.data()}
                );
            });
            CHECK(difference(y, want_y) < 3e-5f);
            CHECK(difference(dx, want_dx) < 3e-5f);
        }
        ++n_types;
    }
    CHECK(n_types >= 27);
}

// On a device quantized weights are held in F16: each is rounded by at most 2^-11 of its value, so that gradients move
// by a few times that; F32 and F16 are exact.
TEST_CASE("adapters_have_the_same_gradients_on_devices_and_in_ggmls_ops", "[device]") {
    const struct {
        const char * arch;
        ggml_type    type;
        float        most;
    } cases[] = {{"llama", GGML_TYPE_F32, 3e-5f},  {"llama", GGML_TYPE_F16, 3e-5f},
                 {"llama", GGML_TYPE_Q8_0, 2e-3f}, {"qwen3", GGML_TYPE_Q4_K, 2e-3f},
                 {"gpt2", GGML_TYPE_Q6_K, 2e-3f},  {"gemma3", GGML_TYPE_BF16, 2e-3f}};
    for (const auto & c : cases) {
        const Scratch dir;
        ModelSizes    sizes = kSizes;
        sizes.kv_heads      = std::string(c.arch) == "gpt2" ? sizes.heads : sizes.kv_heads;
        const auto change = [](ModelConfig & config) { config.fused_qkv = config.arch == "qwen3"; };
        save_as(dir / "base.gguf", stirred_model(c.arch, sizes, change), c.type);
        const ModelFile file  = stirred_adapter(dir / "base.gguf", kLora);
        const auto      want  = gradients(file, 2);
        const auto      there = [&](const char * device, Form form) {
            return gradients(file, 1, 0.0f, 1, 1, Recompute::cheap, device, form);
        };
        INFO(c.arch << " " << ggml_type_name(c.type));
        CHECK(difference(there("cpu", Form::portable), want) < 3e-5f);
        CHECK(difference(there("fake", Form::portable), want) < c.most);
        CHECK(difference(there("fake:0:metal", Form::portable), want) < c.most);
        if (c.type == GGML_TYPE_F16) {  // emulation is slow
            CHECK(difference(there("fake", Form::device), want) < c.most);
        }
    }
}

TEST_CASE("gradients_of_an_adapter_are_central_differences_of_the_loss") {
    const float   dropout = GENERATE(0.0f, 0.3f);
    const bool    fused   = dropout > 0.0f;  // queries, keys and values in one matrix
    const Scratch dir;
    const auto    change = [](ModelConfig & c) { c.fused_qkv = true; };
    save_as(
        dir / "m.gguf",
        fused ? stirred_model("qwen3", kSizes, change) : stirred_model("qwen3", kSizes),
        GGML_TYPE_Q8_0
    );
    LoraConfig lora = kLora;
    lora.on = fused ? "attn_qkv,ffn_down" : "attn_q,ffn_down";  // some of those side by side
    ModelFile                file = stirred_adapter(dir / "m.gguf", lora);
    const std::vector<float> grad = gradients(file, 1, dropout);
    const Backend            backend("cpu", 1);
    const auto               model = make_model(backend, file.config, false);
    StepGraph                graph(
                       backend, *model, {.B = 1, .T = kT, .dropout = dropout, .goal = GraphOptions::Goal::loss}
                   );
    const auto loss = [&] {
        for (const ModelTensor & tensor : file.tensors) {
            model->weights().set(model->weights().at(tensor.spec.name), tensor.data);
        }
        return graph.run(some_samples(1)) / kT;
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

TEST_CASE("logits_of_a_frozen_head_take_little_memory") {
    const Scratch    dir;
    constexpr size_t B = 1024, kAll = B * kT * 257 * sizeof(float);
    const ModelSizes sizes{
        .layers = 1, .width = 16, .heads = 2, .kv_heads = 1, .mlp = 32, .context = kT};
    save_model(dir / "m.gguf", stirred_model("llama", sizes));
    const ModelFile file = stirred_adapter(dir / "m.gguf", kLora);
    const Backend   backend("cpu", 1);
    const auto      model = make_model(backend, file.config, true);
    for (const ModelTensor & tensor : file.tensors) {
        model->weights().set(model->weights().at(tensor.spec.name), tensor.data);
    }
    const auto graph = [&](int64_t n) {
        return StepGraph(backend, *model, {.B = n, .T = kT, .goal = GraphOptions::Goal::loss});
    };
    StepGraph all = graph(B), part = graph(B / 8);
    CHECK(all.activation_bytes() < kAll * 3 / 4);
    const Batch batch = some_samples(B);
    double      loss  = 0.0;
    for (int64_t i = 0; i < 8; ++i) {
        loss += part.run(batch.part(i * part.options().B, (i + 1) * part.options().B));
    }
    CHECK(all.run(batch) == Approx(loss).epsilon(1e-6));
}

// What is dropped depends on the sample, so that threads, ranks and micro-batches change rounding only.
TEST_CASE("dropout_of_an_adapter_depends_on_the_sample_alone") {
    const Scratch dir;
    save_model(dir / "m.gguf", stirred_model("llama", kSizes));
    const ModelFile file = stirred_adapter(dir / "m.gguf", kLora);
    const auto      want = gradients(file, 1, 0.2f, 2, 2);
    CHECK(difference(gradients(file, 1, 0.0f, 2, 2), want) > 1e-2f);
    CHECK(difference(gradients(file, 1, 0.2f, 2, 1), want) < 1e-5f);
    CHECK(difference(gradients(file, 3, 0.2f, 2, 2), want) < 1e-5f);
    CHECK(gradients(file, 1, 0.2f, 2, 2, Recompute::all) == want);
}

TEST_CASE("dropout_drops_its_share_and_keeps_the_mean") {
    constexpr int64_t        B = 3, T = 50, C = 203;
    const std::vector<float> x(static_cast<size_t>(B * T * C), 1.0f);
    std::vector<float>       y(x.size());
    const int32_t            keys[] = {1, 2, 1};
    cpu::dropout(
        {}, {.B = B, .T = T, .C = C, .keys = keys, .layer = 4, .rate = 0.2f}, x.data(), y.data()
    );
    double sum = 0.0, n_dropped = 0.0;
    for (const float value : y) {
        sum += value;
        n_dropped += value == 0.0f;
    }
    const double n = static_cast<double>(y.size());
    // five standard deviations
    CHECK(std::fabs(n_dropped / n - 0.2) < 5.0 * std::sqrt(0.2 * 0.8 / n));
    CHECK(std::fabs(sum / n - 1.0) < 5.0 * std::sqrt(0.2 / 0.8 / n));
    const auto sample = [&](int64_t b) {
        return std::vector<float>(y.begin() + b * T * C, y.begin() + (b + 1) * T * C);
    };
    CHECK(sample(0) == sample(2));
    CHECK(sample(0) != sample(1));
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
        {"llama",
         [](ModelConfig & c) {
             c.fused_qkv = true;
             c.biases    = {"attn_qkv", "attn_output", "ffn_gate"};
         },
         ""},
        {"gemma3",
         [](ModelConfig & c) {
             c.window       = 16;
             c.window_every = 2;
         },
         ""},
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

// A Llama with norms that its graph would ignore.
TEST_CASE("a_base_with_tensors_of_another_model_is_refused") {
    const Scratch dir;
    ModelFile     qwen = stirred_model("qwen3", kSizes);
    save_model(dir / "qwen.gguf", qwen);
    const auto keys = open_gguf(dir / "qwen.gguf");
    for (const char * key :
         {"context_length", "embedding_length", "block_count", "feed_forward_length",
          "attention.head_count", "attention.head_count_kv"}) {
        const auto value = find_int(keys.get(), std::string("qwen3.") + key, "");
        gguf_set_val_u32(
            qwen.keys.get(), (std::string("llama.") + key).c_str(), static_cast<uint32_t>(*value)
        );
    }
    gguf_set_val_f32(qwen.keys.get(), "llama.attention.layer_norm_rms_epsilon", 1e-6f);
    GgufWriter writer(dir / "odd.gguf");
    gguf_set_kv(writer.keys(), qwen.keys.get());
    gguf_set_val_str(writer.keys(), "general.architecture", "llama");
    for (const ModelTensor & tensor : qwen.tensors) {
        writer.declare(tensor.spec.name, tensor.spec.ne, GGML_TYPE_F32);
    }
    for (const ModelTensor & tensor : qwen.tensors) {
        writer.write(tensor.data.data(), tensor.data.size() * sizeof(float));
    }
    writer.commit();
    CHECK_THAT(
        error_of([&] { load_for_adapter(dir / "odd.gguf", kLora); }),
        ContainsSubstring(
            "odd.gguf: tensor blk.0.attn_q_norm.weight is not part of a llama model as we train it"
        )
    );
}

// Merging reads it a tensor at a time.
TEST_CASE("a_base_without_an_adapter_stays_in_its_file") {
    const Scratch dir;
    save_model(dir / "base.gguf", stirred_model("llama", kSizes));
    const ModelFile base = load_for_adapter(dir / "base.gguf", {});
    CHECK(base.tensors.empty());
    CHECK(base.config.lora.base->find("blk.0.attn_q.weight") != nullptr);
}

// libllama ends the whole process at norms in F16.
TEST_CASE("a_base_with_norms_that_llama_cpp_cannot_run_is_refused") {
    const Scratch   dir;
    const ModelFile model = stirred_model("llama", kSizes);
    save_as(dir / "half.gguf", model, GGML_TYPE_F16, GGML_TYPE_F16);
    const char * why = "half.gguf: tensor blk.0.attn_norm.weight is f16, and llama.cpp runs norms "
                       "and biases in F32 only; convert the file with export ";
    CHECK_THAT(
        error_of([&] { load_for_adapter(dir / "half.gguf", kLora); }), ContainsSubstring(why)
    );
    CHECK_THAT(error_of([&] { Generator(dir / "half.gguf", 1); }), ContainsSubstring(why));
    // the remedy: whole models are read as F32, and written with F32 norms
    save_model(dir / "new.gguf", load_model(dir / "half.gguf"), WeightType::f16);
    load_for_adapter(dir / "new.gguf", kLora);
    CHECK(Generator(dir / "new.gguf", 1).logits(some_tokens(4).tokens).size() == 4 * 257);
}

// Their names are other ones in a ViT.
TEST_CASE("a_vit_with_norms_in_f16_is_no_base") {
    const Scratch dir;
    ModelConfig   config = find_preset("vit-micro").config;
    config.n_layer       = 1;
    ModelFile model      = empty_model(config);
    init_model(model, 1);
    save_as(dir / "half.gguf", model, GGML_TYPE_F16, GGML_TYPE_F16);
    CHECK_THAT(
        error_of([&] { load_for_adapter(dir / "half.gguf", kLora); }),
        ContainsSubstring(" is f16, and llama.cpp runs norms and biases in F32 only")
    );
    save_as(dir / "matrices.gguf", model, GGML_TYPE_F16);
    CHECK_THAT(
        error_of([&] { load_for_adapter(dir / "matrices.gguf", kLora); }),
        ContainsSubstring("tensor v.class_embd is f16")
    );
}

TEST_CASE("wrong_adapters_are_refused_with_a_reason") {
    const Scratch dir;
    save_model(dir / "base.gguf", stirred_model("llama", kSizes));
    const auto why = [&](LoraConfig lora) {
        return error_of([&] { load_for_adapter(dir / "base.gguf", lora); });
    };
    CHECK_THAT(
        why({.rank = 8, .alpha = 8.0f, .on = "attn_q,mlp", .base = nullptr}),
        ContainsSubstring("no matrix \"mlp\"; it has attn_k, attn_output, attn_q, attn_v, ffn_down")
    );
    CHECK_THAT(
        why({.rank = 400, .alpha = 8.0f, .on = "", .base = nullptr}),
        ContainsSubstring("--lora 400")
    );
    save_model(dir / "lora.gguf", stirred_adapter(dir / "base.gguf", kLora));
    CHECK_THAT(
        error_of([&] { load_for_adapter(dir / "lora.gguf", kLora); }),
        ContainsSubstring("is an adapter")
    );
    CHECK_THAT(
        error_of([&] { save_merged(dir / "x.gguf", dir / "base.gguf", dir / "base.gguf"); }),
        ContainsSubstring("base.gguf is not an adapter")
    );
}
