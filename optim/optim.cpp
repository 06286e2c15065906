#include "optim/optim.h"

#include "optim/decoupled.h"
#include "optim/local-steps.h"
#include "optim/on-device.h"

namespace gt {

// --- the tables: a replicator or a rule more is a row more --------------------------------------------

enum class Scheme { decoupled, dense, local };

struct ReplicatorRow {
    const char * name;
    const char * help;
    Scheme       scheme;
    const char * rule;  // where "auto" is asked for
    const char * wire;
    uint64_t     every;
    bool         averages;  // a mean of messages, in fp32, may stand for them (dense.h)
    std::unique_ptr<Replicator> (*make)(const OptimOptions &, const Shapes &, Wire);
};

static const ReplicatorRow kReplicators[] = {
    {"demo", "the largest DCT coefficients of each chunk of the momentum", Scheme::decoupled,
     "muon", "q4", 1, false,
     [](const OptimOptions & o, const Shapes & shapes, Wire wire) {
         return make_demo(shapes, parse_chunk(o.chunk), o.top_k, wire);
     }},
    {"random", "rows of the momentum, drawn anew each round", Scheme::decoupled, "muon", "q8", 1,
     false,
     [](const OptimOptions & o, const Shapes & shapes, Wire wire) {
         return make_random(shapes, o.rate, o.seed, wire);
     }},
    {"striding", "every n-th row, moving with the round", Scheme::decoupled, "muon", "q8", 1, false,
     [](const OptimOptions & o, const Shapes & shapes, Wire wire) {
         return make_striding(shapes, parse_chunk(o.chunk), o.rate, wire);
     }},
    {"slicing", "a window of rows, moving with the round", Scheme::decoupled, "muon", "q8", 1,
     false,
     [](const OptimOptions & o, const Shapes & shapes, Wire wire) {
         return make_slicing(shapes, parse_chunk(o.chunk), o.rate, wire);
     }},
    {"full", "all gradients, each round (baseline)", Scheme::dense, "adamw", "fp32", 1, true,
     [](const OptimOptions &, const Shapes & shapes, Wire wire) {
         return make_dense(shapes, wire);
     }},
    {"diloco", "local steps, then the change of all weights", Scheme::local, "adamw", "fp16", 30,
     true,
     [](const OptimOptions &, const Shapes & shapes, Wire wire) {
         return make_dense(shapes, wire);
     }},
    {"sparseloco", "local steps, then the largest changes of each chunk", Scheme::local, "adamw",
     "q2", 30, false,
     [](const OptimOptions & o, const Shapes & shapes, Wire wire) {
         return make_top_k(shapes, parse_chunk(o.chunk), o.top_k, wire);
     }},
    {"none", "nothing: each host trains on its own (baseline)", Scheme::local, "adamw", "fp32", 1,
     false, nullptr},
};

struct RuleRow {
    const char * name;
    const char * help;
    bool         whole_matrices;
    std::unique_ptr<Rule> (*make)(const OptimOptions &, std::vector<RuleTensor>);
    std::unique_ptr<Rule> (*on_device)(const OptimOptions &, std::vector<RuleTensor>, Device &);
};

static const RuleRow kRules[] = {
    {"sgd", "weights move by the update, or its sign", false,
     [](const OptimOptions &, std::vector<RuleTensor> tensors) {
         return make_sgd(std::move(tensors));
     },
     [](const OptimOptions &, std::vector<RuleTensor> tensors, Device & device) {
         return make_sgd_on_device(std::move(tensors), device);
     }},
    {"adamw", "the update plays the gradient of AdamW", false,
     [](const OptimOptions & o, std::vector<RuleTensor> tensors) {
         return make_adamw(std::move(tensors), {o.beta1, o.beta2, o.eps});
     },
     [](const OptimOptions & o, std::vector<RuleTensor> tensors, Device & device) {
         return make_adamw_on_device(std::move(tensors), {o.beta1, o.beta2, o.eps}, device);
     }},
    {"muon", "matrices by the update made orthogonal, the rest by its sign", true,
     [](const OptimOptions & o, std::vector<RuleTensor> tensors) {
         return make_muon(std::move(tensors), {.momentum = o.muon_momentum});
     },
     [](const OptimOptions & o, std::vector<RuleTensor> tensors, Device & device) {
         return make_muon_on_device(std::move(tensors), {.momentum = o.muon_momentum}, device);
     }},
};

static const std::vector<NameAndHelp> kWires = {
    {"fp32", "32 bits a value"}, {"fp16", "16 bits a value"}, {"q8", "8 bits a value"},
    {"q4", "4 bits a value"},    {"q2", "2 bits a value"},
};

template <class Row, size_t N>
static std::vector<NameAndHelp> names_of(const Row (&rows)[N]) {
    std::vector<NameAndHelp> names;
    for (const Row & row : rows) {
        names.push_back({row.name, row.help});
    }
    return names;
}

const std::vector<NameAndHelp> & replicator_names() {
    static const std::vector<NameAndHelp> names = names_of(kReplicators);
    return names;
}

const std::vector<NameAndHelp> & rule_names() {
    static const std::vector<NameAndHelp> names = names_of(kRules);
    return names;
}

const std::vector<NameAndHelp> & wire_names() {
    return kWires;
}

std::vector<std::string> choices(const std::vector<NameAndHelp> & names, bool with_auto) {
    std::vector<std::string> list(with_auto ? 1 : 0, "auto");
    for (const NameAndHelp & row : names) {
        list.push_back(row.name);
    }
    return list;
}

static size_t
find_name(const char * what, const std::vector<NameAndHelp> & names, const std::string & name) {
    std::string known;
    for (size_t i = 0; i < names.size(); ++i) {
        if (names[i].name == name) {
            return i;
        }
        known += (i == 0 ? "" : ", ") + names[i].name;
    }
    throw Error(format("%s %s: there are %s", what, name.c_str(), known.c_str()));
}

// --- options with nothing left open ----------------------------------------------------------------

struct Resolved {
    size_t                replicator_id;
    const ReplicatorRow * replicator;
    const RuleRow *       rule;
    Wire                  wire;
    bool                  sign;
    uint64_t              every;
    bool                  sends;  // not none, nor full without peers
    ChunkTarget           chunk;
};

static Resolved resolve(const OptimOptions & o) {
    Resolved r;
    r.replicator_id = find_name("replicator", replicator_names(), o.replicator);
    r.replicator    = &kReplicators[r.replicator_id];
    r.rule =
        &kRules[find_name("rule", rule_names(), o.rule == "auto" ? r.replicator->rule : o.rule)];
    r.wire =
        static_cast<Wire>(find_name("wire", kWires, o.wire == "auto" ? r.replicator->wire : o.wire)
        );
    const bool by_sign = r.replicator->scheme == Scheme::decoupled && r.rule == &kRules[0];
    r.sign             = o.sign == "auto" ? by_sign : o.sign == "on";
    r.every            = o.every == 0 ? r.replicator->every : o.every;
    r.sends = r.replicator->make != nullptr && !(o.alone && r.replicator->scheme == Scheme::dense);
    r.chunk = parse_chunk(o.chunk);
    return r;
}

std::string rule_of(const OptimOptions & options) {
    return resolve(options).rule->name;
}

void check_options(const OptimOptions & o) {
    const Resolved r = resolve(o);
    if (o.sign != "auto" && o.sign != "on" && o.sign != "off") {
        throw Error("sign " + o.sign + ": there are auto, on, off");
    }
    if (o.top_k < 1) {
        throw Error("top-k must be at least 1");
    }
    if (!(o.rate > 0.0f && o.rate <= 1.0f)) {
        throw Error("rate must be above 0 and at most 1");
    }
    if (!(o.decay >= 0.0f && o.decay < 1.0f)) {
        throw Error("decay must be at least 0 and below 1");
    }
    if (o.overlap && r.replicator->scheme == Scheme::local && r.sends && r.every < 2) {
        throw Error(o.replicator + " with overlap needs at least 2 steps per round");
    }
}

uint64_t steps_per_round(const OptimOptions & options) {
    const Resolved r = resolve(options);
    return r.sends ? r.every : 1;
}

// Equal on hosts that may train together: whatever decides the content of a message and its effect.
static uint64_t layout_digest(const OptimOptions & o, const Resolved & r, const Shapes & shapes) {
    std::string text = format(
        "%s %s %s %lld %.9g %.9g %.9g %llu %llu %d %d %.9g %d %.9g %.9g %.9g %.9g %.9g %.9g %d",
        r.replicator->name, r.rule->name, o.chunk.c_str(), static_cast<long long>(o.top_k), o.rate,
        o.decay, o.residual_decay, static_cast<unsigned long long>(r.every),
        static_cast<unsigned long long>(o.seed), r.sign, o.median_norm, o.weight_decay, o.decay_all,
        o.beta1, o.beta2, o.eps, o.muon_momentum, o.outer_lr, o.outer_momentum, o.overlap
    );
    for (const KindOptions & kind : {o.matrix, o.embedding, o.vector}) {
        text += format(" %.9g %.9g", kind.lr, kind.weight_decay);
    }
    for (const TensorShape & shape : shapes) {
        text += format(
            ";%s %lld %lld %d", shape.name.c_str(), static_cast<long long>(shape.rows),
            static_cast<long long>(shape.cols), static_cast<int>(shape.kind)
        );
    }
    return digest64(text);
}

// --- making one ------------------------------------------------------------------------------------

static std::vector<RuleTensor> rule_tensors(const OptimOptions & o, const Units & units) {
    std::vector<RuleTensor> tensors;
    for (size_t t = 0; t < units.shapes().size(); ++t) {
        const TensorShape & shape  = units.shapes()[t];
        const ParamView &   param  = units.params()[t];
        const KindOptions & kind   = shape.kind == ParamKind::matrix      ? o.matrix
                                     : shape.kind == ParamKind::embedding ? o.embedding
                                                                          : o.vector;
        const bool          decays = shape.kind != ParamKind::vector || o.decay_all;
        tensors.push_back(
            {.name   = shape.name,
             .weight = param.weight,
             .rows   = param.row_end - param.row_begin,
             .cols   = shape.cols,
             .kind   = shape.kind,
             .lr     = kind.lr,
             .decay  = decays ? o.weight_decay * kind.weight_decay : 0.0f}
        );
    }
    return tensors;
}

static std::unique_ptr<Messenger>
make_messenger(const OptimOptions & o, const Resolved & r, const Units & units) {
    MessengerOptions options;
    options.head.replicator = static_cast<uint8_t>(r.replicator_id);
    options.head.wire       = r.wire;
    options.head.layout     = layout_digest(o, r, units.shapes());
    options.every           = r.every;
    options.median_norm     = o.median_norm;
    auto own                = r.replicator->make(o, units.shapes(), r.wire);
    auto exact = r.replicator->averages ? make_dense(units.shapes(), Wire::fp32) : nullptr;
    return std::make_unique<Messenger>(units, options, std::move(own), std::move(exact));
}

bool has_kernels(const OptimOptions & o) {
    const Resolved r = resolve(o);
    return !r.sends || o.replicator == "demo";
}

std::unique_ptr<Optimizer>
make_optimizer(const OptimOptions & o, std::vector<ParamView> params, Workers & workers) {
    check_options(o);
    const Resolved r      = resolve(o);
    Device * const device = params.empty() ? nullptr : params[0].device;
    GT_CHECK(!device || has_kernels(o), "only what has kernels works in a device's memory");
    OptimizerParts parts;
    parts.units = std::make_unique<Units>(make_units(o, std::move(params), workers));
    if (r.sends) {
        parts.messenger = make_messenger(o, r, *parts.units);
    }
    if (device) {
        parts.rule = r.rule->on_device(o, rule_tensors(o, *parts.units), *device);
        return r.sends
                   ? make_demo_on_device(
                         std::move(parts), {.decay = o.decay, .fold_by_lr = true, .sign = r.sign},
                         {.chunk = r.chunk, .top_k = o.top_k, .wire = r.wire}, *device
                     )
                   : make_steps_on_device(std::move(parts), r.sign, *device);
    }
    parts.rule = r.rule->make(o, rule_tensors(o, *parts.units));
    if (r.sends && r.replicator->scheme != Scheme::local) {
        return make_decoupled(
            std::move(parts), {.decay      = o.decay,
                               .fold_by_lr = r.replicator->scheme == Scheme::decoupled,
                               .sign       = r.sign,
                               .made_up    = o.replicator != "demo"}
        );
    }
    const bool sparse = o.replicator == "sparseloco";
    return make_local_steps(
        std::move(parts), {.residual_decay = sparse ? o.residual_decay : 1.0f,
                           .outer_lr       = o.outer_lr >= 0.0f ? o.outer_lr
                                             : sparse           ? 1.0f
                                                                : 0.7f,
                           .outer_momentum = o.outer_momentum >= 0.0f ? o.outer_momentum
                                             : sparse                 ? 0.0f
                                                                      : 0.9f,
                           .sign           = r.sign,
                           .overlap        = o.overlap}
    );
}

Units make_units(const OptimOptions & options, std::vector<ParamView> params, Workers & workers) {
    const Resolved r = resolve(options);
    return Units(std::move(params), r.chunk, r.rule->whole_matrices, workers);
}

int64_t cut_rows(const OptimOptions & options, const ParamView & param) {
    const Resolved r = resolve(options);
    return cut_rows(shape_of(param), r.chunk, r.rule->whole_matrices);
}

// --- questions about messages ------------------------------------------------------------------------

// Units over a model of which only the shapes are known.
static Units
shapes_only(const OptimOptions & options, std::vector<ParamView> params, Workers & workers) {
    for (ParamView & param : params) {
        param.row_begin = param.row_end = 0;
        param.weight = param.grad = {};
    }
    return make_units(options, std::move(params), workers);
}

int64_t
message_bytes(const OptimOptions & options, const std::vector<ParamView> & params, uint64_t step) {
    const Resolved r = resolve(options);
    Workers        workers(1);
    const Units    units = shapes_only(options, params, workers);
    if (!r.sends) {
        return 0;
    }
    const auto messenger = make_messenger(options, r, units);
    return messenger->due(step) ? kHeadBytes + messenger->content_bytes(step) : 0;
}

std::string check_message(
    const OptimOptions &           options,
    const std::vector<ParamView> & params,
    uint64_t                       step,
    std::span<const uint8_t>       message
) {
    const Resolved r = resolve(options);
    Workers        workers(1);
    const Units    units = shapes_only(options, params, workers);
    if (!r.sends) {
        return "this replicator sends none";
    }
    Round round{.round = step};
    round.messages.push_back({.host = "", .bytes = Bytes(message.begin(), message.end())});
    const Inbox inbox = make_messenger(options, r, units)->open(round);
    return inbox.refused.empty() ? "" : inbox.refused[0].substr(2);
}

}  // namespace gt
