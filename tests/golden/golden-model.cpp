// tests/golden/golden-model.cpp — golden files of kinds gpt2.train, llama.train, vit.train: training steps
// by PyTorch that our code must reproduce within the bounds below.
#include "ggml-train/graph/graph.h"
#include "models/blocks.h"
#include "optim/optim.h"
#include "tests/golden/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gguf.h>

namespace gt {

namespace {

struct Golden {
    gguf_context_ptr gguf;
    ggml_context_ptr ctx;

    explicit Golden(const std::string & path) {
        ggml_context * data = nullptr;
        gguf.reset(gguf_init_from_file(path.c_str(), {.no_alloc = false, .ctx = &data}));
        ctx.reset(data);
        if (!gguf) {
            throw Error(path + ": not a GGUF file");
        }
    }
    float number(const std::string & key) const {
        return gguf_get_val_f32(gguf.get(), gguf_find_key(gguf.get(), key.c_str()));
    }
    ggml_tensor * find(const std::string & name) const {
        return ggml_get_tensor(ctx.get(), name.c_str());
    }
    ggml_tensor * tensor(const std::string & name) const {
        ggml_tensor * t = find(name);
        if (!t) {
            throw Error("golden file without tensor " + name);
        }
        return t;
    }
    template <class T>
    std::span<const T> values(const std::string & name) const {
        const ggml_tensor * t = tensor(name);
        return {static_cast<const T *>(t->data), static_cast<size_t>(ggml_nelements(t))};
    }
};

float largest(std::span<const float> v) {
    float m = 0.0f;
    for (float x : v) {
        m = std::max(m, std::fabs(x));
    }
    return m;
}

float difference(std::span<const float> a, std::span<const float> b) {
    float m = 0.0f;
    for (size_t i = 0; i < a.size(); ++i) {
        const float d = std::fabs(a[i] - b[i]);
        m             = d <= m ? m : d;  // NaN counts as worse
    }
    return m;
}

// Key biases have no gradient in exact arithmetic: AdamW blows up their rounding noise.
bool is_key_bias(const std::string & name, size_t i, size_t n) {
    if (name.find("attn_qkv.bias") != std::string::npos) {
        return i >= n / 3 && i < 2 * n / 3;
    }
    return name.find("attn_k.bias") != std::string::npos;
}

class Run {
public:
    Run(const Golden & golden, Form form, const std::string & device)
        : golden_(golden), backend_(device, form == Form::device ? 1 : 2),
          config_(config_of(golden)), model_(make_model(backend_, config_, true)) {
        for (const Param & param : model_->params()) {
            model_->weights().set(param, golden.values<float>("init/" + param.name));
        }
        const bool images = takes_images(config_);
        B_                = golden.tensor(images ? "labels" : "tokens")->ne[images ? 0 : 1];
        T_                = images ? config_.n_positions() : golden.tensor("tokens")->ne[0] - 1;
        options_          = {
                     .B          = B_,
                     .T          = T_,
                     .image_size = config_.image_size,
                     .channels   = config_.channels,
                     .form       = form};
    }

    // n_steps: of all that PyTorch took; the weights are compared after the last.
    void check(size_t n_steps) {
        // lives as long as `graph`: Mesa 22.3's lavapipe writes to a freed buffer of an earlier graph, if a
        // descriptor set still holds it
        GraphOptions logits = options_;
        logits.goal         = GraphOptions::Goal::logits;
        StepGraph logits_graph(backend_, *model_, logits);
        check_logits(logits_graph);
        StepGraph graph(backend_, *model_, options_);

        // the optimizer works on host memory, whatever the device
        std::vector<std::vector<float>> weights, grads;
        std::vector<ParamView>          views;
        for (const Param & param : model_->params()) {
            weights.emplace_back(n_elements(param));
            grads.emplace_back(n_elements(param));
            model_->weights().get(param, weights.back());
        }
        for (size_t i = 0; i < weights.size(); ++i) {
            views.push_back(host_view(model_->params()[i], weights[i], grads[i]));
        }
        Workers      workers(2);
        OptimOptions optim{.replicator = "none", .rule = "adamw"};
        optim.beta1           = golden_.number("golden.beta1");
        optim.beta2           = golden_.number("golden.beta2");
        optim.eps             = golden_.number("golden.eps");
        optim.weight_decay    = golden_.number("golden.weight_decay");
        const auto  optimizer = make_optimizer(optim, views, workers);
        const float lr = golden_.number("golden.lr"), clip = golden_.number("golden.grad_clip");
        const auto  losses = golden_.values<float>("loss"),
                   norms   = golden_.values<float>("gradnorm");

        for (size_t step = 0; step < std::min(n_steps, losses.size()); ++step) {
            const Batch  batch = batch_of(step);
            const double n     = static_cast<double>(batch.labels.size());
            const double loss  = graph.run(batch, static_cast<float>(1.0 / n)) / n;
            for (size_t i = 0; i < grads.size(); ++i) {
                model_->weights().get_grad(model_->params()[i], grads[i]);
            }
            if (step == 0) {
                check_grads(grads);
            }
            const double norm = optimizer->prepare(step, lr, {.max_norm = clip}).grad_norm;
            note("loss", std::fabs(loss - losses[step]) / losses[step], 1e-4);
            note("gradnorm", std::fabs(norm - norms[step]) / norms[step], 1e-4);
            optimizer->apply({.step = step});
            for (size_t i = 0; i < weights.size(); ++i) {
                model_->weights().set(model_->params()[i], weights[i]);
            }
        }
        if (n_steps >= losses.size()) {
            check_final(weights);
        }
    }

    double      worst = 0.0;  // over bound
    std::string where;

private:
    static ModelConfig config_of(const Golden & golden) {
        ModelConfig config = read_config(golden.gguf.get(), "golden file");
        config.tied        = !golden.find("init/output.weight");
        return config;
    }

    static ParamView
    host_view(const Param & param, std::span<float> weight, std::span<float> grad) {
        int64_t rows = 1;
        for (int64_t n : param.ne) {
            rows = n > 1 ? n : rows;  // the last size that is not 1
        }
        return {param.name, param.ne, param.kind, 0, rows, weight, grad};
    }

    void note(const std::string & what, double error, double bound) {
        if (!(error / bound <= worst)) {
            worst = error / bound;
            where = what;
        }
    }

    Batch batch_of(size_t step) const {
        Batch batch{.n_samples = B_};
        if (takes_images(config_)) {
            const auto   images = golden_.values<float>("images");
            const auto   labels = golden_.values<int32_t>("labels");
            const size_t each   = config_.image_size * config_.image_size * config_.channels * B_;
            batch.images.assign(images.begin() + step * each, images.begin() + (step + 1) * each);
            batch.labels.assign(labels.begin() + step * B_, labels.begin() + (step + 1) * B_);
            return batch;
        }
        const auto tokens = golden_.values<int32_t>("tokens").subspan(step * B_ * (T_ + 1));
        for (int64_t b = 0; b < B_; ++b) {
            const auto row = tokens.subspan(b * (T_ + 1), T_ + 1);
            batch.tokens.insert(batch.tokens.end(), row.begin(), row.end() - 1);
            batch.labels.insert(batch.labels.end(), row.begin() + 1, row.end());
        }
        return batch;
    }

    void check_logits(StepGraph & graph) {
        graph.run(batch_of(0));
        const auto expected = golden_.values<float>("logits");
        note("logits", difference(graph.logits(), expected) / largest(expected), 2e-4);
    }

    void check_grads(const std::vector<std::vector<float>> & grads) {
        float overall = 0.0f;
        for (const Param & param : model_->params()) {
            overall = std::max(overall, largest(golden_.values<float>("grad/" + param.name)));
        }
        for (size_t i = 0; i < grads.size(); ++i) {
            const std::string name     = "grad/" + model_->params()[i].name;
            const auto        expected = golden_.values<float>(name);
            const float       scale    = std::max(largest(expected), 1e-3f * overall);
            note(name, difference(grads[i], expected) / scale, 2e-4);
        }
    }

    void check_final(const std::vector<std::vector<float>> & weights) {
        float moved = 0.0f;
        for (const Param & param : model_->params()) {
            moved = std::max(
                moved, difference(
                           golden_.values<float>("final/" + param.name),
                           golden_.values<float>("init/" + param.name)
                       )
            );
        }
        for (size_t i = 0; i < weights.size(); ++i) {
            const std::string name     = model_->params()[i].name;
            const auto        expected = golden_.values<float>("final/" + name);
            for (size_t k = 0; k < expected.size(); ++k) {
                if (!is_key_bias(name, k, expected.size())) {
                    note("final/" + name, std::fabs(weights[i][k] - expected[k]) / moved, 2e-3);
                }
            }
        }
    }

    const Golden &               golden_;
    Backend                      backend_;
    ModelConfig                  config_;
    std::unique_ptr<Transformer> model_;
    GraphOptions                 options_;
    int64_t                      B_ = 0, T_ = 0;
};

}  // namespace

std::vector<GoldenResult> golden_model(const std::string & path, const std::string & device) {
    const Golden      golden(path);
    const std::string kind =
        gguf_get_val_str(golden.gguf.get(), gguf_find_key(golden.gguf.get(), "golden.kind"));
    std::vector<GoldenResult> results;
    struct Way {
        std::string name;
        Form        form;
        std::string device;
        size_t      n_steps = SIZE_MAX;
    };
    std::vector<Way> ways = {
        {"fused", Form::fused, "cpu"},
        {"portable", Form::portable, "cpu"},
        {"portable on a device", Form::portable, "fake"},
#ifdef GT_EMULATED
        {"our kernels on a device", Form::device, "fake", 2},  // an emulator takes its time
#endif
    };
    if (!device.empty()) {
        ways = {{"portable on " + device, Form::portable, device}};
    }
    for (const Way & way : ways) {
        Run run(golden, way.form, way.device);
        run.check(way.n_steps);
        results.push_back({kind + ", " + way.name, run.worst, run.worst <= 1.0, run.where});
    }
    return results;
}

}  // namespace gt
