// optim-digest — per replicator, wire type and rule: a digest of all messages, weights and state of a few
// steps. Built for several instruction sets; test-optim-digest.sh compares their output.
//
//   optim-digest [threads]
#include "optim/fixed-run.h"
#include "tests/optim/optim-sim.h"

#include <cstdio>
#include <cstdlib>

using namespace gt;

static uint64_t run(const OptimOptions & options, Workers & workers) {
    auto     hosts  = sim_hosts(3, options, workers);
    uint64_t digest = 0;
    for (uint64_t step = 0; step < 6; ++step) {
        Round round{.step = step, .has_mine = true};
        for (auto & host : hosts) {
            Bytes message = host->prepare(step);
            digest        = digest64(message, digest);
            if (!message.empty()) {
                round.messages.push_back({"h", sim_weight(host->id), std::move(message)});
            }
        }
        for (auto & host : hosts) {
            host->optimizer->apply(round);
            digest = digest_of(host->model.weight, digest);
            digest = digest_of(save(*host->optimizer).tensors, digest);
        }
    }
    return digest;
}

int main(int argc, char ** argv) {
    Workers workers(argc > 1 ? std::atoi(argv[1]) : 1);
    for (const auto & replicator : replicator_names()) {
        for (const auto & wire : wire_names()) {
            for (const auto & rule : rule_names()) {
                if (rule.name == "muon" && wire.name != "q4") {
                    continue;  // slow without FMA, and its input does not depend on the wire type
                }
                OptimOptions options{
                    .replicator = replicator.name,
                    .rule       = rule.name,
                    .wire       = wire.name,
                    .top_k      = 9,
                    .rate       = 0.3f};
                options.every         = steps_per_round(options) > 1 ? 2 : 1;
                options.clip_messages = wire.name == "q8" ? 0.5f : 2.0f;
                options.moments       = rule.name == "adamw" && wire.name == "q8" ? "q8" : "f32";
                options.chunk         = wire.name == "fp16" ? "480" : "64x64";
                std::printf(
                    "%-10s %-5s %-5s %016llx\n", replicator.name.c_str(), wire.name.c_str(),
                    rule.name.c_str(), static_cast<unsigned long long>(run(options, workers))
                );
            }
        }
    }
    std::printf("fixed run %016llx\n", static_cast<unsigned long long>(fixed_run_digest()));
    SimModel           model;
    const OptimOptions options;
    model.set_gradients(0, 0);
    std::printf("norm %a\n", grad_norm(options, model.params(options), workers));
}
