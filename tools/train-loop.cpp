#include "tools/train-loop.h"

#include "ggml-train/checkpoint.h"
#include "ggml-train/file.h"
#include "ggml-train/step-log.h"
#include "tools/interrupt.h"
#include "tools/run-devices.h"
#include "tools/train-rank.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

namespace gt {

namespace {

// The data's digest lies among the checkpoint's flags.
constexpr const char * kData = "data-digest";

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
    if (f.compute != "f32" && f.device == "cpu" && !f.portable) {
        throw Error(
            "--compute " + f.compute +
            ": the fused ops of the CPU are F32; add --portable, or use a "
            "device"
        );
    }
    const std::filesystem::path folder = std::filesystem::path(f.export_to).parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder)) {
        throw Error("--export " + f.export_to + ": there is no folder " + folder.string());
    }
}

// One run, from its beginning to its end, as one rank of this host goes through it. All ranks run
// the same lines; rank 0 alone writes, prints and speaks with other hosts.
class RunningTask {
public:
    RunningTask(
        TrainFlags &  train,
        const Flags & flags,
        TrainTask &   task,
        Together &    together,
        RunPeers &    peers,
        LocalGroup &  ranks
    )
        : f_(train), flags_(flags), task_(task), together_(together), peers_(peers), ranks_(ranks),
          rank_(train, task, ranks, peers) {
        on_first(ranks_, [&] { task_.model.tensors.clear(); });  // they live on the devices now
    }

    int run(const std::string & checkpoint) {
        if (!checkpoint.empty()) {
            resume(checkpoint);
        }
        if (f_.steps == 0) {
            plan_hours();
        }
        const double compute_s = together_.alone() ? 0.0 : measure(1);
        on_first(ranks_, [&] { introduce(compute_s); });
        join(task_.fresh && checkpoint.empty());
        log_ = std::make_unique<StepLog>(
            f_.out, trainer().step(),
            StepLogOptions{
                .enabled = ranks_.rank() == 0,
                .steps   = static_cast<uint64_t>(f_.steps),
                .every   = f_.log_every,
                .unit    = task_.unit}
        );
        interrupt_ = ranks_.rank() == 0 ? std::make_unique<Interrupt>() : nullptr;
        while (!at_end() && !asked_to_stop()) {
            const double waited = waited_for_data();
            StepResult   result = trainer().train();
            if (at_end()) {
                trainer().drain(result);
            }
            log_->step(record_of(result, waited_for_data() - waited));
            after_step(result.step + 1, result.validate);
        }
        return from_first(ranks_, [&] { return finish(); });
    }

private:
    static bool due(int64_t every, uint64_t step) {
        return every > 0 && step % static_cast<uint64_t>(every) == 0;
    }
    Trainer & trainer() { return rank_.trainer(); }
    bool      at_end() { return trainer().step() >= static_cast<uint64_t>(f_.steps); }
    bool      asked_to_stop() {
             return from_first(ranks_, [&] { return interrupt_->asked(); });
    }

    double waited_for_data() const {
        return task_.waited && ranks_.rank() == 0 ? task_.waited() : 0.0;
    }

    StepRecord record_of(const StepResult & result, double waited_for_data) const {
        return {
            .step             = result.step + 1,
            .loss             = static_cast<float>(result.loss),
            .lr               = result.lr,
            .grad_norm        = static_cast<float>(result.grad_norm),
            .n_tokens         = static_cast<uint64_t>(result.n_samples * task_.n_per_sample),
            .n_samples        = static_cast<uint64_t>(result.n_samples),
            .waited           = waited_for_data,
            .round            = result.round + 1,
            .in               = result.in,
            .late             = result.late,
            .n_sent           = result.n_sent,
            .up_bytes         = result.up_bytes,
            .down_bytes       = result.down_bytes,
            .waited_for_hosts = result.waited};
    }

    // Seconds of a step's gradient: a few micro-batches are computed and timed, and thrown away.
    double measure(int n) {
        const auto from = std::chrono::steady_clock::now();
        for (int i = 0; i < n; ++i) {
            const auto batch = from_first(ranks_, [&] {
                return task_.train(i, peers_.host(), 0, f_.batch).part(0, f_.micro);
            });
            rank_.graph().run(batch);
        }
        const int64_t n_turns = (f_.batch / f_.micro + ranks_.size() - 1) / ranks_.size();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - from;
        return std::max(test_step_seconds(), took.count() / n * static_cast<double>(n_turns));
    }

    // How many steps --hours are.
    void plan_hours() {
        const double each = measure(3);
        on_first(ranks_, [&] {
            f_.steps          = std::max<int64_t>(1, static_cast<int64_t>(f_.hours * 3600 / each));
            f_.schedule.steps = f_.steps;
            std::printf(
                "%.2g hours are about %lld steps of %.2f s\n", f_.hours,
                static_cast<long long>(f_.steps), each
            );
        });
    }

    // compute_s: of a step, with other hosts.
    void introduce(double compute_s) {
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
        const ModelConfig & config = task_.model.config;
        const double        count  = static_cast<double>(f_.batch * task_.n_per_sample);
        std::printf("model    %s\n", describe(config).c_str());
        std::printf(
            "data     %s %s per step, %lld steps\n", count_text(count).c_str(), task_.unit,
            static_cast<long long>(f_.steps)
        );
        constexpr const char * kForms[] = {"portable ops", "fused ops", "device ops"};
        const RankMemory       memory   = rank_.memory();
        const auto             mb = [](size_t bytes) { return static_cast<double>(bytes) / 1e6; };
        std::printf(
            "memory   %sweights and gradients %.0f MB, optimizer %.0f MB, %sactivations %.0f MB\n",
            ranks_.size() > 1 ? "of each rank: " : "", mb(memory.weights), mb(memory.state),
            memory.window ? format("passing blocks %.0f MB, ", mb(memory.window)).c_str() : "",
            mb(memory.activations)
        );
        std::printf(
            "compute  %s, %d threads, %s%s\n", f_.device.c_str(), f_.threads,
            kForms[static_cast<int>(form_of(f_))], f_.recompute ? ", blocks recomputed" : ""
        );
        if (!together_.alone()) {
            std::printf("cost     %s\n", together_.cost(f_.optim, config, compute_s).c_str());
        }
        std::printf("run      %s\n", f_.out.c_str());
        std::fflush(stdout);
    }

    // Our place in the run: its beginning, our checkpoint, or where the others are.
    void join(bool fresh) {
        if (!together_.alone() && ranks_.rank() == 0) {
            std::printf("waiting for the other hosts\n");
            std::fflush(stdout);
        }
        trainer().join(mark_, fresh);
        if (trainer().step() > 0 && ranks_.rank() == 0) {
            std::printf(
                "going on after step %llu\n", static_cast<unsigned long long>(trainer().step())
            );
            std::fflush(stdout);
        }
    }

    // Loss -1: there is nothing to validate with. Pictures: by rank 0, which has their answers.
    Score validate() {
        if (task_.evaluate) {
            Score score;
            lead(ranks_, rank_.eval(), [&](StepRunner & eval) {
                score = task_.evaluate(eval, at_end());
            });
            return from_first(ranks_, [&] { return score; });
        }
        const auto batches = from_first(ranks_, [&] {
            return std::make_shared<const std::vector<Batch>>(task_.validation(f_.micro));
        });
        return {.loss = batches->empty() ? -1.0 : evaluate(ranks_, rank_.eval(), *batches)};
    }

    void after_step(uint64_t step, bool validation_is_ours) {
        if ((due(f_.eval_every, step) && validation_is_ours) || at_end()) {
            const Score score = validate();
            if (score.loss >= 0.0) {
                log_->eval(
                    step, static_cast<float>(score.loss), static_cast<float>(score.accuracy)
                );
            }
        }
        on_first(ranks_, [&] {
            if (task_.sample && (due(task_.sample_every, step) || at_end())) {
                log_->sample(step, task_.prompt, task_.sample(WholeWeights(rank_.state()).views));
            }
            if (due(f_.save_every, step) || at_end()) {
                save();
                log_->mark();
            }
        });
    }

    int finish() {
        if (!at_end()) {
            log_->note(format(
                "stopped after step %llu; saved as %s",
                static_cast<unsigned long long>(trainer().step()), save().c_str()
            ));
            log_->note("the same command goes on from there");
            return 130;
        }
        for (const std::string & note : save_model(
                 f_.export_to, task_.model.config, task_.model.keys.get(),
                 WholeWeights(rank_.state()).views, parse_weight_type(f_.export_type)
             )) {
            log_->note(note);
        }
        log_->note("trained model: " + f_.export_to);
        together_.finish();
        return 0;
    }

    Checkpoint checkpoint() {
        Checkpoint c{
            .config = &task_.model.config,
            .keys   = task_.model.keys.get(),
            .step   = trainer().step(),
            .flags  = flags_.values(),
            .state  = rank_.state()};
        for (const HostCounter & counter : trainer().counters()) {
            c.state.counters.push_back(counter);
        }
        c.flags.push_back({kData, std::to_string(task_.data_digest)});
        mark_ = peers_.mark();
        c.state.blobs.push_back({"run-mark", {&mark_}});
        return c;
    }

    // Weights that are no numbers never replace a good checkpoint.
    std::string save() {
        for (const HostTensor & weight : rank_.state().weights) {
            for (const HostTensor::Piece & piece : weight.pieces) {
                if (!all_numbers(piece.view().values())) {
                    throw Error(format(
                        "step %llu: %s holds values that are no numbers, so nothing was saved; "
                        "start over (--fresh) with a lower --lr or a longer --warmup",
                        static_cast<unsigned long long>(trainer().step()), weight.name.c_str()
                    ));
                }
            }
        }
        return save_checkpoint(f_.out, checkpoint(), static_cast<int>(f_.keep));
    }

    void resume(const std::string & path) {
        const uint64_t step = from_first(ranks_, [&] {
            Checkpoint c = checkpoint();
            load_checkpoint(path, c);
            for (const auto & [name, value] : c.flags) {
                if (name == kData && value != std::to_string(task_.data_digest)) {
                    throw Error(
                        "the training data has changed since " + path +
                        " was saved: bring the old data back to go on with that run, train on the "
                        "new data from what export makes of the run (with another --out), or start "
                        "over with --fresh"
                    );
                }
            }
            return c.step;
        });
        rank_.share_weights();
        trainer().set_step(step);
    }

    TrainFlags &               f_;
    const Flags &              flags_;
    TrainTask &                task_;
    Together &                 together_;
    RunPeers &                 peers_;
    LocalGroup &               ranks_;
    TrainRank                  rank_;
    Bytes                      mark_;  // our place in the run, of the checkpoint; on rank 0
    std::unique_ptr<StepLog>   log_;
    std::unique_ptr<Interrupt> interrupt_;  // on rank 0
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
    const FolderLock lock(train.out);
    RunPeers &       peers = together.peers(train.optim, param_shapes(task.model.config));
    int              code  = 0;
    run_devices(train.device, train.ranks, [&](LocalGroup & ranks) {
        const int done = RunningTask(train, flags, task, together, peers, ranks).run(checkpoint);
        if (ranks.rank() == 0) {
            code = done;
        }
    });
    return code;
}

}  // namespace gt
