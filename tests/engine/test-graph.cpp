// Whole models through StepGraph: forms, devices, recomputing, chunked loss, ignored labels.
#include "ggml-train/graph/graph.h"
#include "models/blocks.h"
#include "models/init.h"
#include "tests/catch.h"
#include "tests/fake/fake-device.h"

#include <cmath>

using namespace gt;

namespace {

ModelConfig small(const std::string & arch, int64_t V = 67) {
    ModelConfig c;
    c.arch      = arch;
    c.n_embd    = 80;
    c.n_layer   = 2;
    c.n_head    = 2;  // head size 40
    c.n_head_kv = arch == "llama" ? 1 : 2;
    c.n_ff      = 96;
    c.n_vocab   = V;
    c.n_ctx     = 19;
    c.tied      = arch != "llama";
    if (V > 1000) {  // large enough that logits are computed in chunks
        c.n_embd  = 16;
        c.n_layer = 1;
    }
    if (arch == "gemma3") {  // the first block sees a window, the second all tokens
        c.window       = 6;
        c.window_every = 2;
    }
    if (arch == "vit") {
        c.image_size = 12;
        c.patch_size = 4;
        c.channels   = 1;
        c.n_classes  = 7;
        c.pooling    = V == 67 ? "cls" : "mean";
    }
    return c;
}

struct Setup {
    Backend                      backend;
    std::unique_ptr<Transformer> model;
    GraphOptions                 options;

    Setup(const ModelConfig & c, Form form, const std::string & device = "cpu", int n_threads = 2)
        : backend(device, n_threads), model(make_model(backend, c, true)) {
        for (const TensorSpec & spec : tensor_specs(c)) {
            std::vector<float> values(spec.n_elements());
            init_tensor(spec, 3, values);
            for (float & v : values) {
                v = spec.init == Init::normal || spec.init == Init::trunc_normal ? 5.0f * v : v;
            }
            model->weights().set(model->weights().at(spec.name), values);
        }
        options = {
            .B          = 2,
            .T          = takes_images(c) ? c.n_positions() : 17,
            .image_size = c.image_size,
            .channels   = c.channels,
            .form       = form,
            .smoothing  = 0.1f};
    }

    std::vector<std::vector<float>> grads() {
        std::vector<std::vector<float>> all;
        for (const Param & param : model->params()) {
            all.emplace_back(n_elements(param));
            model->weights().get_grad(param, all.back());
        }
        return all;
    }
};

Batch some_batch(const ModelConfig & c, int64_t B, int64_t T) {
    Batch batch{.n_samples = B};
    if (takes_images(c)) {
        for (int64_t i = 0; i < c.image_size * c.image_size * c.channels * B; ++i) {
            batch.images.push_back(random_uniform(random_bits(8, i)) - 0.5f);
        }
        for (int64_t i = 0; i < B; ++i) {
            batch.labels.push_back(static_cast<int32_t>(random_bits(9, i) % c.n_classes));
        }
        return batch;
    }
    for (int64_t i = 0; i < B * T; ++i) {
        batch.tokens.push_back(static_cast<int32_t>(random_bits(8, i) % c.n_vocab));
        batch.labels.push_back(
            i % 5 == 3 ? -1 : static_cast<int32_t>(random_bits(9, i) % c.n_vocab)
        );
    }
    return batch;
}

double
difference(const std::vector<std::vector<float>> & a, const std::vector<std::vector<float>> & b) {
    double worst = 0.0, largest = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
        for (size_t k = 0; k < a[i].size(); ++k) {
            worst   = std::max<double>(worst, std::fabs(a[i][k] - b[i][k]));
            largest = std::max<double>(largest, std::fabs(a[i][k]));
        }
    }
    return worst / largest;
}

// (architecture, vocabulary or any other number to choose the variant)
const std::pair<const char *, int64_t> kModels[] = {{"gpt2", 67},  {"llama", 67},  {"qwen2", 67},
                                                    {"qwen3", 67}, {"gemma3", 67}, {"vit", 67},
                                                    {"vit", 68},   {"gpt2", 70001}};

}  // namespace

TEST_CASE("models_agree_in_both_forms_and_on_a_device") {
    for (const auto & [arch, V] : kModels) {
        INFO(arch << " " << V);
        const ModelConfig c = small(arch, V);
        Setup             fused(c, Form::fused), portable(c, Form::portable);
        const Batch       batch = some_batch(c, 2, 17);
        StepGraph         f(fused.backend, *fused.model, fused.options);
        StepGraph         p(portable.backend, *portable.model, portable.options);
        const double      loss_f = f.run(batch, 0.1f), loss_p = p.run(batch, 0.1f);
        CHECK(loss_f == Approx(loss_p).epsilon(1e-5));
        CHECK(difference(fused.grads(), portable.grads()) < 2e-5);

        Setup     device(c, Form::portable, "fake");
        StepGraph d(device.backend, *device.model, device.options);
        CHECK(d.run(batch, 0.1f) == loss_p);
        CHECK(device.grads() == portable.grads());

        Setup     metal(c, Form::portable, "fake:0:metal");
        StepGraph m(metal.backend, *metal.model, metal.options);
        CHECK(m.run(batch, 0.1f) == loss_p);
        CHECK(difference(metal.grads(), portable.grads()) < 2e-5);
    }
}

TEST_CASE("models_on_a_device_agree_with_the_cpu_and_are_reproducible", "[device]") {
    for (const auto & [arch, V] : kModels) {
        INFO(arch << " " << V);
        const ModelConfig c = small(arch, V);
        Setup             fused(c, Form::fused), portable(c, Form::portable);
        Setup             a(c, Form::device, "fake", 1), b(c, Form::device, "fake", 1);
        b.options.recompute = Recompute::all;
        const Batch  batch  = some_batch(c, 2, 17);
        StepGraph    f(fused.backend, *fused.model, fused.options);
        StepGraph    p(portable.backend, *portable.model, portable.options);
        StepGraph    ga(a.backend, *a.model, a.options), gb(b.backend, *b.model, b.options);
        const double loss = ga.run(batch, 0.1f);
        CHECK(loss == Approx(f.run(batch, 0.1f)).epsilon(1e-5));
        CHECK(loss == Approx(p.run(batch, 0.1f)).epsilon(1e-5));
        CHECK(difference(a.grads(), fused.grads()) < 2e-5);
        CHECK(difference(a.grads(), portable.grads()) < 2e-5);
        CHECK(loss == gb.run(batch, 0.1f));
        CHECK(a.grads() == b.grads());
    }
}

// Whatever ggml runs in between: rope, concatenations, additions of positions.
TEST_CASE("the_host_waits_once_in_a_step_on_a_device", "[device]") {
    using StatsOf       = FakeDeviceStats (*)(ggml_backend_t);
    const auto stats_of = reinterpret_cast<StatsOf>(
        ggml_backend_reg_get_proc_address(find_backend("fake"), "gt_fake_stats")
    );
    for (const char * arch : {"gpt2", "qwen3", "gemma3", "vit"}) {
        const ModelConfig c = small(arch);
        Setup             device(c, Form::device, "fake", 1);
        device.options.compute = GGML_TYPE_BF16;
        StepGraph    graph(device.backend, *device.model, device.options);
        const size_t before = stats_of(device.backend.get()).n_waits;
        graph.run(some_batch(c, 2, 17), 0.1f);
        INFO(arch);
        CHECK(stats_of(device.backend.get()).n_waits == before + 1);
    }
}

TEST_CASE("half_precision_on_a_device_follows_f32", "[device]") {
    // F16 goes through ggml's products
    for (const auto & [arch, type] :
         {std::pair("gpt2", GGML_TYPE_BF16), std::pair("qwen3", GGML_TYPE_BF16),
          std::pair("vit", GGML_TYPE_BF16), std::pair("gpt2", GGML_TYPE_F16)}) {
        INFO(arch << " " << ggml_type_name(type));
        const ModelConfig c = small(arch);
        Setup             f32(c, Form::device, "fake", 1), a(c, Form::device, "fake", 1);
        Setup             b(c, Form::device, "fake", 1);
        a.options.compute = b.options.compute = type;
        b.options.recompute                   = Recompute::all;
        const Batch  batch                    = some_batch(c, 2, 17);
        StepGraph    g(f32.backend, *f32.model, f32.options);
        StepGraph    ga(a.backend, *a.model, a.options), gb(b.backend, *b.model, b.options);
        const double loss = ga.run(batch, 0.1f);
        CHECK(loss == Approx(g.run(batch, 0.1f)).epsilon(0.01));
        CHECK(loss == gb.run(batch, 0.1f));
        CHECK(a.grads() == b.grads());
        // some 2^-8 per product, 2^-11 with F16: rounded, and no more than that
        CHECK(difference(a.grads(), f32.grads()) > (type == GGML_TYPE_BF16 ? 1e-4 : 1e-5));
        CHECK(difference(a.grads(), f32.grads()) < 0.05);

        // where cuBLASLt has no GELU, kernels of ours round its source
        setenv("GT_EMU_CUBLASLT_FAIL", "epilogue", 1);
        Setup kernels(c, Form::device, "fake", 1);
        kernels.options = a.options;
        StepGraph gc(kernels.backend, *kernels.model, kernels.options);
        CHECK(gc.run(batch, 0.1f) == Approx(loss).epsilon(0.01));
        unsetenv("GT_EMU_CUBLASLT_FAIL");
        const bool differs = arch == std::string("gpt2") && type == GGML_TYPE_BF16;
        CHECK((difference(a.grads(), kernels.grads()) > 1e-4) == differs);
        CHECK(difference(a.grads(), kernels.grads()) < 0.05);
    }
}

// ggml's CUDA backend sums products of F16 in F16 unless a node asks for more.
TEST_CASE("every_product_of_f16_asks_for_sums_in_f32") {
    const auto n_checked = [](ggml_cgraph * graph) {
        int n = 0;
        for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
            const ggml_tensor * node = ggml_graph_node(graph, i);
            if (node->op == GGML_OP_MUL_MAT && node->src[0]->type == GGML_TYPE_F16) {
                INFO(node->name);
                CHECK(node->op_params[0] == GGML_PREC_F32);
                ++n;
            }
        }
        return n;
    };
    for (const auto & [arch, V] : kModels) {
        for (const Form form : {Form::portable, Form::device}) {
            INFO(arch << " " << V);
            Setup setup(small(arch, V), form);
            setup.options.compute = GGML_TYPE_F16;
            const StepGraph graph(setup.backend, *setup.model, setup.options);
            CHECK(n_checked(graph.graph()) > 3);
        }
    }
    // of adapters
    const ggml_context_ptr ctx = make_context(32, 16);
    const auto             f32 = [&](int64_t cols, int64_t rows) {
        return ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, cols, rows);
    };
    Ops           ops(ctx.get(), Form::portable, GGML_TYPE_F16);
    ggml_cgraph * graph = ggml_new_graph_custom(ctx.get(), 16, false);
    ggml_build_forward_expand(
        graph, ops.linear_blocks(f32(6, 2), {f32(3, 4), f32(3, 5)}, f32(9, 2))
    );
    CHECK(n_checked(graph) == 2);
}

TEST_CASE("model_gradients_match_central_differences") {
    for (const auto & [arch, V] : kModels) {
        if (V > 1000) {
            continue;
        }
        const ModelConfig c = small(arch, V);
        Setup             s(c, Form::fused, "cpu", 1);
        const Batch       batch = some_batch(c, 2, 17);
        StepGraph         graph(s.backend, *s.model, s.options);
        graph.run(batch);
        const auto grads   = s.grads();
        double     largest = 0.0;
        for (const auto & g : grads) {
            for (float x : g) {
                largest = std::max<double>(largest, std::fabs(x));
            }
        }
        for (size_t i = 0; i < grads.size(); ++i) {
            const Param & param = s.model->params()[i];
            const size_t  k     = random_bits(4, i) % grads[i].size();
            float         value = 0.0f;
            const size_t  at    = k * sizeof(float);
            ggml_backend_tensor_get(param.weight, &value, at, sizeof(value));
            const auto loss_at = [&](float x) {
                ggml_backend_tensor_set(param.weight, &x, at, sizeof(x));
                return graph.run(batch);
            };
            const double slope = (loss_at(value + 5e-3f) - loss_at(value - 5e-3f)) / 1e-2;
            loss_at(value);
            INFO(arch << " " << param.name << "[" << k << "]");
            CHECK(std::fabs(slope - grads[i][k]) < 3e-3 * largest);
        }
    }
}

TEST_CASE("recomputing_whole_blocks_changes_no_bit_and_takes_less_memory") {
    for (const char * arch : {"gpt2", "llama", "vit"}) {
        for (Form form : {Form::portable, Form::fused, Form::device}) {
            INFO(arch << ", form " << static_cast<int>(form));
            ModelConfig c = small(arch);
            c.n_layer     = 5;
            Setup a(c, form), b(c, form);
            b.options.recompute = Recompute::all;
            const Batch batch   = some_batch(c, 2, 17);
            StepGraph   ga(a.backend, *a.model, a.options), gb(b.backend, *b.model, b.options);
            CHECK(ga.run(batch) == gb.run(batch));
            CHECK(a.grads() == b.grads());
            CHECK(gb.activation_bytes() < ga.activation_bytes());
        }
    }
}

TEST_CASE("same_threads_same_bits_other_threads_agree") {
    for (const char * arch : {"gpt2", "llama", "vit"}) {
        const ModelConfig c = small(arch);
        Setup             a(c, Form::fused), b(c, Form::fused), d(c, Form::fused, "cpu", 3);
        const Batch       batch = some_batch(c, 2, 17);
        StepGraph         ga(a.backend, *a.model, a.options), gb(b.backend, *b.model, b.options);
        StepGraph         gd(d.backend, *d.model, d.options);
        const double      loss = ga.run(batch);
        CHECK(loss == gb.run(batch));
        CHECK(a.grads() == b.grads());
        CHECK(loss == Approx(gd.run(batch)).epsilon(1e-5));
        CHECK(difference(a.grads(), d.grads()) < 1e-5);
    }
}

TEST_CASE("the_loss_graph_agrees_with_the_training_graph_and_ignores_what_it_should") {
    const ModelConfig c = small("gpt2");
    Setup             s(c, Form::fused);
    Batch             batch = some_batch(c, 2, 17);
    StepGraph         train(s.backend, *s.model, s.options);
    GraphOptions      options = s.options;
    options.goal              = GraphOptions::Goal::loss;
    StepGraph loss(s.backend, *s.model, options);
    CHECK(train.run(batch) == Approx(loss.run(batch)).epsilon(1e-6));

    std::fill(batch.labels.begin(), batch.labels.end(), -1);
    CHECK(train.run(batch) == 0.0);
    for (const auto & g : s.grads()) {
        for (float x : g) {
            REQUIRE(x == 0.0f);
        }
    }
}

// Chats that share a sample, in every form: loss and gradient of each are those of the chat alone.
TEST_CASE("a_segment_has_the_loss_and_gradient_that_it_has_alone", "[device]") {
    constexpr int64_t T = 17, kLength = 7;
    for (const char * arch : {"gpt2", "llama", "qwen3", "gemma3"}) {
        for (Form form : {Form::portable, Form::fused, Form::device}) {
            if (form == Form::device && arch != std::string("gpt2")) {
                continue;  // emulation is slow
            }
            INFO(arch << ", form " << static_cast<int>(form));
            const std::string device = form == Form::device ? "fake" : "cpu";
            const ModelConfig c      = small(arch);
            Setup             packed(c, form, device), alone(c, form, device);
            packed.options.packed = true;
            Batch batch           = some_batch(c, 2, T);
            for (int32_t i = 0; i < 2 * T; ++i) {
                batch.positions.push_back(i % T % kLength);
            }
            StepGraph together(packed.backend, *packed.model, packed.options);
            StepGraph one(alone.backend, *alone.model, alone.options);
            for (size_t begin = 0; begin < 2 * T;) {
                size_t end = begin + 1;
                while (end < 2 * T && batch.positions[end] > 0) {
                    ++end;
                }
                Batch mine = batch, only = batch.blank();
                only.tokens.assign(2 * T, 0);
                for (size_t i = 0; i < 2 * T; ++i) {
                    mine.labels[i] = i >= begin && i < end ? batch.labels[i] : -1;
                }
                for (size_t i = begin; i < end; ++i) {
                    only.tokens[i - begin] = batch.tokens[i];
                    only.labels[i - begin] = batch.labels[i];
                }
                CHECK(together.run(mine) == Approx(one.run(only)).epsilon(1e-5));
                CHECK(difference(packed.grads(), alone.grads()) < 2e-5);
                begin = end;
            }
        }
    }
}

// Of the context 1024 over that of 256.
static double growth_of_activations(Form form) {
    ModelConfig c = small("gpt2");
    c.n_ctx       = 1024;
    Setup  s(c, form);
    double bytes[2];
    for (int i : {0, 1}) {
        GraphOptions options = s.options;
        options.T            = i ? 1024 : 256;
        bytes[i] = static_cast<double>(StepGraph(s.backend, *s.model, options).activation_bytes());
    }
    return bytes[1] / bytes[0];
}

TEST_CASE("activation_memory_grows_linearly_with_the_context") {
    CHECK(growth_of_activations(Form::fused) < 4.2);
    CHECK(growth_of_activations(Form::device) < 4.2);
    CHECK(growth_of_activations(Form::portable) > 6.0);  // it keeps the scores of all pairs
}
