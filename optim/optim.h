// optim/optim.h — all that the rest of the program needs of optim/: options, names, make_optimizer.
//
//   Workers      workers(8);
//   OptimOptions options{.replicator = "demo", .rule = "sgd", .top_k = 32};
//   auto         optimizer = make_optimizer(options, params, workers);
//   Bytes        message   = optimizer->prepare(step, lr, 1.0f);   // to the peers
//   optimizer->apply(round);                                       // what they all sent
//
// Read next: decoupled.h (momentum stays, a part travels), local-steps.h (diloco and the like).
#pragma once

#include "optim/chunk.h"

namespace gt {

struct NameAndHelp {
    std::string name, help;
};
const std::vector<NameAndHelp> & replicator_names();
const std::vector<NameAndHelp> & rule_names();
const std::vector<NameAndHelp> & wire_names();

// The names alone, "auto" before them if asked for: the choices of a flag.
std::vector<std::string> choices(const std::vector<NameAndHelp> & names, bool with_auto);

// Factors for one kind of tensor.
struct KindOptions {
    float lr           = 1.0f;  // on the learning rate of the rule
    float weight_decay = 1.0f;  // on the weight decay
};

struct OptimOptions {
    std::string replicator = "demo";
    std::string rule       = "auto";   // muon; adamw for full, none, diloco, sparseloco
    std::string sign       = "auto";   // on for sgd behind demo, random, striding, slicing
    std::string wire       = "auto";   // the narrowest that keeps the loss; table in optim.cpp
    std::string chunk      = "64x64";  // rows x columns, or one number: flat chunks
    int64_t     top_k      = 32;       // demo, sparseloco: kept per chunk
    float       rate       = 0.1f;     // random, striding, slicing: part of the rows
    float       decay      = 0.95f;    // of the momentum
    uint64_t    every      = 0;        // steps per round; 0: 1, or 30 for diloco and sparseloco
    uint64_t    seed       = 0;        // random: of the rows

    float residual_decay = 0.95f;  // sparseloco: of what was not sent
    float outer_lr       = -1.0f;  // below 0: diloco 0.7, sparseloco 1
    float outer_momentum = -1.0f;  // below 0: diloco 0.9, sparseloco 0

    float       weight_decay = 0.1f;
    bool        decay_all    = false;                      // vectors too
    float       beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f;  // adamw
    float       muon_momentum = 0.9f;  // of merged updates, where matrices are made orthogonal
    KindOptions matrix, embedding, vector;

    bool median_norm = false;  // scale each host's message to the median norm of the round
    bool overlap     = false;  // a round is applied after the next step's prepare
    bool alone       = false;  // no peers: full needs no message, its step is one pass over memory

    // Every setting that a run's hosts share, as flags; seed, overlap and alone are the tool's.
    template <class Visit>
    void visit(Visit && visit) {
        visit("replicator", replicator, "what hosts send", choices(replicator_names(), false));
        visit("rule", rule, "how weights move; auto: by replicator", choices(rule_names(), true));
        visit("sign", sign, "only the sign of an update counts", {"auto", "on", "off"});
        visit("wire", wire, "type of the values sent", choices(wire_names(), true));
        visit("chunk", chunk, "demo, sparseloco: ROWSxCOLUMNS of a chunk, or elements");
        visit("top-k", top_k, "demo, sparseloco: values sent per chunk");
        visit("rate", rate, "random, striding, slicing: part of the rows sent");
        visit(
            "momentum-decay", decay, "demo, random, striding, slicing: of the momentum, per step"
        );
        visit("every", every, "steps per round; 0: 1, or 30 for diloco and sparseloco");
        visit("residual-decay", residual_decay, "sparseloco: of what was not sent, per round");
        visit("outer-lr", outer_lr, "diloco, sparseloco: rate of a round; -1: 0.7, 1");
        visit("outer-momentum", outer_momentum, "diloco, sparseloco: of rounds; -1: 0.9, 0");
        visit("weight-decay", weight_decay, "of matrices and embeddings, times the rate");
        visit("decay-all", decay_all, "weight decay on vectors too");
        visit("beta1", beta1, "adamw: decay of the first moment");
        visit("beta2", beta2, "adamw: decay of the second moment");
        visit("eps", eps, "adamw: added to the root of the second moment");
        visit("muon-momentum", muon_momentum, "muon: decay of the sum of updates");
        visit("matrix-lr", matrix.lr, "factor on the rate for matrices");
        visit("embedding-lr", embedding.lr, "factor on the rate for embeddings");
        visit("vector-lr", vector.lr, "factor on the rate for vectors");
        visit("median-norm", median_norm, "scale each host's message to the round's median norm");
    }
};

// The rule that is meant where the options say "auto".
std::string rule_of(const OptimOptions & options);

// Throws Error if a name or number in the options makes no sense.
void check_options(const OptimOptions & options);

// Whether its optimizer can work on tensors in a device's memory, by our kernels (demo, and steps
// without peers); else a device's tensors must be copied to the host and back.
bool has_kernels(const OptimOptions & options);

// Hosts hold equal weights after every so many steps: a run is a whole number of rounds.
uint64_t steps_per_round(const OptimOptions & options);

// An optimizer over the given shards (all tensors of the model in the same order on every rank and
// host, the rows that this rank owns). The spans and the workers must outlive it.
// REQUIRES: has_kernels(options), if the tensors are in a device's memory.
std::unique_ptr<Optimizer>
make_optimizer(const OptimOptions & options, std::vector<ParamView> params, Workers & workers);

// At multiples of how many rows (see ParamView) a tensor may be cut into shards.
int64_t cut_rows(const OptimOptions & options, const ParamView & param);

// Bytes of a host's message in the round of `step`; 0 if it sends none then. weight and grad of the
// params may be empty.
int64_t
message_bytes(const OptimOptions & options, const std::vector<ParamView> & params, uint64_t step);

// Why a message for the round of `step` would be refused, or an empty string. apply does the same and
// leaves such messages out; this tells a log why.
std::string check_message(
    const OptimOptions &           options,
    const std::vector<ParamView> & params,
    uint64_t                       step,
    std::span<const uint8_t>       message
);

// Gradient norm. Parts are sums of squares, one per unit of cut_rows rows, over the whole model in
// order; a rank fills in those of its rows and leaves zero elsewhere, so that ranks add theirs up
// and every one gets the same bits, whatever the number of ranks and threads.
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
