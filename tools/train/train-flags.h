// tools/train/train-flags.h — the flags that train-gpt and train-vit share.
//
// Flags of the run decide what is computed: checkpoints store them, and a resumed run takes them from
// there. Flags of the session (devices, files, intervals) may change each time.
#pragma once

#include "ggml-train/run/schedule.h"
#include "models/lora.h"
#include "optim/optim.h"
#include "tools/cli/flags.h"

namespace gt {

// An adapter to train instead of the model's weights.
struct LoraFlags {
    int64_t     rank  = 0;
    float       alpha = 0.0f;
    std::string on;

    template <class Visit>
    void visit(Visit && visit) {
        visit("lora", rank, "rank of an adapter to train; 0: train the model", {}, 0, 65536);
        visit("lora-alpha", alpha, "the adapter counts alpha / rank; 0: twice the rank", {}, 0);
        visit(
            "lora-on", on,
            "matrices that get an adapter, such as attn_q,attn_v; default: all of the blocks"
        );
    }

    LoraConfig config() const {
        const float usual = 2.0f * static_cast<float>(rank);
        return {.rank = rank, .alpha = alpha > 0.0f ? alpha : usual, .on = on, .base = nullptr};
    }

    // These are the run's: a resumed run, or one with other hosts, may have others than the model was loaded with.
    void check(const LoraConfig & loaded) const {
        const LoraConfig its = config();
        if (its.rank != loaded.rank || its.alpha != loaded.alpha || its.on != loaded.on) {
            throw Error(format(
                "the run was started with --lora %lld --lora-alpha %g%s; add the same flags",
                static_cast<long long>(its.rank), its.alpha,
                its.on.empty() ? "" : (" --lora-on " + its.on).c_str()
            ));
        }
    }
};

// --published NAME sets the flags of a publication.
inline void visit_published(Flags & visit, std::string & published) {
    std::vector<std::string> names = {"none"};
    for (const Publication & row : publications()) {
        names.push_back(row.name);
        visit.expand("published", row.name, row.flags);
    }
    visit("published", published, "settings of a publication, to repeat its results", names);
}

struct TrainFlags {
    std::string model;
    std::string out;

    std::vector<std::string> data;
    bool                     pictures = false;  // no flags about tokens

    int64_t      batch = 0, micro = 0, context = 0, steps = 0, tokens = 0;
    double       epochs = 0.0, hours = 0.0;
    uint64_t     seed      = 1;
    float        clip      = 1.0f;
    float        smoothing = 0.0f;
    Schedule     schedule{.lr = 0.0f};
    std::string  published = "none";
    OptimOptions optim{.replicator = "auto"};

    int64_t     eval_every = 0, eval_batches = 0, save_every = 0, keep = 3, log_every = 10;
    int64_t     extend  = 0;
    int         threads = 0, ranks = 1, status = -1;
    std::string device = "auto", compute = "auto", shard = "auto";
    bool        portable = false, recompute = false, fresh = false, list_devices = false;
    std::string export_to, export_type = "f32", active_hours;
    bool        pause_when_busy   = false;
    bool        optimizer_on_host = false;
    double      power_limit       = 100.0;

    void visit_run(Flags & visit) {
        visit.group("Run (stored in checkpoints, the same on all hosts)");
        visit(
            "batch", batch,
            pictures ? "pictures per step on each host; 0: 128"
                     : "samples per step on each host; 0: about 8192 tokens"
        );
        visit(
            "context,c", context, pictures ? "" : "tokens per sample; 0: the model's, at most 2048"
        );
        visit(
            "steps", steps,
            pictures ? "number of weight updates, instead of --epochs"
                     : "number of weight updates; 0: from model and data"
        );
        visit("tokens", tokens, pictures ? "" : "number of training tokens, instead of --steps");
        visit(
            "epochs", epochs,
            pictures ? "passes over all pictures; 0: 20"
                     : "passes over the data, instead of --steps"
        );
        visit(
            "hours", hours, "approximate duration, instead of --steps; not with other hosts", {}, 0
        );
        visit("clip", clip, "maximum gradient norm; 0: no clipping", {}, 0);
        visit("smoothing", smoothing, "label smoothing", {}, 0, 0.99);
        visit("seed,s", seed, "seed of the sample order");
        visit.group("Learning rate");
        schedule.visit(visit);
        visit.refuse(
            "min-lr",
            "the final learning rate is given as a fraction of --lr: --min-lr-ratio 0.1 is a tenth"
        );
        visit.group("Optimizer and exchange between hosts");
        visit_published(visit, published);
        optim.visit(visit);
    }

    void visit_session(Flags & visit) {
        visit.group("Session");
        visit("out,o", out, "folder of the run; default: the model's name with -run");
        visit("export", export_to, "trained model; default: the run's name with -trained");
        visit(
            "export-type", export_type, "weight type of the trained model",
            {"f32", "f16", "bf16", "q8_0"}
        );
        visit("fresh", fresh, "start over; an existing run folder is renamed");
        visit("extend", extend, "continue a finished run for N more steps", {}, 0);
        visit(
            "micro", micro,
            "micro-batch size (must divide --batch); 0: as large as fits, at most batch/8 with "
            "other hosts",
            {}, 0
        );
        visit(
            "status", status, "port of the run's status page on 127.0.0.1; 0: any; -1: no page", {},
            -1, 65535
        );
        visit("threads,t", threads, "CPU threads; 0: all cores", {}, 0, 4096);
        visit(
            "power-limit", power_limit, "percent of the cores to use, if --threads is not given",
            {}, 1, 100
        );
        visit(
            "active-hours", active_hours, "train only then, such as 22:00-07:00; pause otherwise"
        );
        visit(
            "pause-when-busy", pause_when_busy,
            "pause while other programs use more than half of the cores"
        );
        visit(
            "ranks", ranks, "CPU ranks that share the work and the threads of this host", {}, 1,
            4096
        );
        visit(
            "shard", shard, "what the ranks shard; auto: as little as memory allows",
            {"auto", "none", "optimizer", "full"}
        );
        visit(
            "device", device,
            "auto: a GPU if there is one, else cpu; vulkan:0 or another backend's; or a rank per "
            "GPU: "
            "cuda:0,cuda:1"
        );
        visit("list-devices", list_devices, "show the devices that this program can use");
        visit.refuse(
            "b", "llama.cpp's -b is about prompts; name the samples per step with --batch"
        );
        visit.refuse("batch-size", "name the samples per step with --batch");
        visit.refuse("ub", "name the samples computed at once with --micro");
        visit.refuse("ubatch-size", "name the samples computed at once with --micro");
        visit(
            "compute", compute,
            "type of matrix products on devices, auto: bf16 on NVIDIA's since Ampere, else f32; "
            "weights stay F32",
            {"auto", "f32", "tf32", "bf16", "f16"}
        );
        visit("portable", portable, "use only ggml's own ops (slow)");
        visit(
            "recompute", recompute,
            "recompute activations in the backward pass: less memory, more time"
        );
        visit(
            "optimizer-on-host", optimizer_on_host,
            "keep the optimizer's state in host memory: gradients and weights are copied every step"
        );
        visit(
            "eval-every", eval_every,
            "steps between validations; 0: up to twenty per run, in a tenth of its time", {}, 0
        );
        visit(
            "eval-batches", eval_batches, "batches per validation; 0: 16, fewer in short runs", {},
            0
        );
        visit("save-every", save_every, "steps between checkpoints; 0: ten per run", {}, 0);
        visit("keep", keep, "number of checkpoints kept", {}, 1, 1e9);
        visit(
            "log-every", log_every, "steps between log lines if the output is not a terminal", {}, 0
        );
    }
};

// For messages.
inline std::string model_name(const TrainFlags & train) {
    return train.model.empty() ? "the run's model" : train.model;
}

// The flags with nothing left open: everything that is decided about a run before its first step. Made
// once, by settle.cpp; const from then on.
struct RunPlan : TrainFlags {
    int64_t       T            = 0;              // tokens per sample
    std::string   unit         = "tokens";       // counted in the log
    int64_t       n_per_sample = 0;              // units in one sample
    bool          logits       = false;          // validation needs logits, not only the loss
    bool          mixup = false, depth = false;  // used by the batches: see batch.h
    bool          packed          = false;       // the same
    float         dropout         = 0.0f;        // of an adapter
    bool          chose_recompute = false;       // not asked for: activations would not fit
    std::string   checkpoint;                    // to resume from; empty: start
    bool          owns_export = false;           // the run has written it before
    std::string   data_text;                     // for the summary: "1.02M tokens in 3 files, ..."
    int64_t       n_samples = 0;                 // in the training data
    std::string   lr_reason;                     // for the summary
    Flags::Values stored;                        // the flags, as checkpoints keep them
};

}  // namespace gt
