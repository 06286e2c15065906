// plan — estimates step time and traffic of a run with several hosts.
//
//   plan -m small.gguf --nodes hosts.txt
//   plan -m small.gguf --hosts 4 --up 20 --down 100 --compute 2.5
//
// For each replicator: bytes per round, seconds per step on the given links, GB per day. A step takes the
// time of the gradient plus that of the transfer, or with overlap the longer of the two. The hub is on the
// line of its host, in hosts.txt the first with an address; without --nodes, the first one. Last come the GPUs
// that have the memory to train the model.
#include "ggml-train/base/text.h"
#include "ggml-train/shard/weights.h"
#include "models/init.h"
#include "tools/cli/flags.h"
#include "tools/train/cost.h"
#include "tools/train/memory-plan.h"
#include "tools/train/train-flags.h"
#include "tools/verbs.h"

#include <algorithm>
#include <limits>
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
        visit("context,c", context, "tokens per sample; 0: the model's, at most 2048", {}, 0);
        visit("threads,t", threads, "CPU threads for the measurement; 0: all cores", {}, 0, 4096);
        visit(
            "day-cap", day_cap,
            "GB a host may send per day: names the --fragments that fit; 0: any", {}, 0
        );
        visit(
            "fragments", optim.fragments,
            "loco: parts of the model that take turns; 0: 6, or more to fit --day-cap", {}, 0, 1024
        );
        visit(
            "shares", optim.shares,
            "shares in which hosts average messages; 0: none; -1: by the number of hosts", {}, -1,
            1024
        );
        visit("density", optim.density, "demo, sparseloco: fraction of the values sent", {}, 0, 1);
        visit(
            "top-k", optim.top_k, "demo, sparseloco: values sent per chunk; 0: by density", {}, 0
        );
        visit(
            "row-fraction,rate", optim.rate, "random, striding, slicing: fraction of the rows sent",
            {}, 0, 1
        );
        visit("wire", optim.wire, "type of the values sent");
        visit("moments", optim.moments, "type of AdamW's moments, for the memory", {"f32", "q8"});
    }
};

Hosts lines(const PlanFlags & f) {
    Hosts run;
    if (!f.nodes.empty()) {
        run = read_hosts(f.nodes);
    }
    for (int64_t i = 0; f.nodes.empty() && i < f.n_hosts; ++i) {
        run.hosts.push_back({.name = format("host-%lld", static_cast<long long>(i + 1))});
        run.hosts.front().address = "host-1:7077";  // the hub
    }
    for (HostEntry & host : run.hosts) {
        host.up   = host.up > 0 ? host.up : f.up;
        host.down = host.down > 0 ? host.down : f.down;
    }
    return run;
}

// What the place to meet costs.
void print_place(const Hosts & run, const Cost & cost) {
    if (cost.reads_day > 0.0) {
        std::printf(
            "%s: %.0f GB, %.2f million writes and %.2f million reads a day: about %.2f dollars a "
            "month at the prices of R2 (traffic is free there)\n",
            run.store.c_str(), cost.disk_gb, 1e-6 * cost.writes_day, 1e-6 * cost.reads_day,
            cost.dollars_month
        );
    } else if (cost.hub_gb_day > 0.0) {
        std::printf(
            "the hub on %s sends %.1f GB a day and needs %.0f GB of disk; a rented machine or a "
            "bucket takes that load off its line\n",
            run.hub()->name.c_str(), cost.hub_gb_day, cost.disk_gb
        );
    }
}

void print_plan(const PlanFlags & f, const ModelFile & model) {
    const std::vector<ParamView> params = param_shapes(tensor_specs(model.config));
    const Hosts                  run    = lines(f);
    std::printf(
        "%s\n%zu hosts, %.2f s per gradient of %lld samples\n\n", describe(model.config).c_str(),
        run.hosts.size(), f.compute, static_cast<long long>(f.batch)
    );
    std::printf(
        "%-11s %12s %10s %10s %10s %9s %9s  %s\n", "replicator", "bytes/round", "every", "s/step",
        "overlapped", "GB/day up", "GB down", "slowest link"
    );
    for (const NameAndHelp & row : replicator_names()) {
        OptimOptions optim = f.optim;
        optim.replicator   = row.name;
        const Cost cost    = estimate(optim, params, run, f.compute);
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
    constexpr double             kAny   = std::numeric_limits<double>::infinity();
    OptimOptions                 optim  = f.optim;
    optim.replicator                    = default_replicator(false);
    const double up                     = f.day_cap > 0.0 ? f.day_cap * 1e9 / 86400.0 : kAny;
    optim.fragments                     = fragments_within(optim, params, f.compute, up);
    const Hosts run                     = lines(f);
    const Cost  cost                    = estimate(optim, params, run, f.compute);
    std::printf(
        "\n--replicator %s --fragments %llu: %.1f GB a day up; keeps about %.0f %% of what full "
        "synchronisation gains (tests/README.md)\n",
        optim.replicator.c_str(), static_cast<unsigned long long>(optim.fragments), cost.up_gb_day,
        100.0 * expected_share(optim.fragments)
    );
    print_place(run, cost);
}

// With the optimizer's state on the GPU if that fits, else on the host.
CardFit fit_either(RunPlan & plan, const ModelConfig & config, int gb) {
    CardFit card;
    for (const bool on_host : {false, true}) {
        plan.optimizer_on_host = on_host;
        card                   = fit_card(plan, config, gb * 1073741824.0);
        if (card.fits) {
            break;
        }
    }
    return card;
}

// How many samples at a time fit the usual sizes of NVIDIA's GPUs in bf16: alone with AdamW, and between hosts.
void print_gpus(const PlanFlags & f, const ModelFile & model) {
    RunPlan plan;
    plan.T     = f.context;
    plan.batch = plan.micro = f.batch;
    plan.optim              = f.optim;
    plan.compute            = "bf16";
    std::printf("\n");
    for (const int gb : {12, 24}) {
        for (const bool alone : {true, false}) {
            plan.optim.replicator  = default_replicator(alone);
            plan.optim.moments     = alone ? f.optim.moments : "f32";  // Muon has none
            const CardFit     card = fit_either(plan, model.config, gb);
            const std::string who  = alone ? "alone" : "with other hosts";
            const std::string how  = std::string(card.fit.recompute ? " --recompute" : "") +
                                    (plan.optimizer_on_host ? " --optimizer-on-host" : "");
            const auto need = bytes_text(static_cast<uint64_t>(card.need));
            if (card.fits) {
                std::printf(
                    "a GPU of %d GB trains it %s with --micro %lld%s (%s)\n", gb, who.c_str(),
                    static_cast<long long>(card.fit.micro), how.c_str(), need.c_str()
                );
            } else {
                std::printf(
                    "a GPU of %d GB is too small to train it %s: %s with --micro 1%s\n", gb,
                    who.c_str(), need.c_str(), how.c_str()
                );
            }
        }
    }
}

}  // namespace

int gt::plan_main(Flags & flags, int argc, char ** argv) {
    PlanFlags f;
    f.visit(flags);
    flags.parse(argc, argv);
    flags.require("model");
    const ModelFile model =
        f.lora.rank > 0 ? load_for_adapter(f.model, f.lora.config()) : load_model(f.model);
    const bool        images = takes_images(model.config);
    constexpr int64_t kMost  = 2048;  // as train-gpt
    f.context                = images      ? model.config.n_positions()
                               : f.context ? f.context
                                           : std::min(model.config.n_ctx, kMost);
    f.batch                  = f.batch ? f.batch : std::max<int64_t>(1, 8192 / f.context);
    if (f.compute == 0.0) {
        TrainFlags run;
        run.device  = "cpu";
        run.compute = "f32";
        run.batch   = f.batch;
        run.threads = f.threads ? f.threads : static_cast<int>(std::thread::hardware_concurrency());
        f.compute   = gradient_seconds(model, f.context, run);
    }
    print_plan(f, model);
    print_choice(f, model);
    print_gpus(f, model);
    return 0;
}
