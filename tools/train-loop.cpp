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

namespace gt {

namespace {

// Our place in the run (SharedRun::mark) lies among the checkpoint's flags.
constexpr const char * kMark = "run-mark";

std::string to_hex(const Bytes & bytes) {
    std::string text;
    for (uint8_t byte : bytes) {
        text += format("%02x", byte);
    }
    return text;
}

Bytes from_hex(const std::string & text) {
    Bytes bytes;
    for (size_t i = 0; i + 1 < text.size(); i += 2) {
        bytes.push_back(static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
    }
    return bytes;
}

bool all_numbers(std::span<const float> values) {
    return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

// What would only fail after hours of training fails now.
void check_start(const TrainFlags & f, const ModelFile & model) {
    for (const ModelTensor & tensor : model.tensors) {
        if (!all_numbers(tensor.data)) {
            throw Error(
                f.model + ": " + tensor.spec.name +
                " holds values that are no numbers; take another copy"
            );
        }
    }
    const std::filesystem::path folder = std::filesystem::path(f.export_to).parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder)) {
        throw Error("--export " + f.export_to + ": there is no folder " + folder.string());
    }
}

// One run, from its parts wired together to its end.
class RunningTask {
public:
    RunningTask(TrainFlags & train, const Flags & flags, TrainTask & task, Together & together)
        : f_(train), flags_(flags), task_(task), lock_(f_.out), backend_(f_.device, f_.threads),
          workers_(f_.threads), model_(make_model(backend_, task.model.config, true)),
          together_(together) {
        for (const ModelTensor & tensor : task.model.tensors) {
            model_->weights().set(model_->weights().at(tensor.spec.name), tensor.data);
        }
        task.model.tensors.clear();  // they live on the device now
        views_     = model_->weights().views();
        optimizer_ = make_optimizer(f_.optim, views_, workers_);
        shared_    = std::make_unique<SharedState>(views_, *optimizer_, workers_);
        peers_     = &together.peers(f_.optim, views_);

        GraphOptions options = {
            .B          = f_.micro,
            .T          = task.T,
            .image_size = task.model.config.image_size,
            .channels   = task.model.config.channels,
            .form       = f_.portable ? Form::portable : Form::fused,
            .recompute  = f_.recompute ? Recompute::all : Recompute::cheap,
            .smoothing  = f_.smoothing,
            .mixup      = task.mixup,
            .depth      = task.depth};
        graph_            = std::make_unique<StepGraph>(backend_, *model_, options);
        options.goal      = task.evaluate ? GraphOptions::Goal::logits : GraphOptions::Goal::loss;
        options.smoothing = 0.0f;
        options.mixup = options.depth = false;
        eval_                         = std::make_unique<StepGraph>(backend_, *model_, options);
        trainer_                      = std::make_unique<Trainer>(
            *graph_, *optimizer_, *shared_, *peers_,
            StepSource{
                                     .samples   = [this](uint64_t step
                           ) { return task_.train(step, peers_->host(), 0, f_.batch); },
                                     .lr        = [this](uint64_t step) { return f_.schedule.at(step); },
                                     .grad_norm = [this] { return grad_norm(f_.optim, views_, workers_); }},
            TrainerOptions{
                                     .clip    = f_.clip,
                                     .overlap = f_.optim.overlap ? 1u : 0u,
                                     .steps   = static_cast<uint64_t>(f_.steps)}
        );
    }

    int run(const std::string & checkpoint) {
        if (!checkpoint.empty()) {
            resume(checkpoint);
        }
        if (f_.steps == 0) {
            plan_hours();
        }
        introduce();
        join(task_.fresh && checkpoint.empty());
        StepLog log(
            f_.out, trainer_->step(),
            {.steps = static_cast<uint64_t>(f_.steps), .every = f_.log_every, .unit = task_.unit}
        );
        const Interrupt interrupt;
        while (trainer_->step() < static_cast<uint64_t>(f_.steps) && !interrupt.asked()) {
            const double     waited = task_.waited ? task_.waited() : 0.0;
            const StepResult result = trainer_->train();
            const uint64_t   step   = result.step;
            log.step(
                {.step      = step + 1,
                 .loss      = static_cast<float>(result.loss),
                 .lr        = result.lr,
                 .grad_norm = static_cast<float>(result.grad_norm),
                 .n_tokens  = static_cast<uint64_t>(f_.batch * task_.n_per_sample),
                 .n_missing = result.n_missing,
                 .waited    = task_.waited ? task_.waited() - waited : 0.0}
            );
            after_step(log, step + 1, result.validate);
        }
        return finish(log, interrupt.asked());
    }

private:
    static bool due(int64_t every, uint64_t step) {
        return every > 0 && step % static_cast<uint64_t>(every) == 0;
    }
    bool at_end() const { return trainer_->step() >= static_cast<uint64_t>(f_.steps); }

    // How many steps --hours are: a few gradients are computed and timed, and thrown away.
    void plan_hours() {
        const auto from = std::chrono::steady_clock::now();
        for (int i = 0; i < 3; ++i) {
            graph_->run(task_.train(i, peers_->host(), 0, f_.batch).part(0, f_.micro));
        }
        const double each =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count() / 3 *
            static_cast<double>(f_.batch / f_.micro);
        f_.steps          = std::max<int64_t>(1, static_cast<int64_t>(f_.hours * 3600 / each));
        f_.schedule.steps = f_.steps;
        std::printf(
            "%.2g hours are about %lld steps of %.2f s\n", f_.hours,
            static_cast<long long>(f_.steps), each
        );
    }

    void introduce() {
        if (!f_.eval_every) {
            f_.eval_every = std::max<int64_t>(1, f_.steps / 20);
        }
        if (!f_.save_every) {
            f_.save_every = std::max<int64_t>(1, f_.steps / 10);
        }
        if (!task_.sample_every) {
            task_.sample_every = std::max<int64_t>(1, f_.steps / 10);
        }
        f_.schedule.check();
        const ModelConfig & config = model_->config();
        const double        count  = static_cast<double>(f_.batch * task_.n_per_sample);
        std::printf("model    %s\n", describe(config).c_str());
        std::printf(
            "data     %s %s per step, %lld steps\n", count_text(count).c_str(), task_.unit,
            static_cast<long long>(f_.steps)
        );
        std::printf(
            "memory   weights and gradients %.0f MB, activations %.0f MB\n",
            8e-6 * static_cast<double>(n_params(config)),
            static_cast<double>(graph_->activation_bytes()) / 1e6
        );
        std::printf(
            "compute  %d threads, %s%s\n", f_.threads, f_.portable ? "portable ops" : "fused ops",
            f_.recompute ? ", blocks recomputed" : ""
        );
        std::printf("run      %s\n", f_.out.c_str());
        std::fflush(stdout);
    }

    // Our place in the run: its beginning, our checkpoint, or where the others are.
    void join(bool fresh) {
        if (!together_.alone()) {
            std::printf("waiting for the other hosts\n");
            std::fflush(stdout);
        }
        trainer_->join(mark_, fresh);
        if (trainer_->step() > 0) {
            std::printf(
                "going on after step %llu\n", static_cast<unsigned long long>(trainer_->step())
            );
        }
    }

    // Loss -1: there is nothing to validate with.
    Score validate() {
        if (task_.evaluate) {
            return task_.evaluate(*eval_, at_end());
        }
        const std::vector<Batch> batches = task_.validation(f_.micro);
        return {.loss = batches.empty() ? -1.0 : evaluate(*eval_, batches)};
    }

    void after_step(StepLog & log, uint64_t step, bool validation_is_ours) {
        if ((due(f_.eval_every, step) && validation_is_ours) || at_end()) {
            const Score score = validate();
            if (score.loss >= 0.0) {
                log.eval(step, static_cast<float>(score.loss), static_cast<float>(score.accuracy));
            }
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
        trainer_->drain();
        if (interrupted) {
            log.note(format(
                "stopped after step %llu; saved as %s",
                static_cast<unsigned long long>(trainer_->step()), save().c_str()
            ));
            log.note("the same command goes on from there");
            return 130;
        }
        for (const std::string & note : save_model(
                 f_.export_to, model_->config(), task_.model.keys.get(), weights(),
                 parse_weight_type(f_.export_type)
             )) {
            log.note(note);
        }
        log.note("trained model: " + f_.export_to);
        together_.finish();
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
        Checkpoint c{
            .config = &model_->config(),
            .keys   = task_.model.keys.get(),
            .step   = trainer_->step(),
            .flags  = flags_.values()};
        for (const ParamView & view : views_) {
            c.weights.push_back({view.name, view.weight});
        }
        c.state = optimizer_->state();
        c.flags.push_back({kMark, to_hex(peers_->mark())});
        return c;
    }

    // Weights that are no numbers never replace a good checkpoint.
    std::string save() {
        for (const ParamView & view : views_) {
            if (!all_numbers(view.weight)) {
                throw Error(format(
                    "step %llu: %s holds values that are no numbers, so nothing was saved; start "
                    "over (--fresh) with "
                    "a lower --lr or a longer --warmup",
                    static_cast<unsigned long long>(trainer_->step()), view.name.c_str()
                ));
            }
        }
        return save_checkpoint(f_.out, checkpoint(), static_cast<int>(f_.keep));
    }

    void resume(const std::string & path) {
        Checkpoint c = checkpoint();
        load_checkpoint(path, c);
        for (const auto & [name, value] : c.flags) {
            mark_ = name == kMark ? from_hex(value) : mark_;
        }
        trainer_->set_step(c.step);
    }

    TrainFlags &                 f_;
    const Flags &                flags_;
    TrainTask &                  task_;
    FolderLock                   lock_;
    Backend                      backend_;
    Workers                      workers_;
    std::unique_ptr<Transformer> model_;
    Together &                   together_;
    RunPeers *                   peers_ = nullptr;
    Bytes                        mark_;  // our place in the run, from the checkpoint
    std::unique_ptr<SharedState> shared_;
    std::vector<ParamView>       views_;
    std::unique_ptr<Optimizer>   optimizer_;
    std::unique_ptr<StepGraph>   graph_, eval_;
    std::unique_ptr<Trainer>     trainer_;
};

}  // namespace

int train_loop(
    TrainFlags &        train,
    Flags &             flags,
    TrainTask &         task,
    Together &          together,
    const std::string & checkpoint
) {
    check_start(train, task.model);
    return RunningTask(train, flags, task, together).run(checkpoint);
}

}  // namespace gt
