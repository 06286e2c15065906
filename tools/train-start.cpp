// How a run begins: its folder, its flags, and what they are when nobody said.
#include "ggml-train/backend.h"
#include "ggml-train/checkpoint.h"
#include "ggml-train/file.h"
#include "tools/train-memory.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <thread>

namespace gt {

namespace fs = std::filesystem;

static std::string stem(const std::string & path) {
    return fs::path(path).replace_extension("").string();
}

// Numbers that make no sense are named here, before anything depends on them.
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

void choose_defaults(TrainFlags & f, const ModelConfig & config, int64_t T, int64_t n_samples) {
    const double n = static_cast<double>(n_params(config));
    f.out          = f.out.empty() ? stem(f.model) + "-run" : f.out;
    f.export_to    = f.export_to.empty() ? stem(f.model) + "-trained.gguf" : f.export_to;
    f.batch        = f.batch ? f.batch : std::max<int64_t>(1, 8192 / T);
    if (f.tokens > 0) {
        f.steps = std::max<int64_t>(1, f.tokens / (f.batch * T));
    }
    if (f.steps == 0 && f.hours == 0.0) {
        // twenty tokens per weight, but no sample more than ten times
        const double wanted = 20.0 * n / static_cast<double>(T);
        const double most   = 10.0 * static_cast<double>(n_samples);
        f.steps             = std::max<int64_t>(
            100, static_cast<int64_t>(std::min(wanted, most) / static_cast<double>(f.batch))
        );
    }
    f.threads =
        f.threads ? f.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

// Smaller models take higher rates: with AdamW 2e-3 at 1M, 1e-3 at 10M, 6e-4 at 100M; with muon four
// times that (tests/bench/converge.py).
static float default_lr(int64_t n_params, const std::string & rule) {
    const double adamw =
        std::clamp(2e-3 * std::pow(static_cast<double>(n_params) / 1e6, -0.27), 1e-4, 4e-3);
    return static_cast<float>(rule == "muon" ? 4.0 * adamw : adamw);
}

// What only makes sense as a whole is made so: the same on every host, since the settings are.
static void settle_rounds(TrainFlags & f, bool alone) {
    f.optim.overlap     = f.overlap == "1";
    const int64_t every = static_cast<int64_t>(steps_per_round(f.optim));
    if (!alone && f.optim.overlap && f.optim.replicator == "full" && every < 2) {
        throw UsageError(
            "--overlap 1 with --replicator full needs --every 2 or more: hosts average "
            "the round before they send the next"
        );
    }
    if (!alone && f.steps == 0) {
        throw UsageError("--hours is for a machine alone: machines have different speeds, and all "
                         "must know the last step; say --steps or --tokens");
    }
    if (f.steps % every != 0) {
        f.steps += every - f.steps % every;
        std::printf(
            "%lld steps, so that the last round of %lld is whole\n",
            static_cast<long long>(f.steps), static_cast<long long>(every)
        );
    }
}

void settle(
    TrainFlags & f, Flags & flags, TrainTask & task, Together & together, const Flags::Values & own
) {
    if (f.optim.replicator == "auto") {
        f.optim.replicator = together.alone() ? "none" : "demo";
    }
    if (f.schedule.lr == 0.0f) {
        f.schedule.lr = default_lr(n_params(task.model.config), rule_of(f.optim));
    }
    Flags run("", "", "");
    f.visit_run(run);
    Flags::Values values = run.values();
    values.insert(values.end(), own.begin(), own.end());
    together.agree(flags, values, task.model, task.fresh);
    settle_rounds(f, together.alone());
    task.T               = f.context ? f.context : task.T;
    f.schedule.steps     = f.steps;
    const auto n_devices = static_cast<int>(parse_devices(f.device).size());
    f.ranks              = n_devices > 1 && f.ranks == 1 ? n_devices : f.ranks;
    const bool given     = flags.given("micro") && f.micro > 0;
    if (f.micro == 0 && !together.alone()) {
        f.micro = std::max<int64_t>(1, f.batch / 8);  // a slow host does a part of it: see pace.h
    }
    fit_memory(f, task, given);
}

std::string find_run(
    const TrainFlags & train, Flags & flags, const ModelConfig & config, const Flags::Values & own
) {
    check_flags(train);
    const std::string folder = train.out.empty() ? stem(train.model) + "-run" : train.out;
    if (train.fresh && fs::is_directory(folder)) {
        const FolderLock  nobody_trains_here(folder);
        const std::string old = set_aside(folder);
        if (!old.empty()) {
            std::printf("the run that was there is now %s\n", old.c_str());
        }
    }
    make_folder(folder);
    const FoundCheckpoint found = find_checkpoint(folder, config);
    for (const std::string & reason : found.refused) {
        std::printf("left out: %s\n", reason.c_str());
    }
    if (found.path.empty()) {
        return "";
    }
    // only flags that decide what is computed belong to the run
    TrainFlags any;
    Flags      run_flags("", "", "");
    any.visit_run(run_flags);
    const auto find = [](const Flags::Values & values, const std::string & name) {
        return std::find_if(values.begin(), values.end(), [&](const auto & v) {
            return v.first == name;
        });
    };
    Flags::Values known = run_flags.values();
    known.insert(known.end(), own.begin(), own.end());
    const Flags::Values now = flags.values();
    for (const auto & [name, value] : read_checkpoint_head(found.path).flags) {
        if (find(known, name) == known.end()) {
            continue;
        }
        // the same command must go on: what said "choose for me" then says so now
        const std::string given = find(now, name)->second;
        const bool        automatic =
            given == find(known, name)->second && (given == "0" || given == "auto");
        if (flags.given(name) && given != value && !automatic) {
            throw Error(format(
                "the run in %s has --%s %s, not %s; leave the flag away to go on with it, start "
                "over "
                "with --fresh, or elsewhere with --out",
                folder.c_str(), name.c_str(), value.c_str(), given.c_str()
            ));
        }
        flags.set(name, value);
    }
    return found.path;
}
}  // namespace gt
