#include "tools/export-run.h"

#include "comm/run-model.h"
#include "ggml-train/shared-state.h"
#include "ggml-train/weights.h"
#include "tools/together.h"
#include "tools/train-flags.h"

namespace gt {

constexpr const char * kName = "export";
constexpr Millis       kPatience{20'000};

// The run's settings, as train-gpt reads them.
static OptimOptions optim_of(const Settings & settings) {
    TrainFlags train;
    Flags      flags("", "", "");
    train.visit_run(flags);
    for (const auto & [name, value] : flags.values()) {
        const auto found = settings.find(name);
        if (found != settings.end()) {
            flags.set(name, found->second);
        }
    }
    train.optim.overlap = train.overlap == "1";
    return train.optim;
}

// The model's own memory, as an optimizer sees it.
static std::vector<ParamView> views_of(ModelFile & model) {
    std::vector<ParamView> views = param_shapes(model.config);
    GT_CHECK(views.size() == model.tensors.size(), "a model has the tensors of its sizes");
    for (size_t i = 0; i < views.size(); ++i) {
        views[i].weight = model.tensors[i].data;
        views[i].grad   = views[i].weight;  // rounds are only applied: no gradient is read
    }
    return views;
}

// Loads the checkpoint and applies the rounds since; returns the steps done.
static uint64_t follow(RunPeers & peers, Optimizer & optimizer, SharedState & shared, bool replay) {
    const Joined joined = peers.join({}, false);
    for (int i = 0; i < joined.n_parts; ++i) {
        shared.set_part(i, joined.n_parts, joined.fetch_part(i));
    }
    uint64_t step = joined.step;
    // a run that goes on is followed up to where it is now
    for (uint64_t n = replay ? peers.n_behind() : 0; n > 0; --n) {
        const Round round = peers.collect(step);
        if (round.fault != Fault::none) {
            throw Error("the run went on while it was read; try again");
        }
        optimizer.apply(round);
        step = round.round + 1;
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
        throw Error("this run has not begun: nothing is in its store yet");
    }
    ModelFile          model = described_model(*bytes);
    const OptimOptions optim = optim_of(*settings);
    const auto         views = views_of(model);
    StorePeersOptions  options;
    options.host     = kName;
    options.observe  = true;
    options.patience = kPatience;
    options.dense    = dense_codec(optim, views);
    const auto peers = make_peers(*meeting, options);
    uint64_t   step  = 0;
    run_ranks(1, [&](LocalGroup & alone) {
        Workers     workers(1);
        const auto  optimizer = make_optimizer(optim, views, workers);
        SharedState shared(join_state(alone, views, optimizer->state(), false), workers);
        step = follow(*peers, *optimizer, shared, !options.dense);
    });
    std::printf(
        "from the run at step %llu of %s\n", static_cast<unsigned long long>(step),
        settings->contains("steps") ? settings->at("steps").c_str() : "?"
    );
    return model;
}

}  // namespace gt
