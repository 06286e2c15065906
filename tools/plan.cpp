// plan — what a run will cost and who slows it, before anything starts.
//
//   plan -m small.gguf --nodes hosts.txt
//   plan -m small.gguf --hosts 4 --up 20 --down 100 --compute 2.5
//
// For each replicator: bytes per step, seconds per step on the given lines, GB a day. A step takes as
// long as computing plus travelling, or the longer of the two where they overlap.
#include "ggml-train/graph.h"
#include "models/blocks.h"
#include "models/init.h"
#include "tools/estimate.h"
#include "tools/flags.h"

#include <algorithm>
#include <chrono>
#include <thread>

using namespace gt;

namespace {

struct PlanFlags {
    std::string  model, nodes;
    int64_t      batch = 0, context = 0, n_hosts = 2;
    double       up = 20.0, down = 100.0, compute = 0.0;
    int          threads = 0;
    OptimOptions optim;

    void visit(Flags & visit) {
        visit("model,m", model, "model to train (GGUF)");
        visit("nodes", nodes, "hosts.txt, for the machines and their lines (up=, down=)");
        visit("hosts", n_hosts, "without --nodes: number of machines");
        visit("up", up, "Mbit/s to send, where a machine's line does not say");
        visit("down", down, "Mbit/s to receive, likewise");
        visit("compute", compute, "seconds of computing per step; 0: measured here");
        visit("batch", batch, "samples per step and host; 0: about 8192 tokens");
        visit("context", context, "tokens per sample; 0: as the model was made for");
        visit("threads,t", threads, "CPU threads to measure with; 0: all cores");
        visit("top-k", optim.top_k, "demo: coefficients sent per chunk");
        visit("rate", optim.rate, "random, striding, slicing: share of the rows sent");
        visit("wire", optim.wire, "numbers on the wire");
    }
};

double measure(const PlanFlags & f, const ModelFile & model) {
    const Backend backend(
        "cpu", f.threads ? f.threads : static_cast<int>(std::thread::hardware_concurrency())
    );
    const auto graph_model = make_model(backend, model.config, true);
    for (const ModelTensor & tensor : model.tensors) {
        graph_model->weights().set(graph_model->weights().at(tensor.spec.name), tensor.data);
    }
    const bool images = model.config.arch == "vit";
    StepGraph  graph(
         backend, *graph_model,
         {.B          = 1,
          .T          = images ? model.config.n_positions() : f.context,
          .image_size = model.config.image_size,
          .channels   = model.config.channels}
     );
    const int64_t pixels =
        model.config.image_size * model.config.image_size * model.config.channels;
    const Batch batch{
        .n_samples = 1,
        .tokens    = std::vector<int32_t>(images ? 0 : f.context),
        .images    = std::vector<float>(images ? pixels : 0),
        .labels    = std::vector<int32_t>(images ? 1 : f.context)};
    graph.run(batch);
    const auto from = std::chrono::steady_clock::now();
    graph.run(batch);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count() *
           static_cast<double>(f.batch);
}

std::vector<HostLine> lines(const PlanFlags & f) {
    std::vector<HostLine> hosts;
    if (!f.nodes.empty()) {
        hosts = read_hosts(f.nodes).hosts;
    }
    for (int64_t i = 0; f.nodes.empty() && i < f.n_hosts; ++i) {
        hosts.push_back({.name = format("host-%lld", static_cast<long long>(i + 1))});
    }
    for (HostLine & host : hosts) {
        host.up   = host.up > 0 ? host.up : f.up;
        host.down = host.down > 0 ? host.down : f.down;
    }
    return hosts;
}

void print_plan(const PlanFlags & f, const ModelFile & model) {
    const std::vector<ParamView> params = param_shapes(model.config);
    const std::vector<HostLine>  hosts  = lines(f);
    std::printf(
        "%s\n%zu hosts, %.2f s of computing per step of %lld samples\n\n",
        describe(model.config).c_str(), hosts.size(), f.compute, static_cast<long long>(f.batch)
    );
    std::printf(
        "%-11s %12s %10s %10s %10s %9s %9s  %s\n", "replicator", "bytes/round", "every", "s/step",
        "overlapped", "GB/day up", "GB down", "slowest line"
    );
    for (const NameAndHelp & row : replicator_names()) {
        OptimOptions optim = f.optim;
        optim.replicator   = row.name;
        const Cost cost    = estimate(optim, params, hosts, f.compute);
        const auto every   = static_cast<unsigned long long>(cost.every);
        std::printf(
            "%-11s %12lld %10s %10.2f %10.2f %9.1f %9.1f  %s\n", row.name.c_str(),
            static_cast<long long>(cost.round_bytes),
            cost.round_bytes ? format(every == 1 ? "step" : "%llu steps", every).c_str() : "never",
            cost.step_s, cost.overlapped_s, cost.up_gb_day, cost.down_gb_day,
            cost.slowest.empty() ? "-"
                                 : format("%s, %.2f s", cost.slowest.c_str(), cost.travel_s).c_str()
        );
    }
}

}  // namespace

int main(int argc, char ** argv) {
    return run_tool("plan", [&] {
        PlanFlags f;
        Flags     flags(
                "plan", "what a run will cost, before starting it",
                "-m MODEL [--nodes hosts.txt] [flags]"
            );
        f.visit(flags);
        flags.parse(argc, argv);
        flags.require("model");
        const ModelFile model  = load_model(f.model);
        const bool      images = model.config.arch == "vit";
        f.context              = images      ? model.config.n_positions()
                                 : f.context ? f.context
                                             : model.config.n_ctx;
        f.batch                = f.batch ? f.batch : std::max<int64_t>(1, 8192 / f.context);
        f.compute              = f.compute > 0.0 ? f.compute : measure(f, model);
        print_plan(f, model);
    });
}
