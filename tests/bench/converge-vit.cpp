// bench-converge-vit — accuracy by replicator: simulated hosts train a small ViT on pictures.
//
//   bench-converge-vit PICTURES RESULTS.jsonl [--steps 400] [--hosts 4] [--threads 1] [--only NAME]
#include "models/presets.h"
#include "models/vision/classifier.h"
#include "tests/bench/converge-sim.h"

#include <map>

using namespace gt;

namespace {

constexpr int64_t kBatch = 16;

std::vector<SimSetting> settings() {
    const std::vector<float> adamw = {1e-3f, 2e-3f, 4e-3f, 8e-3f},
                             muon  = {2e-3f, 4e-3f, 8e-3f, 1.6e-2f};
    return {
        {"adamw-full", {.replicator = "full"}, adamw},
        {"demo", {.replicator = "demo"}, muon},
        {"random", {.replicator = "random"}, muon},
        {"diloco", {.replicator = "diloco", .every = 20}, adamw},
        {"none", {.replicator = "none"}, adamw},
    };
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc < 3) {
        std::fprintf(
            stderr, "usage: bench-converge-vit PICTURES RESULTS.jsonl [--steps N] [--hosts N] "
                    "[--only NAME]\n"
        );
        return 2;
    }
    SimTask task{.name = "pictures", .B = kBatch};
    task.config            = find_preset("vit-micro").config;
    task.config.n_embd     = 64;
    task.config.n_ff       = 256;
    task.config.image_size = 28;
    task.config.channels   = 1;
    const ImageData data(argv[1], image_spec(task.config), {});
    learn_from_data(task.config, data, argv[1]);
    std::map<std::string, std::unique_ptr<ImageLoader>> loaders;
    task.train = [&](uint64_t step, const std::string & host) {
        auto & loader = loaders[host];
        if (!loader) {
            loader = std::make_unique<ImageLoader>(
                data, LoaderOptions{.seed = 1, .host = host, .batch = kBatch, .n_threads = 1}
            );
        }
        return to_batch(loader->at(step));
    };
    task.validate = [&](Backend & backend, Transformer & model) {
        StepGraph graph(
            backend, model,
            {.B          = kBatch,
             .image_size = task.config.image_size,
             .channels   = task.config.channels,
             .goal       = GraphOptions::Goal::logits}
        );
        ImageLoader      loader(data, {.batch = kBatch, .val = true, .n_threads = 1});
        const Evaluation result = evaluate_pictures(graph, loader);
        return format("\"val_loss\": %.5f, \"accuracy\": %.5f", result.loss, result.accuracy);
    };
    return run_settings(task, settings(), argv[2], std::span(argv, argc).subspan(3));
}
