#include "tools/train/fetch-run.h"

#include "comm/run/run-model.h"
#include "ggml-train/shard/shared-state.h"
#include "ggml-train/shard/weights.h"
#include "tools/train/session.h"
#include "tools/train/train-flags.h"

namespace gt {

constexpr const char * kName = "export";
constexpr Millis       kTimeout{20'000};

// The run's settings, as train-gpt reads them.
static OptimOptions optim_of(const Settings & settings) {
    TrainFlags train;
    Flags      table;
    train.visit_run(table);
    for (const auto & [name, value] : table.values()) {
        if (const auto found = settings.find(name); found != settings.end()) {
            table.set(name, found->second);
        }
    }
    return train.optim;
}

// The model's memory, as an optimizer sees it.
static std::vector<ParamView> views_of(ModelFile & model) {
    std::vector<ParamView> views = param_shapes(tensor_specs(model.config));
    GT_CHECK(views.size() == model.tensors.size(), "a model has the tensors of its sizes");
    for (size_t i = 0; i < views.size(); ++i) {
        views[i].weight = model.tensors[i].data;
        views[i].grad   = views[i].weight;  // unused: rounds are only applied
    }
    return views;
}

// Loads the checkpoint and applies the rounds since; returns the steps done.
static uint64_t follow(Peers & peers, Optimizer & optimizer, SharedState & shared, bool replay) {
    const char * const moved_on = "the run has moved on while it was read; try again";
    const Joined       joined   = peers.join({}, false);
    for (int i = 0; i < joined.n_slices; ++i) {
        const auto slice = peers.slice(i);
        if (!slice) {
            throw Error(moved_on);
        }
        shared.set_slice(i, joined.n_slices, *slice);
    }
    uint64_t step = joined.step;
    while (replay) {
        const auto missed = peers.missed(true);
        if (!missed) {
            break;
        }
        if (missed->fault != Fault::none) {
            throw Error(moved_on);
        }
        optimizer.apply(missed->round);
        step = missed->round.step + 1;
    }
    return step;
}

ModelFile fetch_run(const Hosts & hosts) {
    MeetOptions place;
    place.observe       = true;
    const auto meeting  = meet(hosts, kName, place);
    const auto settings = read_settings(meeting->store(), meeting->keys());
    const auto bytes    = fetch_model(meeting->store(), meeting->keys(), Millis(0));
    if (!settings || !bytes) {
        throw Error("this run has not started: its store is empty");
    }
    ModelFile          model = described_model(*bytes);
    const OptimOptions optim = optim_of(*settings);
    const auto         views = views_of(model);
    StorePeersOptions  options;
    options.host     = kName;
    options.observe  = true;
    options.give_up  = kTimeout;
    options.shards   = shard_codec(optim, views);
    const auto peers = make_peers(*meeting, options);
    uint64_t   step  = 0;
    run_ranks(1, [&](LocalGroup & alone) {
        Workers     workers(1);
        const auto  optimizer = make_optimizer(optim, views, workers);
        SharedState shared(join_state(alone, views, optimizer->state(), false), workers);
        step = follow(*peers, *optimizer, shared, !options.shards);
    });
    std::printf(
        "from the run at step %llu of %s\n", static_cast<unsigned long long>(step),
        settings->contains("steps") ? settings->at("steps").c_str() : "?"
    );
    return model;
}

}  // namespace gt
