#include "tools/train/settle.h"

#include "ggml-train/base/file.h"
#include "ggml-train/device/backend.h"
#include "ggml-train/run/checkpoint.h"
#include "models/init.h"
#include "tools/cli/host-name.h"
#include "tools/cli/interrupt.h"
#include "tools/train/cost.h"
#include "tools/train/gpu-hint.h"
#include "tools/train/memory-plan.h"
#include "tools/train/pause.h"
#include "tools/train/rank.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <thread>

namespace gt {

namespace fs = std::filesystem;

static std::string stem(const std::string & path) {
    return fs::path(path).replace_extension("").string();
}

bool all_finite(std::span<const float> values) {
    return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
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
                "the run in %s was started with --%s %s, not %s. Omit the flag to resume, use "
                "--fresh to start over, or --out for a new run%s",
                folder.c_str(), name.c_str(), value.c_str(), asked.c_str(),
                name == "steps" ? "; --extend N continues a finished run" : ""
            ));
        }
        if (found) {
            values.push_back({name, value});
        }
    }
    return values;
}

static std::string folder_of(const TrainFlags & train) {
    return train.out.empty() ? stem(train.model) + "-run" : train.out;
}

// "small-run" -> "small-trained.gguf", "small-trained-run" -> "small-trained-2.gguf"
static std::string default_export(std::string run) {
    while (run.size() > 1 && run.ends_with('/')) {
        run.pop_back();
    }
    if (run.size() > 4 && run.ends_with("-run")) {
        run.resize(run.size() - 4);
    }
    const std::string word = "-trained";
    const size_t      at   = run.rfind(word);
    if (at == std::string::npos) {
        return run + word + ".gguf";
    }
    const std::string rest = run.substr(at + word.size());
    int               n    = rest.empty() ? 1 : 0;
    if (rest.size() > 1 && rest[0] == '-') {
        const char * end = rest.data() + rest.size();
        n                = std::from_chars(rest.data() + 1, end, n).ptr == end ? n : 0;
    }
    return n == 0 ? run + word + ".gguf" : run.substr(0, at) + word + format("-%d.gguf", n + 1);
}

// Of the newest checkpoint that can be read: "alone" or "several"; empty: there is none, or an old version
// has written it.
static std::string hosts_of(const std::string & folder) {
    std::vector<std::string> paths;
    std::error_code          none;
    for (const auto & entry : fs::directory_iterator(folder, none)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("checkpoint-") && name.ends_with(".gguf")) {
            paths.push_back(entry.path().string());
        }
    }
    std::sort(paths.rbegin(), paths.rend());
    for (const std::string & path : paths) {
        try {
            const Flags::Values flags = read_checkpoint_head(path).flags;
            const std::string * hosts = find_value(flags, kHosts);
            return hosts ? *hosts : "";
        } catch (const Error &) {  // open_run tells
        }
    }
    return "";
}

TrainFlags begin_session(TrainFlags train, const Flags & given, const NodesFlags & nodes) {
    Interrupt::allow();
    if (train.model.empty() && nodes.alone()) {
        given.require("model");
    }
    if (train.model.empty() && train.out.empty()) {
        train.out = own_host_name(nodes.name) + "-run";
    }
    if (train.device == "auto") {
        train.device = choose_device(train.device);
        std::fputs(gpu_hint(train.device).c_str(), stderr);
    }
    train.compute   = chosen_compute(train);
    const bool tf32 = train.compute == "tf32";
    allow_products(is_half(train) ? Products::half : tf32 ? Products::tf32 : Products::f32);
    return train;
}

// They exist, and their ranks can share gradients.
static void check_devices(const TrainFlags & train) {
    const std::vector<DeviceSpec> devices = parse_devices(train.device);
    for (const DeviceSpec & device : devices) {
        const ggml_backend_dev_t found    = find_device(device);
        const bool               shares   = is_host(found) || find_kernels(found);
        const bool               is_alone = devices.size() == 1 && train.ranks == 1;
        if (!shares && (!is_alone || train.shard == "full")) {
            throw Error(
                "--device " + train.device + ": a process trains on one " + device.backend +
                " device, without --ranks or --shard full; start a host for each (hub --help)"
            );
        }
    }
}

void check_flags(const TrainFlags & train, const Flags & given, bool alone) {
    int n_lengths = 0;
    for (const char * name : {"steps", "tokens", "epochs", "hours"}) {
        n_lengths += given.given(name);
    }
    if (n_lengths > 1) {
        throw UsageError(
            "--steps, --tokens, --epochs and --hours each decide the length of the run; give one"
        );
    }
    if (train.extend > 0 && (!alone || train.fresh)) {
        throw UsageError(
            "--extend works on a finished run without other hosts, and not with --fresh"
        );
    }
    check_devices(train);
    parse_active_hours(train.active_hours);
    OptimOptions optim = train.optim;
    optim.replicator   = optim.replicator == "auto" ? default_replicator(alone) : optim.replicator;
    check_options(optim);
    const std::string folder = folder_of(train), hosts = train.fresh ? "" : hosts_of(folder);
    if (hosts == "alone" && !alone) {
        throw Error(
            folder +
            " has a run without other hosts; name another folder with --out, or add --fresh"
        );
    }
    if (hosts == "several" && alone) {
        throw Error(
            folder +
            " has a run with other hosts; add --nodes (or --join) to resume it, or train on "
            "from an export of it, with another --out"
        );
    }
}

// Problems that would otherwise show only after hours of training.
static void
check_model(const TrainFlags & train, const ModelFile & model, const std::string & out) {
    for (const ModelTensor & tensor : model.tensors) {
        if (!all_finite(tensor.data)) {
            throw Error(
                train.model + ": " + tensor.spec.name +
                " contains NaN or Inf; the file is damaged, copy it again"
            );
        }
    }
    if (train.compute != "f32" && form_of(train) == Form::fused) {
        throw Error(
            "--compute " + train.compute +
            ": the fused ops of the CPU are F32 only; add --portable, or use a device"
        );
    }
    if (model.config.lora.enabled() && train.shard == "full") {
        throw Error(
            "--lora: all ranks map the same model, and an adapter is too small to shard; omit "
            "--shard full"
        );
    }
    const fs::path folder = fs::path(out).parent_path();
    if (!folder.empty() && !fs::is_directory(folder)) {
        throw Error("--export " + out + ": there is no folder " + folder.string());
    }
    std::error_code none;
    if (fs::equivalent(out, train.model, none)) {
        throw Error(
            "--export " + out + " would replace the model that is trained; name another file"
        );
    }
}

// Adds --extend to the steps of a finished run; returns whether it was finished.
static bool extend(Flags::Values & run, uint64_t step, int64_t n_more) {
    bool was_finished = false;
    for (auto & [name, value] : run) {
        int64_t steps = 0;
        if (name == "steps") {
            std::from_chars(value.data(), value.data() + value.size(), steps);
            was_finished = steps > 0 && step >= static_cast<uint64_t>(steps);
            value        = std::to_string(steps + (was_finished ? n_more : 0));
        }
        if ((name == "tokens" || name == "epochs") && n_more > 0) {
            value = "0";  // they would decide the steps
        }
    }
    return was_finished;
}

RunFolder open_run(
    const TrainFlags &    train,
    const Flags &         given,
    const Flags::Values & defaults,
    const ModelFile &     model
) {
    RunFolder folder{.path = folder_of(train)};
    folder.export_to = train.export_to.empty() ? default_export(folder.path) : train.export_to;
    check_model(train, model, folder.export_to);
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
    const FoundCheckpoint found = find_checkpoint(folder.path, model_head(model.config, nullptr));
    for (const std::string & reason : found.refused) {
        std::printf("skipped: %s\n", reason.c_str());
    }
    if (!found.path.empty()) {
        folder.checkpoint          = found.path;
        folder.flags               = resumed_flags(folder.path, found.path, given, defaults);
        const Flags::Values stored = read_checkpoint_head(found.path).flags;
        const std::string * made   = find_value(stored, "export");
        folder.owns_export =
            extend(folder.flags, found.step, train.extend) && made && *made == folder.export_to;
    } else if (train.extend > 0) {
        throw UsageError("--extend: " + folder.path + " has no run to continue");
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

constexpr double kLoraRate = 2e-4;  // of an adapter of any size, with AdamW

// The rate for new weights would undo what trained ones have learned.
static bool is_continued(const RunModel & model) {
    return model.fresh && is_trained(model.file);
}

static int threads_of(const TrainFlags & f) {
    const double n_cores = std::thread::hardware_concurrency();
    return f.threads ? f.threads : std::max(1, static_cast<int>(n_cores * f.power_limit / 100.0));
}

// The fragments with which this host stays within --up-limit and --day-cap at its own pace.
static uint64_t fragments_for(const TrainFlags & f, const RunInput & in) {
    const ModelFile & model = in.model->file;
    TrainFlags        run   = f;
    run.threads             = threads_of(f);
    const double seconds    = gradient_seconds(model, in.T, run);
    return fragments_within(f.optim, param_shapes(tensor_specs(model.config)), seconds, in.up_rate);
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
    if (f.steps == 0 && f.hours == 0.0 && (f.epochs > 0.0 || in.epochs > 0.0)) {
        f.epochs           = f.epochs > 0.0 ? f.epochs : in.epochs;
        const double steps = f.epochs * static_cast<double>(in.n_samples);
        f.steps = std::max<int64_t>(1, static_cast<int64_t>(steps / static_cast<double>(f.batch)));
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
    if (f.optim.fragments == 0 && rounds_per_cycle(f.optim) > 1) {
        f.optim.fragments = in.up_rate > 0.0 ? fragments_for(f, in) : rounds_per_cycle(f.optim);
    }
    if (f.optim.shares < 0) {
        f.optim.shares = default_shares(f.optim, in.n_hosts);
    }
    if (f.schedule.lr == 0.0f) {
        f.schedule.lr =
            in.model->file.config.lora.enabled()
                ? static_cast<float>(default_lr_factor(f.optim) * kLoraRate)
                : default_lr(n_weights, f.optim) * (is_continued(*in.model) ? 0.1f : 1.0f);
    }
    return f;
}

void check_settings(const TrainFlags & f, bool alone) {
    if (!alone && f.steps == 0) {
        throw UsageError("--hours works only without other hosts, because all hosts must agree on "
                         "the last step; use --steps or --tokens");
    }
    check_options(f.optim);
    Schedule schedule = f.schedule;
    schedule.steps    = std::max<int64_t>(1, f.steps);
    schedule.check();
}

// --- the plan ------------------------------------------------------------------------------------------

// Rounds the step count up to whole rounds. Deterministic: every host has the same settings.
static int64_t whole_rounds(const TrainFlags & f) {
    const auto    every = static_cast<int64_t>(steps_per_round(f.optim));
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
static Flags::Values stored_flags(const Flags & given, RunPlan plan, bool alone) {
    if (alone && plan.optim.replicator == default_replicator(true)) {
        plan.optim.replicator = "auto";  // with other hosts it means something else
    }
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

// Why the rate is what it is.
static std::string rate_reason(
    const TrainFlags & train, const Flags & given, const RunInput & in, const RunFolder & folder
) {
    if (given.given("lr")) {
        return "as given";
    }
    if (!folder.checkpoint.empty()) {
        return "as the run began";
    }
    if (!in.model->fresh) {
        return "as the run has it";
    }
    if (in.model->file.config.lora.enabled()) {
        return "for adapters";
    }
    return is_continued(*in.model)
               ? "a tenth of that for new models, because " + train.model + " is trained already"
               : "for new models of this size";
}

RunPlan make_plan(
    const TrainFlags & train, const Flags & given, const RunInput & in, const RunFolder & folder
) {
    if (!in.alone && train.optim.replicator == "none") {
        std::fprintf(
            stderr,
            "WARNING: --replicator none: hosts exchange nothing, and each trains a model of "
            "its own\n"
        );
    }
    RunPlan plan{train};
    plan.out             = folder.path;
    plan.checkpoint      = folder.checkpoint;
    plan.owns_export     = folder.owns_export;
    plan.export_to       = folder.export_to;
    plan.data_text       = in.data_text;
    plan.n_samples       = in.n_samples;
    plan.lr_reason       = rate_reason(train, given, in, folder);
    plan.T               = train.context ? train.context : in.T;
    plan.unit            = in.unit;
    plan.n_per_sample    = in.n_per_sample;
    plan.logits          = in.logits;
    plan.mixup           = in.mixup;
    plan.depth           = in.depth;
    plan.packed          = in.packed;
    plan.dropout         = in.dropout;
    plan.steps           = whole_rounds(train);
    plan.threads         = threads_of(plan);
    const auto n_devices = static_cast<int>(parse_devices(plan.device).size());
    plan.ranks           = n_devices > 1 && plan.ranks == 1 ? n_devices : plan.ranks;

    // a slow host computes only some of its micro-batches (batch-pace.h)
    const bool    is_given = given.given("micro") && plan.micro > 0;
    const int64_t most     = in.alone ? plan.batch : std::max<int64_t>(1, plan.batch / 8);
    if (!is_given) {
        plan.micro = in.micro > 0 ? std::min(in.micro, most) : most;
    }
    const MemoryFit fit  = fit_memory(plan, in.model->file.config, is_given);
    plan.micro           = fit.micro;
    plan.shard           = fit.shard;
    plan                 = with_steps(plan, plan.steps);
    plan.stored          = stored_flags(given, plan, in.alone);
    plan.chose_recompute = fit.recompute && !plan.recompute;
    plan.recompute       = fit.recompute;
    return plan;
}

// Validations take about a tenth of the run: a batch costs a third of a step there. One more is made
// before the first step.
static void choose_validations(RunPlan & plan, int64_t steps) {
    constexpr int64_t kBatches = 16, kTimes = 20;
    const int64_t     budget = std::max<int64_t>(2, steps * 3 / 10);  // batches
    if (plan.eval_batches == 0) {
        const bool few    = steps > 0 && plan.eval_every == 0;
        plan.eval_batches = few ? std::clamp<int64_t>(budget / 2, 1, kBatches) : kBatches;
    }
    if (plan.eval_every == 0 && steps > 0) {
        const auto n    = std::clamp<int64_t>(budget / plan.eval_batches - 1, 1, kTimes);
        plan.eval_every = (steps + n - 1) / n;
    }
}

RunPlan with_steps(RunPlan plan, int64_t steps) {
    plan.steps = plan.schedule.steps = steps;
    choose_validations(plan, steps);
    if (steps == 0) {
        return plan;
    }
    plan.save_every = plan.save_every ? plan.save_every : std::max<int64_t>(1, steps / 10);
    plan.schedule.check();
    for (auto & [name, value] : plan.stored) {
        value = name == "steps" ? std::to_string(steps) : value;
    }
    return plan;
}

}  // namespace gt
