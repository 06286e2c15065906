#include "optim/tables.h"

#include "optim/device/device-rules.h"
#include "optim/on-graph.h"

namespace gt {

static std::unique_ptr<DeviceReplicator> chunks_on_device(
    const OptimOptions & o, const Units & units, Wire wire, Device & device, bool dct
) {
    return make_chunks_on_device(
        units, device, parse_chunk(o.chunk), [&](int64_t n) { return values_per_chunk(o, n); },
        wire, dct
    );
}

static std::unique_ptr<DeviceReplicator>
demo_on_device(const OptimOptions & o, const Units & units, Wire wire, Device & device) {
    return chunks_on_device(o, units, wire, device, true);
}

static std::unique_ptr<DeviceReplicator>
top_k_on_device(const OptimOptions & o, const Units & units, Wire wire, Device & device) {
    return chunks_on_device(o, units, wire, device, false);
}

static std::unique_ptr<DeviceReplicator>
rows_on_device(const OptimOptions &, const Units & units, Wire, Device & device) {
    return make_rows_on_device(units, device);
}

std::vector<ReplicatorRow> & replicators() {
    static std::vector<ReplicatorRow> rows = {
        {.id                   = 0,
         .name                 = "demo",
         .help                 = "the largest DCT coefficients of each chunk of the momentum",
         .scheme               = Scheme::momentum,
         .rule                 = "muon",
         .wire                 = "q4",
         .sparse               = true,
         .subtract_missed_mean = false,
         .make                 = make_demo,
         .on_device            = demo_on_device,
         .on_graph             = make_demo_on_graph},
        {.id        = 1,
         .name      = "random",
         .help      = "rows of the momentum, drawn at random each round",
         .scheme    = Scheme::momentum,
         .rule      = "muon",
         .wire      = "q8",
         .make      = make_random,
         .on_device = rows_on_device},
        {.id        = 2,
         .name      = "striding",
         .help      = "every n-th row of the momentum, shifted by one each round",
         .scheme    = Scheme::momentum,
         .rule      = "muon",
         .wire      = "q8",
         .make      = make_striding,
         .on_device = rows_on_device},
        {.id        = 3,
         .name      = "slicing",
         .help      = "a window of rows of the momentum that moves each round",
         .scheme    = Scheme::momentum,
         .rule      = "muon",
         .wire      = "q8",
         .make      = make_slicing,
         .on_device = rows_on_device},
        {.id        = 4,
         .name      = "full",
         .help      = "all gradients (baseline)",
         .scheme    = Scheme::gradient,
         .rule      = "adamw",
         .wire      = "fp32",
         .dense     = true,
         .make      = make_dense,
         .on_device = rows_on_device},
        {.id        = 5,
         .name      = "diloco",
         .help      = "local steps, then the change of all weights",
         .scheme    = Scheme::local_steps,
         .rule      = "adamw",
         .wire      = "q8",
         .every     = 30,
         .dense     = true,
         .make      = make_dense,
         .on_device = rows_on_device},
        {.id              = 6,
         .name            = "sparseloco",
         .help            = "local steps, then the largest changes of each chunk",
         .scheme          = Scheme::local_steps,
         .rule            = "adamw",
         .wire            = "q2",
         .every           = 30,
         .outer_lr        = 1.0f,
         .outer_momentum  = 0.0f,
         .sparse          = true,
         .decays_residual = true,
         .make            = make_top_k,
         .on_device       = top_k_on_device},
        {.id             = 8,
         .name           = "loco",
         .help           = "local steps; parts of the model take turns to exchange their change",
         .scheme         = Scheme::local_steps,
         .rule           = "muon",
         .wire           = "q2",
         .fragments      = 6,
         .wire_of_many   = "q1",
         .outer_lr       = 1.0f,
         .outer_momentum = 0.0f,
         .correction     = 0.3f,
         .restores_norm  = true,
         .make           = make_fragments,
         .on_device      = rows_on_device},
        {.id     = 7,
         .name   = "none",
         .help   = "nothing: each host trains alone (baseline)",
         .scheme = Scheme::local_steps,
         .rule   = "adamw",
         .wire   = "fp32"},
    };
    return rows;
}

static AdamOptions adam_options(const OptimOptions & o) {
    return {o.beta1, o.beta2, o.eps, o.moments == "q8"};
}

std::vector<RuleRow> & rules() {
    using Tensors                    = std::vector<RuleTensor>;
    static std::vector<RuleRow> rows = {
        {.name           = "sgd",
         .help           = "p -= lr·u, or lr·sign(u)",
         .whole_matrices = false,
         .signs_momentum = true,
         .lr_factor      = 1.0,
         .make           = [](const OptimOptions &, Tensors t) { return make_sgd(std::move(t)); },
         .on_device      = [](const OptimOptions &, Tensors t,
                         Device & device) { return make_sgd_on_device(std::move(t), device); }},
        {.name           = "adamw",
         .help           = "AdamW, with the update as its gradient",
         .whole_matrices = false,
         .signs_momentum = false,
         .lr_factor      = 1.0,
         .make           = [](const OptimOptions & o,
                    Tensors              t) { return make_adamw(std::move(t), adam_options(o)); },
         .on_device      = [](const OptimOptions & o, Tensors t, Device & device
                      ) { return make_adamw_on_device(std::move(t), adam_options(o), device); }},
        {.name           = "muon",
         .help           = "matrices by the orthogonalised update, other tensors by its sign",
         .whole_matrices = true,
         .signs_momentum = false,
         .lr_factor      = 4.0,  // measured by tests/bench/converge.py
         .make           = [](const OptimOptions & o,
                    Tensors t) { return make_muon(std::move(t), {.momentum = o.muon_momentum}); },
         .on_device =
             [](const OptimOptions & o, Tensors t, Device & device) {
                 return make_muon_on_device(std::move(t), {.momentum = o.muon_momentum}, device);
             }},
    };
    return rows;
}

}  // namespace gt
