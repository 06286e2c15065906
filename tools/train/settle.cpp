#include "tools/train/settle.h"

#include "ggml-train/base/file.h"
#include "ggml-train/device/backend.h"
#include "ggml-train/run/checkpoint.h"
#include "tools/train/memory-plan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <thread>

namespace gt {

namespace fs = std::filesystem;

static std::string stem(const std::string & path) {
    return fs::path(path).replace_extension("").string();
}

static void check_flags(const TrainFlags & f) {
    const struct {
        const char * name;
        double       value, least;
    } rows[] = {
        {"batch", static_cast<double>(f.batch), 0},
        {"micro", static_cast<double>(f.micro), 0},
        {"context", static_cast<double>(f.context), 0},
        {"steps", static_cast<double>(f.steps), 0},
        {"tokens", static_cast<double>(f.tokens), 0},
        {"hours", f.hours, 0},
        {"lr", f.schedule.lr, 0},
        {"clip", f.clip, 0},
        {"smoothing", f.smoothing, 0},
        {"threads", static_cast<double>(f.threads), 0},
        {"ranks", static_cast<double>(f.ranks), 1},
        {"eval-batches", static_cast<double>(f.eval_batches), 1},
        {"keep", static_cast<double>(f.keep), 1},
    };
    for (const auto & row : rows) {
        if (!(row.value >= row.least)) {
            throw UsageError(
                format("--%s %g: it must be at least %g", row.name, row.value, row.least)
            );
        }
    }
    if (!(f.smoothing < 1.0f)) {
        throw UsageError(format("--smoothing %g: it must be below 1", f.smoothing));
    }
}

// --- the run's folder --------------------------------------------------------------------------------

static const std::string * find_value(const Flags::Values & values, const std::string & name) {
    const auto it =
        std::find_if(values.begin(), values.end(), [&](const auto & v) { return v.first == name; });
    return it == values.end() ? nullptr : &it->second;
}

// The run's flags from its checkpoint.
static Flags::Values resumed_flags(
    const std::string &   folder,
    const std::string &   checkpoint,
    const Flags &         given,
    const Flags::Values & defaults
) {
    const Flags::Values now = given.values(), stored = read_checkpoint_head(checkpoint).flags;
    Flags::Values       values;
    for (const auto & [name, initial] : defaults) {
        const std::string * found = find_value(stored, name);
        const std::string & value = found ? *found : initial;  // older versions had fewer flags
        const std::string & asked = *find_value(now, name);
        // the command that started the run must also resume it: a flag that asked for a default then
        // may do so again
        const bool automatic = asked == initial && (asked == "0" || asked == "auto");
        if (given.given(name) && asked != value && !automatic) {
            throw Error(format(
                "the run in %s was started with --%s %s, not %s. Drop the flag to resume, use "
                "--fresh to start over, or --out for a new run",
                folder.c_str(), name.c_str(), value.c_str(), asked.c_str()
            ));
        }
        if (found) {
            values.push_back({name, value});
        }
    }
    return values;
}

RunFolder open_run(
    const TrainFlags &    train,
    const Flags &         given,
    const Flags::Values & defaults,
    const ModelConfig &   config
) {
    check_flags(train);
    RunFolder folder{.path = train.out.empty() ? stem(train.model) + "-run" : train.out};
    if (train.fresh && fs::is_directory(folder.path)) {
        const FolderLock  lock(folder.path);  // fails while another process trains there
        const std::string old = set_aside(folder.path);
        if (!old.empty()) {
            std::printf("the previous run is now in %s\n", old.c_str());
        }
    }
    const bool is_new = !fs::exists(folder.path);
    make_folder(folder.path);
    if (is_new) {
        fs::permissions(folder.path, fs::perms::owner_all);
    }
    const FoundCheckpoint found = find_checkpoint(folder.path, model_head(config, nullptr));
    for (const std::string & reason : found.refused) {
        std::printf("skipped: %s\n", reason.c_str());
    }
    if (!found.path.empty()) {
        folder.checkpoint = found.path;
        folder.flags      = resumed_flags(folder.path, found.path, given, defaults);
    }
    return folder;
}

// --- defaults ------------------------------------------------------------------------------------------

// Smaller models take higher rates: with AdamW 2e-3 at 1M weights, 1e-3 at 10M, 6e-4 at 100M; with Muon
// four times that (tests/bench/converge.py).
static float default_lr(int64_t n_params, const OptimOptions & optim) {
    const double adamw =
        std::clamp(2e-3 * std::pow(static_cast<double>(n_params) / 1e6, -0.27), 1e-4, 4e-3);
    return static_cast<float>(default_lr_factor(optim) * adamw);
}

TrainFlags choose_defaults(TrainFlags f, const RunInput & in) {
    constexpr int64_t kStepTokens = 8192;
    const int64_t     n_weights   = n_params(in.model->file.config);
    if (f.batch == 0) {
        f.batch = in.batch ? in.batch : std::max<int64_t>(1, kStepTokens / in.T);
    }
    if (f.tokens > 0) {
        f.steps = std::max<int64_t>(1, f.tokens / (f.batch * in.T));
    }
    if (f.steps == 0 && f.hours == 0.0) {
        // twenty tokens per weight, but every sample at most ten times
        const double wanted = 20.0 * static_cast<double>(n_weights) / static_cast<double>(in.T);
        const double most   = 10.0 * static_cast<double>(in.n_samples);
        f.steps             = std::max<int64_t>(
            100, static_cast<int64_t>(std::min(wanted, most) / static_cast<double>(f.batch))
        );
    }
    if (f.optim.replicator == "auto") {
        f.optim.replicator = default_replicator(in.alone);
    }
    if (f.schedule.lr == 0.0f) {
        f.schedule.lr = default_lr(n_weights, f.optim);
    }
    return f;
}

// --- the plan ------------------------------------------------------------------------------------------

// Rounds the step count up to whole rounds. Deterministic: every host has the same settings.
static int64_t whole_rounds(const TrainFlags & f, bool alone) {
    const auto every = static_cast<int64_t>(steps_per_round(f.optim));
    if (!alone && f.optim.overlap && is_dense(f.optim) && every < 2) {
        throw UsageError(
            "--overlap with --replicator " + f.optim.replicator +
            " needs --steps-per-round 2 or more: hosts average a round before they send the next"
        );
    }
    if (!alone && f.steps == 0) {
        throw UsageError("--hours works only without other hosts, because all hosts must agree on "
                         "the last step; use --steps or --tokens");
    }
    const int64_t steps = (f.steps + every - 1) / every * every;
    if (steps != f.steps) {
        std::printf(
            "%lld steps, to end with a whole round of %lld\n", static_cast<long long>(steps),
            static_cast<long long>(every)
        );
    }
    return steps;
}

// The checkpoint's flags: those of the tool, with the values that the plan has settled. Not the
// invitation: it contains the run's key, and checkpoints are passed on.
static Flags::Values stored_flags(const Flags & given, RunPlan plan) {
    Flags table;
    plan.visit_run(table);
    plan.visit_session(table);
    const Flags::Values settled = table.values();
    Flags::Values       values  = given.values();
    for (auto & [name, value] : values) {
        if (const std::string * text = find_value(settled, name)) {
            value = *text;
        }
    }
    std::erase_if(values, [](const auto & flag) { return flag.first == "join"; });
    return values;
}

RunPlan make_plan(
    const TrainFlags & train, const Flags & given, const RunInput & in, const RunFolder & folder
) {
    RunPlan plan{train};
    plan.out        = folder.path;
    plan.checkpoint = folder.checkpoint;
    plan.export_to =
        train.export_to.empty() ? stem(train.model) + "-trained.gguf" : train.export_to;
    plan.T            = train.context ? train.context : in.T;
    plan.unit         = in.unit;
    plan.n_per_sample = in.n_per_sample;
    plan.logits       = in.logits;
    plan.mixup        = in.mixup;
    plan.depth        = in.depth;
    plan.steps        = whole_rounds(train, in.alone);
    if (plan.threads == 0) {
        plan.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    }
    const auto n_devices = static_cast<int>(parse_devices(plan.device).size());
    plan.ranks           = n_devices > 1 && plan.ranks == 1 ? n_devices : plan.ranks;

    // a slow host computes only some of its micro-batches (batch-pace.h)
    const bool    is_given = given.given("micro") && plan.micro > 0;
    const int64_t most     = in.alone ? plan.batch : std::max<int64_t>(1, plan.batch / 8);
    if (!is_given) {
        plan.micro = in.micro > 0 ? std::min(in.micro, most) : most;
    }
    const MemoryFit fit = fit_memory(plan, in.model->file.config, is_given);
    plan.micro          = fit.micro;
    plan.shard          = fit.shard;
    plan                = with_steps(plan, plan.steps);
    plan.stored         = stored_flags(given, plan);
    return plan;
}

RunPlan with_steps(RunPlan plan, int64_t steps) {
    plan.steps = plan.schedule.steps = steps;
    if (steps == 0) {
        return plan;
    }
    const auto times = [&](int64_t n) { return std::max<int64_t>(1, steps / n); };
    plan.eval_every  = plan.eval_every ? plan.eval_every : times(20);
    plan.save_every  = plan.save_every ? plan.save_every : times(10);
    plan.schedule.check();
    for (auto & [name, value] : plan.stored) {
        value = name == "steps" ? std::to_string(steps) : value;
    }
    return plan;
}

}  // namespace gt
