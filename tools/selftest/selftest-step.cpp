#include "tools/selftest/selftest-step.h"

#include "ggml-train/graph/compute.h"
#include "ggml-train/graph/graph.h"
#include "models/blocks.h"
#include "models/init.h"
#include "models/presets.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace gt {

namespace {

constexpr int64_t kSamples = 2, kTokens = 64;

ModelConfig some_config() {
    ModelConfig config = find_preset("gpt-tiny").config;
    config.n_vocab     = 256;
    return config;
}

Batch some_batch(const ModelConfig & config) {
    Batch batch{.n_samples = kSamples};
    for (int64_t i = 0; i < kSamples * kTokens; ++i) {
        batch.tokens.push_back(static_cast<int32_t>(random_bits(1, i) % config.n_vocab));
        batch.labels.push_back(static_cast<int32_t>(random_bits(2, i) % config.n_vocab));
    }
    return batch;
}

struct Gradient {
    double                          loss = 0.0, first_s = 0.0, step_s = 0.0;
    std::vector<std::vector<float>> grads;
};

Gradient gradient_on(const std::string & device, Form form) {
    constexpr int     kTimes = 5;
    const ModelConfig config = some_config();
    const Batch       batch  = some_batch(config);
    const Backend     backend(device, 1);
    const auto        model = make_model(backend, config, true);
    for (const TensorSpec & spec : tensor_specs(config)) {
        std::vector<float> values(spec.n_elements());
        init_tensor(spec, 1, values);
        model->weights().set(model->weights().at(spec.name), values);
    }
    StepGraph graph(backend, *model, {.B = kSamples, .T = kTokens, .form = form});

    Gradient   result;
    const auto run = [&] {
        const auto start = std::chrono::steady_clock::now();
        result.loss      = graph.run(batch, 1.0f / (kSamples * kTokens)) / (kSamples * kTokens);
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    result.first_s = run();
    for (int i = 0; i < kTimes; ++i) {
        result.step_s += run() / kTimes;
    }
    for (const Param & param : model->params()) {
        result.grads.emplace_back(n_elements(param));
        model->weights().get_grad(param, result.grads.back());
    }
    return result;
}

double difference(const std::vector<float> & a, const std::vector<float> & b) {
    double largest = 1e-6, worst = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double d = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        worst          = d <= worst ? worst : d;  // NaN counts as worse
        largest        = std::max<double>(largest, std::fabs(b[i]));
    }
    return worst / largest;
}

}  // namespace

bool StepCheck::ok() const {
    return std::fabs(loss - cpu_loss) <= 1e-5 * cpu_loss && error <= 1e-4;
}

StepCheck selftest_step(const std::string & device) {
    const DeviceSpec spec = parse_devices(device).at(0);
    const Gradient   host = gradient_on("cpu", Form::fused);
    const Gradient   mine = gradient_on(device, best_form(spec));
    StepCheck        check{
               .device       = ggml_backend_dev_description(find_device(spec)),
               .loss         = mine.loss,
               .cpu_loss     = host.loss,
               .first_s      = mine.first_s,
               .step_s       = mine.step_s,
               .tokens_per_s = kSamples * kTokens / mine.step_s};
    for (size_t i = 0; i < mine.grads.size(); ++i) {
        const double error = difference(mine.grads[i], host.grads[i]);
        check.error        = error <= check.error ? check.error : error;
    }
    return check;
}

}  // namespace gt
