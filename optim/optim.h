// optim/optim.h — the public interface of optim/: options, the names of their values, make_optimizer.
//
//   Workers      workers(8);
//   OptimOptions options{.replicator = "demo", .rule = "sgd", .top_k = 32};
//   auto         optimizer = make_optimizer(options, params, workers);
//   Prepared     ours      = optimizer->prepare(step, lr, {.max_norm = 1.0f});
//   peers.publish(step, n_samples, ours.message);
//   optimizer->apply(peers.collect(step).round);
//
// Read next: decoupled.h (demo and other momentum replicators), local-steps.h (diloco, sparseloco).
#pragma once

#include "optim/math/chunk.h"

#include <memory>
#include <optional>

namespace gt {

class DctMomentum;
class LocalGroup;

struct NameAndHelp {
    std::string name, help;
};
std::vector<NameAndHelp> replicator_names();
std::vector<NameAndHelp> rule_names();
std::vector<NameAndHelp> wire_names();

// Settings of a publication, as flags.
struct Publication {
    std::string name, flags;
};
const std::vector<Publication> & publications();

// The names alone, optionally preceded by "auto": the choices of a flag.
std::vector<std::string> choices(const std::vector<NameAndHelp> & names, bool with_auto);

// Factors for one kind of tensor.
struct KindOptions {
    float lr           = 1.0f;  // on the learning rate
    float weight_decay = 1.0f;  // on the weight decay
};

struct OptimOptions {
    std::string replicator = "demo";
    std::string rule       = "auto";  // the replicator's default; see tables.cpp
    std::string sign       = "auto";  // on for sgd behind demo, random, striding, slicing
    std::string wire       = "auto";  // the replicator's default: the narrowest that keeps the loss
    std::string chunk      = "64x64";     // rows x columns, or one number: flat chunks
    float       density    = 1.0f / 128;  // demo, sparseloco: fraction of the values sent
    int64_t     top_k      = 0;      // demo, sparseloco: values per chunk, as published; 0: density
    float       rate       = 0.1f;   // random, striding, slicing: fraction of the rows sent
    float       decay      = 0.95f;  // of the momentum, per step
    float       subtract   = 1.0f;   // demo: fraction of what was sent that leaves the momentum
    uint64_t    every      = 0;      // steps per round; 0: the replicator's default
    uint64_t    seed       = 0;      // random: of the choice of rows
    uint64_t    fragments  = 0;      // loco: parts of the model that take turns; 0: its default

    float       residual_decay = 0.95f;   // sparseloco: of the unsent remainder, per round
    float       outer_lr       = -1.0f;   // below 0: the replicator's default
    float       outer_momentum = -1.0f;   // below 0: the replicator's default
    float       correction     = -1.0f;   // below 0: the replicator's default
    std::string restore_norm   = "auto";  // of the mean change of a round; on for loco

    float       weight_decay = 0.1f;
    bool        decay_all    = false;                      // decay vectors, too
    float       beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f;  // adamw
    std::string moments       = "f32";  // of adamw; q8: 8 bits and a scale per block (moments.h)
    float       muon_momentum = 0.9f;
    KindOptions matrix, embedding, vector;

    float   clip_messages = 2.0f;  // most norm of a message, times the round's median; 0: any
    int64_t shares        = -1;  // that hosts average a round in; below 0: the replicator's default
    int64_t overlap       = -1;  // a round is applied after the prepare of this many steps
                                 // later; below 0: the replicator's default
    float ema = 0.0f;            // decay of a running average of the weights; 0: none

    // The flags of the optimizer: every field. All hosts of a run must agree on them. "new,old": the
    // second name is an alias.
    template <class Visit>
    void visit(Visit && visit) {
        visit(
            "replicator", replicator,
            "compression between hosts; auto: loco, or none without other hosts",
            choices(replicator_names(), true)
        );
        visit(
            "rule", rule,
            "update rule; auto: adamw for full, diloco, sparseloco, none, otherwise muon",
            choices(rule_names(), true)
        );
        visit(
            "wire", wire, "type of the values sent; auto: by replicator",
            choices(wire_names(), true)
        );
        visit(
            "steps-per-round,every", every,
            "steps between exchanges; 0: 30 for diloco and sparseloco, otherwise 1"
        );
        visit(
            "fragments", fragments,
            "loco: parts of the model that take turns, one each round; 0: 6, or more to keep to "
            "--up-limit and --day-cap"
        );
        visit(
            "overlap", overlap,
            "steps that a round travels while the next gradients are computed; -1: a fifth of "
            "those between two exchanges",
            {}, -1
        );
        visit(
            "shares", shares,
            "shares of each message: a host averages one of all hosts', and fetches the means of "
            "the "
            "others; 0: it fetches all messages; -1: from 16 hosts in hosts.txt on their number, "
            "if "
            "that halves what a host receives (full, diloco: 8)",
            {}, -1, 1024
        );
        visit("chunk", chunk, "demo, sparseloco: chunk of a matrix (64x64) or flat tensor (4096)");
        visit("density", density, "demo, sparseloco: fraction of the values sent", {}, 0, 1);
        visit(
            "top-k", top_k,
            "demo, sparseloco: values sent per chunk, whatever its size; 0: by --density", {}, 0
        );
        visit("row-fraction,rate", rate, "random, striding, slicing: fraction of the rows sent");
        visit("row-seed", seed, "random: seed of the choice of rows");
        visit("momentum-decay", decay, "demo, random, striding, slicing: momentum decay per step");
        visit(
            "momentum-subtract", subtract,
            "demo: fraction of what was sent that leaves the momentum (second version: 0.2)", {}, 0,
            1
        );
        visit("sign-update,sign", sign, "apply only the sign of the update", {"auto", "on", "off"});
        visit(
            "clip-messages", clip_messages,
            "largest norm of a host's message, times the round's median; 0: no limit"
        );
        visit(
            "residual-decay", residual_decay, "sparseloco: decay of the unsent remainder per round"
        );
        visit(
            "outer-lr", outer_lr, "local steps: learning rate of a round; -1: 0.7 (diloco) or 1",
            {}, -1
        );
        visit(
            "outer-momentum", outer_momentum,
            "local steps: momentum over rounds; -1: 0.9 (diloco) or 0", {}, -1, 1
        );
        visit(
            "restore-norm", restore_norm,
            "diloco, sparseloco, loco: give a round's mean change the norm of the hosts' changes",
            {"auto", "on", "off"}
        );
        visit(
            "momentum-correction", correction,
            "local steps with muon: how far rounds turn a host's momentum to the mean change, in "
            "all; -1: 0.3 (loco) or 0",
            {}, -1, 1
        );
        visit(
            "ema", ema,
            "decay of a running average of the weights, such as 0.999, which is validated and "
            "exported; 0: none",
            {}, 0, 0.999999
        );
        visit("weight-decay", weight_decay, "weight decay of matrices and embeddings");
        visit("decay-all", decay_all, "apply weight decay to vectors, too");
        visit("beta1", beta1, "AdamW first-moment decay", {}, 0, 1);
        visit("beta2", beta2, "AdamW second-moment decay", {}, 0, 1);
        visit("eps", eps, "AdamW denominator offset");
        visit(
            "moments", moments, "type of AdamW's moments; q8: 8 bits, a quarter of the memory",
            {"f32", "q8"}
        );
        visit("muon-momentum", muon_momentum, "Muon momentum", {}, 0, 1);
        visit("matrix-lr", matrix.lr, "learning rate factor for matrices");
        visit("embedding-lr", embedding.lr, "learning rate factor for embeddings");
        visit("vector-lr", vector.lr, "learning rate factor for vectors");
        visit("matrix-weight-decay", matrix.weight_decay, "weight decay factor for matrices");
        visit(
            "embedding-weight-decay", embedding.weight_decay, "weight decay factor for embeddings"
        );
        visit("vector-weight-decay", vector.weight_decay, "weight decay factor for vectors");
    }
};

// What "auto" means for --replicator.
std::string default_replicator(bool alone);

// The update rule's factor on the default learning rate, which is AdamW's.
double default_lr_factor(const OptimOptions & options);

// In how many shares hosts average the messages of a round (wire/shares.h); 0: each host fetches all. By default
// 8 for messages of all values in a type that is not rounded again: only their means are as small as messages.
int shares_of(const OptimOptions & options);

// The same for a run that begins with N hosts: N shares, at most 32, from 16 hosts on, if that at
// least halves what a host receives.
int default_shares(const OptimOptions & options, size_t n_hosts);

// Whether hosts update their own weights between rounds, so that weights differ there.
bool has_local_steps(const OptimOptions & options);

// Throws Error if a name is unknown or a number out of range.
void check_options(const OptimOptions & options);

// Whether the optimizer works on tensors in device memory; otherwise the caller copies tensors to the host
// and back every step.
bool has_kernels(const OptimOptions & options);

// Whether the momentum can stay on a device that runs ggml's ops only (demo): pass it to make_optimizer.
bool has_graph(const OptimOptions & options);

// Steps between exchanges: hosts have equal weights after each multiple of it. 1 without exchanges.
uint64_t steps_per_round(const OptimOptions & options);

// Steps that a round may travel before it is applied: at most steps_per_round.
uint64_t overlap_of(const OptimOptions & options);

// Rounds after which every weight has been exchanged once; the sizes of messages repeat then.
uint64_t rounds_per_cycle(const OptimOptions & options);

// An optimizer over this rank's rows of all tensors of the model, in the same order on every rank and
// host. The spans, the workers and the ranks must outlive it.
// ranks: the ranks that own the other rows; null: prepare returns this rank's part.
// momentum: null, or where it is instead of in host memory, with the gradients.
// REQUIRES: has_kernels(options), if the tensors are in device memory; has_graph(options) with momentum.
std::unique_ptr<Optimizer> make_optimizer(
    const OptimOptions &   options,
    std::vector<ParamView> params,
    Workers &              workers,
    LocalGroup *           ranks    = nullptr,
    DctMomentum *          momentum = nullptr
);

// demo, sparseloco: the values sent of a chunk of n.
int64_t values_per_chunk(const OptimOptions & options, int64_t n);

// A tensor may be cut into shards at multiples of this number of rows (see ParamView).
int64_t cut_rows(const OptimOptions & options, const ParamView & param);

// Bytes of a host's message for the round of `step`; 0 if there is none. weight and grad of the params
// may be empty.
int64_t
message_bytes(const OptimOptions & options, const std::vector<ParamView> & params, uint64_t step);

// Returns why apply would skip this message in the round of `step`, or an empty string.
std::string check_message(
    const OptimOptions &           options,
    const std::vector<ParamView> & params,
    uint64_t                       step,
    std::span<const uint8_t>       message
);

// Bytes of the means of n hosts' messages, in shares, for each byte of a message; if hosts send the largest values of
// chunks, at most: as if each chose them by itself.
double mean_ratio(const OptimOptions & options, size_t n_hosts);

// Averages the messages of a round in shares (wire/shares.h).
class Shares {
public:
    // weight and grad of the params may be empty.
    Shares(const OptimOptions & options, const std::vector<ParamView> & params);
    ~Shares();

    std::vector<Bytes> split(std::span<const uint8_t> message, int n) const;

    // The mean of the same share of several hosts, in commit order. Nothing: all are malformed.
    std::optional<Bytes> mean(std::span<const Message> shares) const;

    // What the hosts of a run make of a round of whole messages.
    Round mean_round(const Round & round, int n) const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Gradient norm. Parts are sums of squares, one per unit of cut_rows rows, over the whole model in
// order. A rank fills in the parts of its rows and zero elsewhere; the sum over ranks has the same bits
// for any number of ranks and threads.
int64_t grad_norm_parts(const OptimOptions & options, const std::vector<ParamView> & params);
void    grad_norm(
       const OptimOptions &           options,
       const std::vector<ParamView> & params,
       Workers &                      workers,
       std::span<double>              parts
   );
double grad_norm(std::span<const double> parts);
double
grad_norm(const OptimOptions & options, const std::vector<ParamView> & params, Workers & workers);

}  // namespace gt
