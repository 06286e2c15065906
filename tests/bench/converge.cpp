// bench-converge — loss by replicator: simulated hosts train a byte-level GPT on real text.
//
//   bench-converge TOKENS RESULTS.jsonl [--steps 400] [--hosts 4] [--threads 1] [--only NAME]
//
// The driver, converge.py, prepares the tokens, runs this, and makes a table and a plot of RESULTS.
#include "models/presets.h"
#include "models/text/token-data.h"
#include "tests/bench/converge-sim.h"

using namespace gt;

namespace {

constexpr int64_t kBatch = 4, kContext = 128;

OptimOptions demo(int64_t top_k, const char * wire) {
    return {.replicator = "demo", .wire = wire, .top_k = top_k};
}

// The settings of the DeMo paper.
OptimOptions demo_sign() {
    return {.replicator = "demo", .rule = "sgd", .wire = "fp32", .top_k = 32, .decay = 0.999f};
}

OptimOptions with(const char * replicator, uint64_t every = 0) {
    return {.replicator = replicator, .every = every};
}

std::vector<SimSetting> settings() {
    const std::vector<float> adamw = {2e-3f, 4e-3f, 8e-3f}, muon = {4e-3f, 8e-3f, 1.6e-2f};
    const std::vector<float> rows = {2e-3f, 4e-3f, 8e-3f};
    return {
        {"adamw-full", with("full"), adamw},
        {"muon-full", {.replicator = "full", .rule = "muon"}, muon},
        {"demo k32", demo(32, "auto"), muon},
        {"demo k32 fp32", demo(32, "fp32"), muon},
        {"demo k128", demo(128, "auto"), muon},
        {"demo k128 fp32", demo(128, "fp32"), muon},
        {"demo k32 sign", demo_sign(), {1e-3f, 2e-3f, 4e-3f}},
        {"random", with("random"), rows},
        {"striding", with("striding"), rows},
        {"slicing", with("slicing"), rows},
        {"diloco", with("diloco", 20), adamw},
        {"sparseloco", with("sparseloco", 20), adamw},
        {"none", with("none"), adamw},
        {"muon-none", {.replicator = "none", .rule = "muon"}, muon},
    };
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc < 3) {
        std::fprintf(
            stderr,
            "usage: bench-converge TOKENS RESULTS.jsonl [--steps N] [--hosts N] [--only NAME]\n"
        );
        return 2;
    }
    const TokenData data(argv[1]);
    SimTask         task{
                .name   = "text",
                .config = find_preset("gpt-tiny").config,
                .B      = kBatch,
                .T      = kContext,
                .train  = [&](uint64_t step, const std::string & host) {
            return data.train(1, step, host, 0, kBatch, kContext);
        }};
    task.config.n_vocab = static_cast<int64_t>(data.info().n_vocab);
    task.validate       = [&](Backend & backend, Transformer & model) {
        StepGraph graph(
                  backend, model, {.B = kBatch, .T = kContext, .goal = GraphOptions::Goal::loss}
              );
        double        loss = 0.0, counted = 0.0;
        const int64_t n = data.n_val_windows(kContext, 512);
        for (int64_t i = 0; i + kBatch <= n; i += kBatch) {
            const Batch batch = data.val(i, i + kBatch, kContext, n);
            loss += graph.run(batch);
            counted += static_cast<double>(batch.n_labels());
        }
        return format("\"val_loss\": %.5f", loss / counted);
    };
    return run_settings(task, settings(), argv[2], std::span(argv, argc).subspan(3));
}
