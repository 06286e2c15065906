// bench-train — time of training steps of one model at a fixed batch; called by train-speed.py.
//
//   bench-train gpt2-124m 4 256 --steps 5 [--threads 2] [--recompute] [--profile]
//
// Prints one line of JSON. --profile runs the graph node by node and prints the time of each op.
#include "ggml-train/graph/compute.h"
#include "ggml-train/graph/graph.h"
#include "models/blocks.h"
#include "models/init.h"
#include "models/presets.h"
#include "optim/optim.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ggml-impl.h>
#include <map>
#include <sys/resource.h>

using namespace gt;

static double seconds() {
    using namespace std::chrono;
    return duration<double>(steady_clock::now().time_since_epoch()).count();
}

static ModelConfig config_of(const std::string & name, int64_t T) {
    if (name == "vit-192") {  // 192 wide, 12 layers, 32x32 pictures, patch 4
        ModelConfig config = find_preset("vit-tiny").config;
        config.image_size  = 32;
        config.patch_size  = 4;
        return config;
    }
    ModelConfig config = find_preset(name).config;
    if (!takes_images(config)) {
        config.n_vocab = find_preset(name).tokenizer == std::string("bytes") ? 256 : 50257;
        config.n_ctx   = std::max(config.n_ctx, T);
    }
    return config;
}

static Batch random_batch(const ModelConfig & config, int64_t B, int64_t T) {
    Batch batch{.n_samples = B};
    if (takes_images(config)) {
        const int64_t size = config.image_size * config.image_size * config.channels * B;
        for (int64_t i = 0; i < size; ++i) {
            batch.images.push_back(random_uniform(random_bits(1, i)));
        }
        batch.labels.assign(B, 1);
        return batch;
    }
    for (int64_t i = 0; i < B * T; ++i) {
        batch.tokens.push_back(static_cast<int32_t>(random_bits(1, i) % config.n_vocab));
        batch.labels.push_back(static_cast<int32_t>(random_bits(2, i) % config.n_vocab));
    }
    return batch;
}

static void profile(const Backend & backend, ggml_cgraph * graph) {
    std::map<std::string, std::pair<double, int>> kinds;
    double                                        all = 0.0;
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        const ggml_tensor * node = ggml_graph_node(graph, i);
        ggml_cgraph         one  = ggml_graph_view(graph, i, i + 1);
        const double        from = seconds();
        compute(backend, &one);
        const double      took = seconds() - from;
        const FusedOp *   op   = fused_op(node);
        const std::string name = op ? op->name : ggml_op_desc(node);
        kinds[name].first += took;
        kinds[name].second += 1;
        all += took;
    }
    std::vector<std::pair<double, std::string>> order;
    for (const auto & [name, sum] : kinds) {
        order.push_back({sum.first, name});
    }
    std::sort(order.rbegin(), order.rend());
    for (const auto & [took, name] : order) {
        std::printf(
            "%-18s %4d nodes %8.1f ms %5.1f %%\n", name.c_str(), kinds[name].second, 1e3 * took,
            100 * took / all
        );
    }
}

int main(int argc, char ** argv) {
    const std::string name = argc > 3 ? argv[1] : "gpt2-124m";
    const int64_t     B = argc > 3 ? std::atoi(argv[2]) : 4, T = argc > 3 ? std::atoi(argv[3]) : 64;
    int               steps = 3, n_threads = 2;
    bool              recompute = false, with_profile = false;
    for (int i = 4; i < argc; ++i) {
        steps     = !std::strcmp(argv[i], "--steps") ? std::atoi(argv[i + 1]) : steps;
        n_threads = !std::strcmp(argv[i], "--threads") ? std::atoi(argv[i + 1]) : n_threads;
        recompute |= !std::strcmp(argv[i], "--recompute");
        with_profile |= !std::strcmp(argv[i], "--profile");
    }
    const ModelConfig config = config_of(name, T);
    const Backend     backend("cpu", n_threads);
    const auto        model = make_model(backend, config, true);
    for (const TensorSpec & spec : tensor_specs(config)) {
        std::vector<float> values(spec.n_elements());
        init_tensor(spec, 1, values);
        model->weights().set(model->weights().at(spec.name), values);
    }
    const bool images = takes_images(config);
    StepGraph  graph(
         backend, *model,
         {.B          = B,
          .T          = images ? config.n_positions() : T,
          .image_size = config.image_size,
          .channels   = config.channels,
          .recompute  = recompute ? Recompute::all : Recompute::cheap}
     );
    const Batch         batch = random_batch(config, B, T);
    Workers             workers(n_threads);
    const OptimOptions  optim{.replicator = "none", .rule = "adamw"};
    const auto          views     = model->weights().views();
    const auto          optimizer = make_optimizer(optim, views, workers);
    std::vector<double> times, adamw;
    double              loss = 0.0;
    for (int step = 0; step < steps; ++step) {
        const double from  = seconds();
        loss               = graph.run(batch, 1.0f / static_cast<float>(batch.labels.size()));
        const double begun = seconds();
        (void) optimizer->prepare(step, 1e-4f, {.max_norm = 1.0f});
        optimizer->apply({.step = static_cast<uint64_t>(step)});
        times.push_back(seconds() - from);
        adamw.push_back(seconds() - begun);
    }
    if (with_profile) {
        profile(backend, graph.graph());
    }
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto list = [](const std::vector<double> & values) {
        std::string text;
        for (double value : values) {
            text += format("%s%.4f", text.empty() ? "" : ", ", value);
        }
        return text;
    };
    std::printf(
        "{\"loss\": %.6f, \"weights\": %lld, \"activations_mb\": %.1f, \"peak_mb\": %.1f, "
        "\"adamw\": [%s], \"seconds\": [%s]}\n",
        loss / static_cast<double>(batch.labels.size()), static_cast<long long>(n_params(config)),
        static_cast<double>(graph.activation_bytes()) / 1e6,
        static_cast<double>(usage.ru_maxrss) / 1024.0, list(adamw).c_str(), list(times).c_str()
    );
}
