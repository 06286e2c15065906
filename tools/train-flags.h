// tools/train-flags.h — everything one can say to train-gpt and train-vit, in one table.
//
// Flags of the run decide what is computed: they are kept in its checkpoints, and a run that goes
// on takes them from there. Flags of the session (threads, folder, intervals) may change each time.
#pragma once

#include "ggml-train/schedule.h"
#include "optim/optim.h"

namespace gt {

struct TrainFlags {
    std::string model;
    std::string data;
    std::string out;

    int64_t      batch = 0, micro = 0, context = 0, steps = 0, tokens = 0;
    double       hours     = 0.0;
    uint64_t     seed      = 1;
    float        clip      = 1.0f;
    float        smoothing = 0.0f;
    Schedule     schedule{.lr = 0.0f};
    OptimOptions optim{.replicator = "auto"};
    std::string  overlap = "0";

    int64_t     eval_every = 0, eval_batches = 16, save_every = 0, keep = 3, log_every = 10;
    int         threads = 0, ranks = 1;
    std::string device = "cpu", compute = "f32", shard = "auto";
    bool        portable = false, recompute = false, fresh = false;
    std::string export_to, export_type = "f32";

    // What is computed.
    template <class Visit>
    void visit_run(Visit && visit) {
        visit("batch", batch, "samples per step and host; 0: about 8192 tokens");
        visit("context", context, "tokens per sample; 0: as the model was made for");
        visit(
            "steps", steps, "weight updates; 0: see --tokens, --hours, else by model and data size"
        );
        visit("tokens", tokens, "train on so many tokens instead of --steps");
        visit("hours", hours, "train for about so long instead of --steps");
        schedule.visit(visit);
        visit("clip", clip, "largest norm of the gradient; 0: no limit");
        visit("smoothing", smoothing, "label smoothing");
        visit("seed", seed, "of the order of the samples");
        visit_optim(visit);
    }

    template <class Visit>
    void visit_optim(Visit && visit) {
        visit(
            "replicator", optim.replicator,
            "what hosts tell one another: auto (alone: none), " + names(replicator_names())
        );
        visit("rule", optim.rule, "how weights follow: auto, " + names(rule_names()));
        visit("weight-decay", optim.weight_decay, "of matrices and embeddings");
        visit("beta1", optim.beta1, "adamw: memory of the gradient");
        visit("beta2", optim.beta2, "adamw: memory of its square");
        visit("wire", optim.wire, "numbers on the wire: auto, " + names(wire_names()));
        visit(
            "chunk", optim.chunk, "demo: chunk of a matrix (64x64), or of the flat tensor (4096)"
        );
        visit("top-k", optim.top_k, "demo: coefficients sent per chunk");
        visit("rate", optim.rate, "random, striding, slicing: share of the rows sent");
        visit("momentum-decay", optim.decay, "of the momentum that stays");
        visit("every", optim.every, "steps per round; 0: 1, or 30 for diloco and sparseloco");
        visit(
            "overlap", overlap, "1: a round travels while the next gradient is computed", {"0", "1"}
        );
        visit("sign", optim.sign, "update by sign only", {"auto", "on", "off"});
    }

    static std::string names(const std::vector<NameAndHelp> & list) {
        std::string text;
        for (const NameAndHelp & row : list) {
            text += (text.empty() ? "" : ", ") + row.name;
        }
        return text;
    }

    // How it is computed, shown and kept.
    template <class Visit>
    void visit_session(Visit && visit) {
        visit("out,o", out, "folder of the run; default: the model's name with -run");
        visit("export", export_to, "trained model; default: the model's name with -trained");
        visit("export-type", export_type, "its weights", {"f32", "f16", "bf16", "q8_0"});
        visit("fresh", fresh, "start over; the run that is there is set aside");
        visit(
            "micro", micro,
            "samples computed at once, a divisor of --batch; 0: what fits, together at most an "
            "eighth"
        );
        visit("threads,t", threads, "CPU threads; 0: all cores");
        visit("ranks", ranks, "workers in this host that share each step, and its threads");
        visit(
            "shard", shard, "what ranks divide between them; auto: by memory",
            {"auto", "none", "optimizer", "full"}
        );
        visit("device", device, "where to compute: cpu, or GPUs, a rank each: cuda:0,cuda:1,...");
        visit(
            "compute", compute, "type of products with weights, on devices; weights stay F32",
            {"f32", "bf16", "f16"}
        );
        visit("portable", portable, "ggml's own ops only, no kernels of ours (slow)");
        visit("recompute", recompute, "keep only the inputs of the blocks: less memory, more time");
        visit("eval-every", eval_every, "steps between evaluations; 0: twenty in all");
        visit("eval-batches", eval_batches, "batches per evaluation");
        visit("save-every", save_every, "steps between checkpoints; 0: ten in all");
        visit("keep", keep, "checkpoints kept");
        visit("log-every", log_every, "steps between lines when the output is no terminal");
    }
};

}  // namespace gt
