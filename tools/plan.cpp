// plan — estimates step time and traffic of a run with several hosts.
//
//   plan -m small.gguf --nodes hosts.txt
//   plan -m small.gguf --hosts 4 --up 20 --down 100 --compute 2.5
//
// For each replicator: bytes per round, seconds per step on the given links, GB per day. A step takes the
// time of the gradient plus that of the transfer, or with overlap the longer of the two.
#include "ggml-train/graph/graph.h"
#include "models/blocks.h"
#include "models/init.h"
#include "tools/cli/flags.h"
#include "tools/train/cost.h"
#include "tools/train/train-flags.h"
#include "tools/verbs.h"

#include <algorithm>
#include <chrono>
#include <thread>

using namespace gt;

namespace {

struct PlanFlags {
    std::string  model, nodes;
    int64_t      batch = 0, context = 0, n_hosts = 2;
    double       up = 20.0, down = 100.0, compute = 0.0, day_cap = 0.0;
    int          threads = 0;
    OptimOptions optim;
    LoraFlags    lora;

    void visit(Flags & visit) {
        visit("model,m", model, "model to train (GGUF)");
        lora.visit(visit);
        visit("nodes", nodes, "hosts.txt: the machines and their links (up=, down=)");
        visit("hosts", n_hosts, "number of machines, without --nodes", {}, 2, 1e6);
        visit("up", up, "upload in Mbit/s of machines without up= in hosts.txt", {}, 0.001, 1e9);
        visit(
            "down", down, "download in Mbit/s of machines without down= in hosts.txt", {}, 0.001,
            1e9
        );
        visit("compute", compute, "seconds per gradient; 0: measure on this machine", {}, 0);
        visit("batch", batch, "samples per step on each host; 0: about 8192 tokens", {}, 0);
        visit("context,c", context, "tokens per sample; 0: the model's context length", {}, 0);
        visit("threads,t", threads, "CPU threads for the measurement; 0: all cores", {}, 0, 4096);
        visit(
            "day-cap", day_cap,
            "GB a host may send per day: names the --fragments that fit; 0: any", {}, 0
        );
        visit(
            "fragments", optim.fragments, "loco: parts of the model that take turns", {}, 1, 1024
        );
        visit("top-k", optim.top_k, "demo, sparseloco: values sent per chunk", {}, 1);
        visit(
            "row-fraction,rate", optim.rate, "random, striding, slicing: fraction of the rows sent",
            {}, 0, 1
        );
        visit("wire", optim.wire, "type of the values sent");
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
    const bool images = takes_images(model.config);
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

std::vector<HostEntry> lines(const PlanFlags & f) {
    std::vector<HostEntry> hosts;
    if (!f.nodes.empty()) {
        hosts = read_hosts(f.nodes).hosts;
    }
    for (int64_t i = 0; f.nodes.empty() && i < f.n_hosts; ++i) {
        hosts.push_back({.name = format("host-%lld", static_cast<long long>(i + 1))});
    }
    for (HostEntry & host : hosts) {
        host.up   = host.up > 0 ? host.up : f.up;
        host.down = host.down > 0 ? host.down : f.down;
    }
    return hosts;
}

void print_plan(const PlanFlags & f, const ModelFile & model) {
    const std::vector<ParamView> params = param_shapes(tensor_specs(model.config));
    const std::vector<HostEntry> hosts  = lines(f);
    std::printf(
        "%s\n%zu hosts, %.2f s per gradient of %lld samples\n\n", describe(model.config).c_str(),
        hosts.size(), f.compute, static_cast<long long>(f.batch)
    );
    std::printf(
        "%-11s %12s %10s %10s %10s %9s %9s  %s\n", "replicator", "bytes/round", "every", "s/step",
        "overlapped", "GB/day up", "GB down", "slowest link"
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

// The choice of --replicator auto; with a cap, the fewest fragments that keep to it.
void print_choice(const PlanFlags & f, const ModelFile & model) {
    const std::vector<ParamView> params = param_shapes(tensor_specs(model.config));
    OptimOptions                 optim  = f.optim;
    optim.replicator                    = default_replicator(false);
    Cost cost                           = estimate(optim, params, lines(f), f.compute);
    while (f.day_cap > 0.0 && cost.up_gb_day > f.day_cap && optim.fragments < 512) {
        optim.fragments += (optim.fragments + 3) / 4;
        cost = estimate(optim, params, lines(f), f.compute);
    }
    std::printf(
        "\n--replicator %s --fragments %llu: %.1f GB a day up; keeps about %.0f %% of what full "
        "synchronisation gains (tests/README.md)\n",
        optim.replicator.c_str(), static_cast<unsigned long long>(optim.fragments), cost.up_gb_day,
        100.0 * expected_share(optim.fragments)
    );
}

}  // namespace

int gt::plan_main(Flags & flags, int argc, char ** argv) {
    PlanFlags f;
    f.visit(flags);
    flags.parse(argc, argv);
    flags.require("model");
    const ModelFile model =
        f.lora.rank > 0 ? load_for_adapter(f.model, f.lora.config()) : load_model(f.model);
    const bool images = takes_images(model.config);
    f.context = images ? model.config.n_positions() : f.context ? f.context : model.config.n_ctx;
    f.batch   = f.batch ? f.batch : std::max<int64_t>(1, 8192 / f.context);
    f.compute = f.compute > 0.0 ? f.compute : measure(f, model);
    print_plan(f, model);
    print_choice(f, model);
    return 0;
}
