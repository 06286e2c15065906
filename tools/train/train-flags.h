// tools/train/train-flags.h — the flags that train-gpt and train-vit share.
//
// Flags of the run decide what is computed: checkpoints store them, and a resumed run takes them from
// there. Flags of the session (devices, files, intervals) may change each time.
#pragma once

#include "ggml-train/run/schedule.h"
#include "optim/optim.h"
#include "tools/cli/flags.h"

namespace gt {

struct TrainFlags {
    std::string model;
    std::string out;

    std::vector<std::string> data;

    int64_t      batch = 0, micro = 0, context = 0, steps = 0, tokens = 0;
    double       hours     = 0.0;
    uint64_t     seed      = 1;
    float        clip      = 1.0f;
    float        smoothing = 0.0f;
    Schedule     schedule{.lr = 0.0f};
    OptimOptions optim{.replicator = "auto"};

    int64_t     eval_every = 0, eval_batches = 0, save_every = 0, keep = 3, log_every = 10;
    int64_t     extend  = 0;
    int         threads = 0, ranks = 1;
    std::string device = "cpu", compute = "f32", shard = "auto";
    bool        portable = false, recompute = false, fresh = false;
    std::string export_to, export_type = "f32";

    void visit_run(Flags & visit) {
        visit.group("Run (stored in checkpoints, the same on all hosts)");
        visit("batch", batch, "samples per step on each host; 0: about 8192 tokens", {}, 0);
        visit("context,c", context, "tokens per sample; 0: the model's context length", {}, 0);
        visit(
            "steps", steps,
            "number of weight updates; 0: from --tokens or --hours, else from model and data size",
            {}, 0
        );
        visit("tokens", tokens, "number of training tokens, instead of --steps", {}, 0);
        visit(
            "hours", hours, "approximate duration, instead of --steps; not with other hosts", {}, 0
        );
        visit("clip", clip, "maximum gradient norm; 0: no clipping", {}, 0);
        visit("smoothing", smoothing, "label smoothing", {}, 0, 0.99);
        visit("seed,s", seed, "seed of the sample order");
        visit.group("Learning rate");
        schedule.visit(visit);
        visit.group("Optimizer and exchange between hosts");
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
        visit("threads,t", threads, "CPU threads; 0: all cores", {}, 0, 4096);
        visit(
            "ranks", ranks, "CPU ranks that share the work and the threads of this host", {}, 1,
            4096
        );
        visit(
            "shard", shard, "what the ranks shard; auto: as little as memory allows",
            {"auto", "none", "optimizer", "full"}
        );
        visit(
            "device", device, "cpu, vulkan:0 or another backend's, or a rank per GPU: cuda:0,cuda:1"
        );
        visit(
            "compute", compute, "type of matrix products on devices; weights stay F32",
            {"f32", "tf32", "bf16", "f16"}
        );
        visit("portable", portable, "use only ggml's own ops (slow)");
        visit(
            "recompute", recompute,
            "recompute activations in the backward pass: less memory, more time"
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

// The flags with nothing left open: everything that is decided about a run before its first step. Made
// once, by settle.cpp; const from then on.
struct RunPlan : TrainFlags {
    int64_t       T            = 0;              // tokens per sample
    std::string   unit         = "tokens";       // counted in the log
    int64_t       n_per_sample = 0;              // units in one sample
    bool          logits       = false;          // validation needs logits, not only the loss
    bool          mixup = false, depth = false;  // used by the batches: see batch.h
    std::string   checkpoint;                    // to resume from; empty: start
    bool          owns_export = false;           // the run has written it before
    std::string   data_text;                     // for the summary: "1.02M tokens in 3 files, ..."
    int64_t       n_samples = 0;                 // in the training data
    std::string   lr_reason;                     // for the summary
    Flags::Values stored;                        // the flags, as checkpoints keep them
};

}  // namespace gt
