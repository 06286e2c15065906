// tools/train/settle.h — from flags, checkpoint and agreed settings to the plan of a run.
//
//   f = begin_session(f, flags, nodes);
//   check_flags(f, flags, alone);                              // before any work
//   RunFolder folder = open_run(f, flags, run_values(MyFlags{}), model);
//   MyFlags   chosen = with_values(f, folder.flags);          // a resumed run keeps its flags
//   MyFlags   run    = settle(chosen, flags, in, session);    // defaults, then what all hosts share
//   RunPlan   plan   = make_plan(run, flags, in, folder);     // sizes that fit this host
//
// Flags are never assigned to: every function returns a changed copy.
#pragma once

#include "tools/train/session.h"
#include "tools/train/train-flags.h"

namespace gt {

// Facts about model and data that the plan depends on.
struct RunInput {
    const RunModel * model;
    int64_t          T         = 0;    // tokens per sample
    int64_t          n_samples = 0;    // in the training data
    int64_t     batch = 0, micro = 0;  // defaults for this kind of data; 0: by tokens, by memory
    double      epochs       = 0.0;    // the same; 0: by weights and tokens
    std::string unit         = "tokens";
    int64_t     n_per_sample = 0;              // units in one sample
    bool        logits       = false;          // validation needs logits
    bool        mixup = false, depth = false;  // used by the batches: see batch.h
    bool        packed  = false;               // the same
    float       dropout = 0.0f;                // of an adapter
    bool        alone   = true;                // no other hosts
    size_t      n_hosts = 1;                   // that the run is meant for
    double      up_rate = 0.0;                 // bytes per second that this host may send; 0: any
    std::string data_text;                     // for the summary: "1.02M tokens in 3 files, ..."
};

struct RunFolder {
    std::string   path;
    std::string   checkpoint;           // the newest valid one; empty: none
    Flags::Values flags;                // of the run, from the checkpoint
    std::string   export_to;            // the trained model
    bool          owns_export = false;  // the finished run has written it
};

// What train-gpt and train-vit do first: Ctrl+C works; a model is given, or taken from other hosts, into a
// folder of this host's name; `auto` becomes a device, with a hint if there is a GPU without support, and a
// type of products, which is then allowed (allow_products).
TrainFlags begin_session(TrainFlags train, const Flags & given, const NodesFlags & nodes);

// Throws an Error if flags or folder cannot work, before other hosts see anything of this one: a flag is
// invalid or contradicts another, or the folder has a run of the other kind, alone or with other hosts.
void check_flags(const TrainFlags & train, const Flags & given, bool alone);

// Opens the run's folder; with --fresh an old run is renamed first. A flag on the command line that
// contradicts the checkpoint is an Error, also a model that contains NaN or an export that cannot be
// written. defaults: run_values of default flags.
RunFolder open_run(
    const TrainFlags &    train,
    const Flags &         given,
    const Flags::Values & defaults,
    const ModelFile &     model
);

// In the checkpoint's flags: whether the run has other hosts ("alone" or "several").
inline constexpr const char * kHosts = "hosts";

// The flags of the run as text.
template <class F>
Flags::Values run_values(F flags) {
    Flags table;
    flags.visit_run(table);
    return table.values();
}

// A copy of the flags with these values.
template <class F>
F with_values(F flags, const Flags::Values & values) {
    Flags table;
    flags.visit_run(table);
    for (const auto & [name, value] : values) {
        table.set(name, value);
    }
    return flags;
}

// Defaults for flags that depend on model and data.
TrainFlags choose_defaults(TrainFlags train, const RunInput & in);

// Throws an Error if no run is possible with these settings.
void check_settings(const TrainFlags & train, bool alone);

// The same for the flags of a tool; then the settings that all hosts share.
template <class F>
F settle(F flags, const Flags & given, const RunInput & in, Session & session) {
    static_cast<TrainFlags &>(flags) = choose_defaults(flags, in);
    check_settings(flags, in.alone);
    const F run = with_values(flags, session.agree(given, run_values(flags), *in.model));
    check_settings(run, in.alone);
    return run;
}

// Micro-batch and sharding that fit this host, whole rounds, intervals. If the plan has --hours and no
// steps yet, plan_hours (measure.h) completes it.
RunPlan make_plan(
    const TrainFlags & train, const Flags & given, const RunInput & in, const RunFolder & folder
);

// Whether no value is NaN or infinite.
bool all_finite(std::span<const float> values);

// The plan for a number of steps: schedule and intervals.
RunPlan with_steps(RunPlan plan, int64_t steps);

}  // namespace gt
