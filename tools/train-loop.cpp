#include "tools/train-loop.h"

#include "ggml-train/checkpoint.h"
#include "ggml-train/file.h"
#include "ggml-train/step-log.h"
#include "ggml-train/trainer.h"
#include "models/blocks.h"
#include "tools/interrupt.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

namespace gt {

namespace fs = std::filesystem;

static std::string stem(const std::string & path) {
    return fs::path(path).replace_extension("").string();
}

void choose_defaults(TrainFlags & f, const ModelConfig & config, int64_t T, int64_t n_samples) {
    const double n = static_cast<double>(n_params(config));
    f.out          = f.out.empty() ? stem(f.model) + "-run" : f.out;
    f.export_to    = f.export_to.empty() ? stem(f.model) + "-trained.gguf" : f.export_to;
    f.batch        = f.batch ? f.batch : std::max<int64_t>(1, 8192 / T);
    if (f.schedule.lr == 0.0f) {
        // smaller models take higher rates: 2e-3 at 1M, 1e-3 at 10M, 6e-4 at 100M
        f.schedule.lr = static_cast<float>(std::clamp(2e-3 * std::pow(n / 1e6, -0.27), 1e-4, 4e-3));
    }
    if (f.tokens > 0) {
        f.steps = std::max<int64_t>(1, f.tokens / (f.batch * T));
    }
    if (f.steps == 0 && f.hours == 0.0) {
        // twenty tokens per weight, but no sample more than ten times
        const double wanted = 20.0 * n / static_cast<double>(T);
        const double most   = 10.0 * static_cast<double>(n_samples);
        f.steps = std::max<int64_t>(100, static_cast<int64_t>(std::min(wanted, most) / static_cast<double>(f.batch)));
    }
    if (f.optim.replicator == "auto") {
        f.optim.replicator = "none";  // alone
    }
    f.micro = f.micro ? f.micro : f.batch;
    while (f.batch % f.micro != 0) {
        --f.micro;
    }
    f.threads        = f.threads ? f.threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    f.schedule.steps = f.steps;
}

std::string find_run(const TrainFlags & train, Flags & flags, const ModelConfig & config) {
    const std::string folder = train.out.empty() ? stem(train.model) + "-run" : train.out;
    if (train.fresh) {
        const std::string old = set_aside(folder);
        if (!old.empty()) {
            std::printf("the run that was there is now %s\n", old.c_str());
        }
    }
    fs::create_directories(folder);
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
        return std::find_if(values.begin(), values.end(), [&](const auto & v) { return v.first == name; });
    };
    const Flags::Values known = run_flags.values(), now = flags.values();
    for (const auto & [name, value] : read_checkpoint_head(found.path).flags) {
        if (find(known, name) == known.end()) {
            continue;
        }
        const std::string given = find(now, name)->second;
        if (flags.given(name) && given != value) {
            throw Error(format(
                "the run in %s has --%s %s, not %s; leave the flag away to go on with it, start over "
                "with --fresh, or elsewhere with --out",
                folder.c_str(), name.c_str(), value.c_str(), given.c_str()
            ));
        }
        flags.set(name, value);
    }
    return found.path;
}

namespace {

// One run, from its parts wired together to its end.
class RunningTask {
public:
    RunningTask(TrainFlags & train, const Flags & flags, TrainTask & task, Peers & peers)
        : f_(train), flags_(flags), task_(task), backend_(f_.device, f_.threads), workers_(f_.threads),
          model_(make_model(backend_, task.model.config, true)), peers_(peers) {
        for (const ModelTensor & tensor : task.model.tensors) {
            model_->weights().set(model_->weights().at(tensor.spec.name), tensor.data);
        }
        task.model.tensors.clear();  // they live on the device now
        views_     = model_->weights().views();
        optimizer_ = make_optimizer(f_.optim, views_, workers_);

        GraphOptions options = {
            .B          = f_.micro,
            .T          = task.T,
            .image_size = task.model.config.image_size,
            .channels   = task.model.config.channels,
            .form       = f_.portable ? Form::portable : Form::fused,
            .recompute  = f_.recompute ? Recompute::all : Recompute::cheap,
            .smoothing  = f_.smoothing};
        graph_            = std::make_unique<StepGraph>(backend_, *model_, options);
        options.goal      = GraphOptions::Goal::loss;
        options.smoothing = 0.0f;
        eval_             = std::make_unique<StepGraph>(backend_, *model_, options);
        trainer_          = std::make_unique<Trainer>(
            *graph_, *optimizer_, peers_, [this] { return grad_norm(f_.optim, views_, workers_); },
            TrainerOptions{.clip = f_.clip}
        );
    }

    int run(const std::string & checkpoint) {
        if (!checkpoint.empty()) {
            resume(checkpoint);
        }
        if (f_.steps == 0) {
            plan_hours();
        }
        introduce(!checkpoint.empty());
        StepLog log(f_.out, trainer_->step(), {.steps = static_cast<uint64_t>(f_.steps), .every = f_.log_every, .unit = task_.unit});
        const Interrupt interrupt;
        while (trainer_->step() < static_cast<uint64_t>(f_.steps) && !interrupt.asked()) {
            const uint64_t   step   = trainer_->step();
            const Batch      batch  = task_.train(step, peers_.host(), 0, f_.batch);
            const StepResult result = trainer_->train(batch, f_.schedule.at(step));
            log.step({
                .step      = step + 1,
                .loss      = static_cast<float>(result.loss),
                .lr        = result.lr,
                .grad_norm = static_cast<float>(result.grad_norm),
                .n_tokens  = static_cast<uint64_t>(f_.batch * task_.n_per_sample),
                .n_missing = result.n_missing});
            after_step(log, step + 1);
        }
        return finish(log, interrupt.asked());
    }

private:
    static bool due(int64_t every, uint64_t step) { return every > 0 && step % static_cast<uint64_t>(every) == 0; }
    bool        at_end() const { return trainer_->step() >= static_cast<uint64_t>(f_.steps); }

    // How many steps --hours are: a few gradients are computed and timed, and thrown away.
    void plan_hours() {
        const auto from = std::chrono::steady_clock::now();
        for (int i = 0; i < 3; ++i) {
            graph_->run(task_.train(i, peers_.host(), 0, f_.batch).part(0, f_.micro));
        }
        const double each = std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count() / 3 * static_cast<double>(f_.batch / f_.micro);
        f_.steps          = std::max<int64_t>(1, static_cast<int64_t>(f_.hours * 3600 / each));
        f_.schedule.steps = f_.steps;
        std::printf("%.2g hours are about %lld steps of %.2f s\n", f_.hours, static_cast<long long>(f_.steps), each);
    }

    void introduce(bool resumed) {
        if (!f_.eval_every) {
            f_.eval_every = std::max<int64_t>(1, f_.steps / 20);
        }
        if (!f_.save_every) {
            f_.save_every = std::max<int64_t>(1, f_.steps / 10);
        }
        f_.schedule.check();
        std::printf(
            "model    %s\ndata     %s per step, %lld steps\nmemory   weights and gradients %.0f MB, activations %.0f MB\n"
            "compute  %d threads, %s%s\nrun      %s%s\n",
            describe(model_->config()).c_str(),
            (count_text(static_cast<double>(f_.batch * task_.n_per_sample)) + " " + task_.unit).c_str(), static_cast<long long>(f_.steps),
            8e-6 * static_cast<double>(n_params(model_->config())), static_cast<double>(graph_->activation_bytes()) / 1e6, f_.threads,
            f_.portable ? "portable ops" : "fused ops", f_.recompute ? ", blocks recomputed" : "", f_.out.c_str(),
            resumed ? format(", going on after step %llu", static_cast<unsigned long long>(trainer_->step())).c_str() : ""
        );
        std::fflush(stdout);
    }

    void after_step(StepLog & log, uint64_t step) {
        if (due(f_.eval_every, step) || at_end()) {
            log.eval(step, static_cast<float>(evaluate(*eval_, task_.validation(f_.micro))));
        }
        if (task_.sample && (due(task_.sample_every, step) || at_end())) {
            log.sample(step, task_.prompt, task_.sample(weights()));
        }
        if (due(f_.save_every, step) || at_end()) {
            save();
            log.mark();
        }
    }

    int finish(StepLog & log, bool interrupted) {
        if (interrupted) {
            log.note(format("stopped after step %llu; saved as %s", static_cast<unsigned long long>(trainer_->step()), save().c_str()));
            log.note("the same command goes on from there");
            return 130;
        }
        for (const std::string & note : save_model(f_.export_to, model_->config(), task_.model.keys.get(), weights(), parse_weight_type(f_.export_type))) {
            log.note(note);
        }
        log.note("trained model: " + f_.export_to);
        return 0;
    }

    std::vector<WeightView> weights() const {
        std::vector<WeightView> list;
        for (const ParamView & view : views_) {
            list.push_back({view.name, view.weight});
        }
        return list;
    }

    Checkpoint checkpoint() {
        Checkpoint c{.config = &model_->config(), .keys = task_.model.keys.get(), .step = trainer_->step(), .flags = flags_.values()};
        for (const ParamView & view : views_) {
            c.weights.push_back({view.name, view.weight});
        }
        c.state = optimizer_->state();
        return c;
    }

    std::string save() { return save_checkpoint(f_.out, checkpoint(), static_cast<int>(f_.keep)); }

    void resume(const std::string & path) {
        Checkpoint c = checkpoint();
        load_checkpoint(path, c);
        trainer_->set_step(c.step);
    }

    TrainFlags &                 f_;
    const Flags &                flags_;
    TrainTask &                  task_;
    Backend                      backend_;
    Workers                      workers_;
    std::unique_ptr<Transformer> model_;
    Peers &                      peers_;
    std::vector<ParamView>       views_;
    std::unique_ptr<Optimizer>   optimizer_;
    std::unique_ptr<StepGraph>   graph_, eval_;
    std::unique_ptr<Trainer>     trainer_;
};

}  // namespace

int train_loop(TrainFlags & train, const Flags & flags, TrainTask & task, Peers & peers, const std::string & checkpoint) {
    return RunningTask(train, flags, task, peers).run(checkpoint);
}

}  // namespace gt
