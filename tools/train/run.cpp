#include "tools/train/run.h"

#include "comm/status/page.h"
#include "ggml-train/base/file.h"
#include "ggml-train/run/checkpoint.h"
#include "ggml-train/run/run-status.h"
#include "ggml-train/run/step-log.h"
#include "models/base-weights.h"
#include "tools/cli/interrupt.h"
#include "tools/train/measure.h"
#include "tools/train/pause.h"
#include "tools/train/run-devices.h"
#include "tools/train/settle.h"
#include "tools/train/summary.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <thread>

namespace gt {

namespace {

// The data's digest is stored among the checkpoint's flags.
constexpr const char * kData = "data-digest";

StepRecord record_of(
    const RunPlan & plan, const Session & session, const StepResult & result, double waited_for_data
) {
    const HubTraffic traffic = session.traffic(result.info);
    return {
        .step             = result.step + 1,
        .loss             = static_cast<float>(result.loss),
        .lr               = result.lr,
        .grad_norm        = static_cast<float>(result.grad_norm),
        .n_tokens         = static_cast<uint64_t>(result.n_samples * plan.n_per_sample),
        .n_samples        = static_cast<uint64_t>(result.n_samples),
        .waited           = waited_for_data,
        .round            = result.round + 1,
        .in               = result.info.in,
        .late             = result.info.late,
        .n_sent           = result.n_sent,
        .up_bytes         = traffic.sent,
        .down_bytes       = traffic.received,
        .waited_for_hosts = result.waited,
        .hosts            = result.info.hosts};
}

// The status page as it is now, with its data inside.
void write_page(const std::string & path, const RunStatus & status) {
    const std::string page = page_with(status.json());
    AsideFile         file(path);
    file.write(page.data(), page.size());
    file.commit();
}

// Ten per run, or one, unless an interval was given.
int64_t sample_every(const RunPlan & plan, const Samples & samples) {
    const int64_t usual = plan.steps < 50 ? plan.steps : plan.steps / 10;
    return samples.every ? samples.every : usual;
}

// Weights with NaN or Inf never replace a good checkpoint.
void check_finite(const HostState & state, uint64_t step) {
    for (const HostTensor & weight : state.weights) {
        for (const HostTensor::Piece & piece : weight.pieces) {
            if (!all_finite(piece.view().values())) {
                throw Error(format(
                    "step %llu: %s contains NaN or Inf; the checkpoint was not written. Restart "
                    "with --fresh and a lower --lr or a longer --warmup",
                    static_cast<unsigned long long>(step), weight.name.c_str()
                ));
            }
        }
    }
}

// Of an adapter.
std::string use_of(const ModelConfig & config) {
    const BaseWeights * base = config.lora.base.get();
    return base ? ", an adapter for " + base->path() + " (--lora; export --merge makes one of both)"
                : "";
}

// The run on one rank of this host. All ranks run the same lines; only rank 0 writes files, prints, and
// talks to other hosts.
class Run {
public:
    Run(const RunPlan & plan,
        RunModel &      model,
        Data &          data,
        Session &       session,
        const Samples & samples,
        Peers &         peers,
        RunStatus &     status,
        LocalGroup &    ranks)
        : plan_(plan), model_(model), data_(data), session_(session), samples_(samples),
          peers_(peers), status_(status), ranks_(ranks),
          pause_({plan.out, plan.active_hours, plan.pause_when_busy}),
          rank_(plan, model.file, data, ranks, peers) {
        on_first(ranks_, [&] { model_.file.tensors.clear(); });  // the devices have them now
    }

    int run() {
        if (!plan_.checkpoint.empty()) {
            resume(plan_.checkpoint);
        }
        const double compute_s =
            session_.alone() ? 0.0 : measure_gradient(plan_, rank_, data_, ranks_, 1);
        on_first(ranks_, [&] {
            print_summary(plan_, model_.file.config, rank_.memory(), rank_.state());
        });
        join(model_.fresh && plan_.checkpoint.empty());
        if (!session_.alone() && ranks_.rank() == 0 && !at_end() && !Interrupt::asked()) {
            const std::string cost = session_.cost(plan_.optim, model_.file.config, compute_s);
            std::printf("cost     about %s\n", cost.c_str());
            std::fflush(stdout);
        }
        log_ = std::make_unique<StepLog>(
            plan_.out, trainer().step(),
            StepLogOptions{
                .enabled = ranks_.rank() == 0,
                .steps   = static_cast<uint64_t>(plan_.steps),
                .every   = plan_.log_every,
                .batch   = static_cast<uint64_t>(plan_.batch),
                .unit    = plan_.unit,
                .status  = ranks_.rank() == 0 ? &status_ : nullptr}
        );
        if (ranks_.rank() == 0) {
            rank_.watch([this](bool training) { show_work(training); });
            session_.log().to([this](const std::string & text) {
                log_->note(text);
                status_.fault(text);
            });
        }
        if (trainer().step() == 0 && session_.is_first() && !at_end() && !is_interrupted()) {
            validate(0);
        }
        try {
            train();
        } catch (const Displaced &) {
            log_->note("saved as " + save());
            throw;
        }
        return from_first(ranks_, [&] { return finish(); });
    }

    ~Run() {
        if (ranks_.rank() == 0) {
            session_.log().to(nullptr);
        }
    }

private:
    void train() {
        while (!at_end() && !is_interrupted()) {
            if (const std::string why = pause_reason(); !why.empty()) {
                pause(why);
                continue;
            }
            const double waited = waited_for_data();
            n_work_             = 0;
            StepResult result   = trainer().train();
            if (at_end()) {
                trainer().drain(result);
            }
            if (result.n_samples > 0) {
                log_->step(record_of(plan_, session_, result, waited_for_data() - waited));
                tell_traffic();
            }
            after_step(result.step + 1, result.validate);
        }
    }
    static bool due(int64_t every, uint64_t step) {
        return every > 0 && step % static_cast<uint64_t>(every) == 0;
    }
    Trainer & trainer() { return rank_.trainer(); }
    bool      at_end() { return trainer().step() >= static_cast<uint64_t>(plan_.steps); }
    bool      is_interrupted() {
             return from_first(ranks_, [] { return Interrupt::asked(); });
    }
    double waited_for_data() const { return ranks_.rank() == 0 ? data_.seconds_waited() : 0.0; }

    // Once, when the pace is known: the true cost.
    void tell_traffic() {
        constexpr uint64_t kSteps = 50;
        if (session_.alone() || ranks_.rank() != 0 || ++n_steps_ != kSteps) {
            return;
        }
        const RunStatus::Traffic day = status_.per_day();
        log_->note(format(
            "cost     measured over %llu steps: %.1f GB up and %.1f GB down per day",
            static_cast<unsigned long long>(kSteps), 1e-9 * day.up, 1e-9 * day.down
        ));
    }

    // Our place in the run: its beginning, our checkpoint, or the current step of the other hosts.
    void join(bool fresh) {
        if (!session_.alone() && ranks_.rank() == 0) {
            const auto tell = [this](const std::string & text) {
                std::printf("%s\n", text.c_str());
                std::fflush(stdout);
                status_.idle("waiting", text);
            };
            tell("waiting for the other hosts");
            session_.on_missing(tell);
        }
        trainer().join(mark_, fresh);
        if (trainer().step() > 0 && ranks_.rank() == 0) {
            const auto step = static_cast<unsigned long long>(trainer().step());
            if (at_end()) {
                std::printf(
                    "this run is finished (step %llu of %lld)%s\n", step,
                    static_cast<long long>(plan_.steps),
                    session_.alone() ? "; --extend N continues it, --fresh starts over" : ""
                );
            } else {
                std::printf("resuming after step %llu\n", step);
            }
            std::fflush(stdout);
        }
    }

    std::string pause_reason() {
        return from_first(ranks_, [&] { return pause_.reason(); });
    }

    // Saves and leaves the other hosts, until there is no reason to any more. The next step returns to
    // them, and applies the rounds that were missed.
    void pause(std::string why) {
        constexpr auto kEach = std::chrono::milliseconds(500);
        on_first(ranks_, [&] {
            save();
            log_->note(format(
                "pausing after step %llu: %s", static_cast<unsigned long long>(trainer().step()),
                why.c_str()
            ));
            status_.idle("paused", why);
            peers_.pause();
        });
        while (!why.empty() && !is_interrupted()) {
            on_first(ranks_, [&] { std::this_thread::sleep_for(kEach); });
            why = pause_reason();
        }
        on_first(ranks_, [&] {
            log_->note("training again");
            log_->mark();
        });
    }

    // For a step or a validation that takes long: its micro-batches.
    void show_work(bool training) {
        const int64_t all = training ? plan_.batch / plan_.micro / ranks_.size() : n_validation_;
        std::string   text =
            training ? format("step %llu: ", static_cast<unsigned long long>(trainer().step() + 1))
                       : "validating: ";
        ++n_work_;
        text += std::to_string(n_work_) + (all >= n_work_ ? "/" + std::to_string(all) : "");
        log_->working(text);
    }

    void validate(uint64_t step) {
        n_work_           = 0;
        const Score score = rank_.validate(data_, at_end());
        n_validation_     = n_work_;
        if (score.loss >= 0.0) {
            log_->eval(
                step, static_cast<float>(score.loss), static_cast<float>(score.accuracy),
                static_cast<float>(score.bits_per_byte)
            );
        }
    }

    // Validation, checkpoint and sample, where they are due.
    void after_step(uint64_t step, bool validation_is_ours) {
        if ((due(plan_.eval_every, step) && validation_is_ours) || at_end()) {
            validate(step);
        }
        on_first(ranks_, [&] {
            if (due(plan_.save_every, step) || at_end()) {
                save();
                log_->mark();
            }
            if (samples_.generate && (due(sample_every(plan_, samples_), step) || at_end())) {
                sample(step);
            }
        });
    }

    // A sample that fails does not end the run.
    void sample(uint64_t step) {
        rank_.graph().release();  // libllama needs memory of its own
        try {
            const auto text = samples_.generate(WholeWeights(rank_.state()).views);
            log_->sample(step, samples_.prompt, text);
        } catch (const std::exception & error) {
            log_->note(std::string("no sample: ") + error.what());
        }
    }

    int finish() {
        status_.ended(at_end());
        write_page(plan_.out + "/status.html", status_);
        log_->end();
        if (!at_end()) {
            log_->note(format(
                "stopped after step %llu; saved as %s\nrun the same command to resume",
                static_cast<unsigned long long>(trainer().step()), save().c_str()
            ));
            return 130;
        }
        if (!plan_.owns_export && std::filesystem::exists(plan_.export_to)) {
            log_->note("the previous " + plan_.export_to + " is now " + set_aside(plan_.export_to));
        }
        for (const std::string & note : save_model(
                 plan_.export_to, model_.file.config, model_.file.keys.get(),
                 WholeWeights(rank_.state()).views, parse_weight_type(plan_.export_type)
             )) {
            log_->note(note);
        }
        log_->note("trained model: " + plan_.export_to + use_of(model_.file.config));
        session_.finish();
        return 0;
    }

    Checkpoint checkpoint() {
        head_ = model_head(model_.file.config, model_.file.keys.get());
        Checkpoint c{
            .model = &head_,
            .step  = trainer().step(),
            .flags = plan_.stored,
            .state = rank_.state()};
        for (const HostCounter & counter : trainer().counters()) {
            c.state.counters.push_back(counter);
        }
        c.flags.push_back({kData, std::to_string(data_.digest())});
        c.flags.push_back({kHosts, session_.alone() ? "alone" : "several"});
        mark_ = peers_.mark();
        c.state.blobs.push_back({"run-mark", {&mark_}});
        return c;
    }

    std::string save() {
        check_finite(rank_.state(), trainer().step());
        return save_checkpoint(plan_.out, checkpoint(), static_cast<int>(plan_.keep));
    }

    void resume(const std::string & path) {
        const uint64_t step = from_first(ranks_, [&] {
            Checkpoint c = checkpoint();
            load_checkpoint(path, c);
            for (const auto & [name, value] : c.flags) {
                if (name == kData && value != std::to_string(data_.digest())) {
                    throw Error(
                        "the training data has changed since " + path +
                        " was saved: restore the old data to resume, train on the new data from an "
                        "export of this run (with another --out), or start over with --fresh"
                    );
                }
            }
            return c.step;
        });
        rank_.share_weights();
        trainer().set_step(step);
    }

    const RunPlan & plan_;
    RunModel &      model_;
    Data &          data_;
    Session &       session_;
    const Samples & samples_;
    Peers &         peers_;
    RunStatus &     status_;
    LocalGroup &    ranks_;
    PauseRules      pause_;
    TrainRank       rank_;
    ModelHead       head_;
    uint64_t        n_steps_ = 0;                    // of this session
    int64_t         n_work_ = 0, n_validation_ = 0;  // micro-batches: done, of the last validation
    Bytes           mark_;  // our place in the run, for the checkpoint; on rank 0
    std::unique_ptr<StepLog> log_;
};

std::unique_ptr<PageServer> open_page(int port, const RunStatus & status) {
    if (port < 0) {
        return nullptr;
    }
    auto page = std::make_unique<PageServer>(port, [&] { return status.json(); });
    std::printf("status   http://127.0.0.1:%d/\n", page->port());
    std::fflush(stdout);
    return page;
}

}  // namespace

int run_training(
    const RunPlan & draft, RunModel & model, Data & data, Session & session, const Samples & samples
) {
    const FolderLock lock(draft.out);
    const Interrupt  interrupt;
    const RunPlan    plan = draft.steps > 0 ? draft : plan_hours(draft, model.file, data);
    Peers &   peers = session.peers(plan.optim, param_shapes(tensor_specs(model.file.config)));
    RunStatus status(
        {.run   = std::filesystem::path(plan.out).filename().string(),
         .model = describe(model.file.config),
         .host  = session.alone() ? "this machine" : session.host(),
         .unit  = plan.unit,
         .steps = static_cast<uint64_t>(plan.steps),
         .batch = static_cast<uint64_t>(plan.batch) * steps_per_round(plan.optim)}
    );
    const auto page = open_page(plan.status, status);
    int        code = 0;
    run_devices(plan.device, plan.ranks, [&](LocalGroup & ranks) {
        const int done = Run(plan, model, data, session, samples, peers, status, ranks).run();
        if (ranks.rank() == 0) {
            code = done;
        }
    });
    return code;
}

}  // namespace gt
