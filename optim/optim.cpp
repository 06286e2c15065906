#include "optim/optim.h"

#include "ggml-train/cuda/demo.h"
#include "optim/average.h"
#include "optim/local-steps.h"
#include "optim/on-device.h"
#include "optim/tables.h"
#include "optim/wire/chunk-code.h"

#include <algorithm>
#include <cmath>

namespace gt {

// --- names -----------------------------------------------------------------------------------------

struct WireRow {
    Wire         wire;
    const char * name;
    const char * help;
};
static const std::vector<WireRow> kWires = {
    {Wire::fp32, "fp32", "32 bits per value"}, {Wire::fp16, "fp16", "16 bits per value"},
    {Wire::q8, "q8", "8 bits per value"},      {Wire::q4, "q4", "4 bits per value"},
    {Wire::q2, "q2", "2 bits per value"},      {Wire::q1, "q1", "1 bit per value"},
};

template <class Row>
static std::vector<NameAndHelp> names_of(const std::vector<Row> & rows) {
    std::vector<NameAndHelp> names;
    for (const Row & row : rows) {
        names.push_back({row.name, row.help});
    }
    return names;
}

std::vector<NameAndHelp> replicator_names() {
    return names_of(replicators());
}

std::vector<NameAndHelp> rule_names() {
    return names_of(rules());
}

std::vector<NameAndHelp> wire_names() {
    return names_of(kWires);
}

std::vector<std::string> choices(const std::vector<NameAndHelp> & names, bool with_auto) {
    std::vector<std::string> list(with_auto ? 1 : 0, "auto");
    for (const NameAndHelp & row : names) {
        list.push_back(row.name);
    }
    return list;
}

template <class Row>
static const Row &
find_row(const char * what, const std::vector<Row> & rows, const std::string & name) {
    for (const Row & row : rows) {
        if (row.name == name) {
            return row;
        }
    }
    std::string known;
    for (const Row & row : rows) {
        known += (known.empty() ? "" : ", ") + std::string(row.name);
    }
    throw Error(format("%s %s: there are %s", what, name.c_str(), known.c_str()));
}

// --- options with every "auto" resolved ------------------------------------------------------------

struct Resolved {
    const ReplicatorRow & replicator;
    const RuleRow &       rule;
    Wire                  wire;
    bool                  sign, restore_norm;
    float                 correction;
    uint64_t              every, fragments, overlap;
    ChunkTarget           chunk;

    bool sends() const { return replicator.make != nullptr; }
};

// The correction of one round, of which later ones add up to `sum`: what the momentum keeps of a round until
// the next one of the same fragment is decay^steps.
static float correction_of_round(float sum, float decay, uint64_t steps) {
    float kept = 1.0f;
    for (uint64_t i = 0; i < steps; ++i) {
        kept = kept * decay;
    }
    return sum * (1.0f - kept);
}

static bool is_on(const std::string & text, bool by_default) {
    return text == "auto" ? by_default : text == "on";
}

static Resolved resolve(const OptimOptions & o) {
    const ReplicatorRow & row   = find_row("replicator", replicators(), o.replicator);
    const RuleRow &       rule  = find_row("rule", rules(), o.rule == "auto" ? row.rule : o.rule);
    const bool            signs = row.scheme == Scheme::momentum && rule.signs_momentum;
    const uint64_t        every = o.every == 0 ? row.every : o.every;
    const uint64_t        fragments =
        row.fragments == 0 || o.fragments == 0 ? std::max<uint64_t>(1, row.fragments) : o.fragments;
    const char * const wire =
        fragments > kFewFragments && row.wire_of_many ? row.wire_of_many : row.wire;
    return {
        .replicator   = row,
        .rule         = rule,
        .wire         = find_row("wire", kWires, o.wire == "auto" ? wire : o.wire).wire,
        .sign         = is_on(o.sign, signs),
        .restore_norm = is_on(o.restore_norm, row.restores_norm),
        .correction   = o.correction >= 0.0f ? o.correction : row.correction,
        .every        = every,
        .fragments    = fragments,
        .overlap      = o.overlap < 0 ? every / 5 : static_cast<uint64_t>(o.overlap),
        .chunk        = parse_chunk(o.chunk)};
}

std::string default_replicator(bool alone) {
    return alone ? "none" : "loco";
}

double default_lr_factor(const OptimOptions & options) {
    return resolve(options).rule.lr_factor;
}

int shares_of(const OptimOptions & options) {
    constexpr int  kDense = 8;
    const Resolved r      = resolve(options);
    if (!r.sends() || options.shares >= 0) {
        return r.sends() ? static_cast<int>(options.shares) : 0;
    }
    return r.replicator.dense && mean_wire(r.wire, Group::dense) == r.wire ? kDense : 0;
}

int default_shares(const OptimOptions & options, size_t n_hosts) {
    constexpr size_t kFewest = 16, kMost = 32;
    const int        shares = shares_of(options);
    // means take a shard of each message and all means, instead of all messages: worth it if that is half
    const bool is_less = 2.0 * (1.0 + mean_ratio(options, n_hosts)) <= static_cast<double>(n_hosts);
    return shares > 0 || options.shares >= 0 || n_hosts < kFewest || !is_less ||
                   !resolve(options).sends()
               ? shares
               : static_cast<int>(std::min(n_hosts, kMost));
}

bool has_local_steps(const OptimOptions & options) {
    return resolve(options).replicator.scheme == Scheme::local_steps;
}

void check_options(const OptimOptions & o) {
    const Resolved r = resolve(o);
    for (const auto & [name, text] :
         {std::pair("sign-update", o.sign), std::pair("restore-norm", o.restore_norm)}) {
        if (text != "auto" && text != "on" && text != "off") {
            throw Error(name + (" " + text) + ": there are auto, on, off");
        }
    }
    if (o.moments != "f32" && (o.moments != "q8" || r.rule.name != std::string("adamw"))) {
        throw Error("moments " + o.moments + ": there are f32 and, for the rule adamw, q8");
    }
    if (o.top_k < 0) {
        throw Error("top-k must not be negative");
    }
    if (!(o.density > 0.0f && o.density <= 1.0f)) {
        throw Error("density must be above 0 and at most 1");
    }
    if (!(o.rate > 0.0f && o.rate <= 1.0f)) {
        throw Error("row-fraction must be above 0 and at most 1");
    }
    if (!(o.decay >= 0.0f && o.decay < 1.0f)) {
        throw Error("momentum-decay must be at least 0 and below 1");
    }
    if (!(o.subtract >= 0.0f && o.subtract <= 1.0f)) {
        throw Error("momentum-subtract must be at least 0 and at most 1");
    }
    if (o.correction > 1.0f) {
        throw Error("momentum-correction must be at most 1");
    }
    if (o.fragments > 1024) {
        throw Error("fragments must be at most 1024");
    }
    // local steps: the change since the last round must not be sent twice
    const uint64_t most =
        has_local_steps(o) ? std::min(r.every, r.every * r.fragments - 1) : r.every;
    if (r.sends() && r.overlap > most) {
        throw Error(format(
            "overlap must be at most %llu: %s exchanges every %llu steps",
            static_cast<unsigned long long>(most), o.replicator.c_str(),
            static_cast<unsigned long long>(r.every)
        ));
    }
}

int64_t values_per_chunk(const OptimOptions & options, int64_t n) {
    const double share = static_cast<double>(options.density) * static_cast<double>(n);
    return std::clamp<int64_t>(options.top_k > 0 ? options.top_k : std::llround(share), 1, n);
}

uint64_t steps_per_round(const OptimOptions & options) {
    const Resolved r = resolve(options);
    return r.sends() ? r.every : 1;
}

uint64_t overlap_of(const OptimOptions & options) {
    const Resolved r = resolve(options);
    return r.sends() ? r.overlap : 0;
}

uint64_t rounds_per_cycle(const OptimOptions & options) {
    return resolve(options).fragments;
}

// Digest of everything that determines the content of a message and its effect: hosts that train
// together must have the same one.
static uint64_t layout_digest(const OptimOptions & o, const Resolved & r, const Shapes & shapes) {
    // 32: the former default, so that the digests of other replicators stay
    std::string text = format(
        "%s %s %s %lld %.9g %.9g %.9g %llu %llu %d %.9g %.9g %d %.9g %.9g %.9g %.9g %.9g %.9g %llu",
        r.replicator.name, r.rule.name, o.chunk.c_str(),
        static_cast<long long>(o.top_k > 0 ? o.top_k : 32), o.rate, o.decay, o.residual_decay,
        static_cast<unsigned long long>(r.every), static_cast<unsigned long long>(o.seed), r.sign,
        o.clip_messages, o.weight_decay, o.decay_all, o.beta1, o.beta2, o.eps, o.muon_momentum,
        o.outer_lr, o.outer_momentum, static_cast<unsigned long long>(r.overlap)
    );
    text += o.subtract != 1.0f ? format(" subtract %.9g", o.subtract) : "";
    text += r.replicator.sparse && o.top_k == 0 ? format(" density %.9g", o.density) : "";
    text += r.correction > 0.0f ? format(" correction %.9g", r.correction) : "";
    text += o.moments != "f32" ? " moments " + o.moments : "";
    text += r.restore_norm ? " restore-norm" : "";
    text += r.replicator.fragments > 0
                ? format(" fragments %llu", static_cast<unsigned long long>(r.fragments))
                : "";
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

// --- construction ----------------------------------------------------------------------------------

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
             .lr     = kind.lr * param.rate,
             .decay  = decays ? o.weight_decay * kind.weight_decay : 0.0f}
        );
    }
    return tensors;
}

static std::unique_ptr<Layout>
make_layout(const OptimOptions & o, const Resolved & r, const Units & units) {
    const UpdateHead head{
        .replicator = r.replicator.id,
        .wire       = r.wire,
        .layout     = layout_digest(o, r, units.shapes())};
    OptimOptions settled = o;
    settled.fragments    = r.fragments;
    return std::make_unique<Layout>(
        units, head, r.every, r.replicator.make(settled, units.shapes(), r.wire)
    );
}

bool has_graph(const OptimOptions & o) {
    return resolve(o).replicator.on_graph != nullptr;
}

bool has_kernels(const OptimOptions & o) {
    const Resolved r = resolve(o);
    const bool     chunks_fit =
        r.wire != Wire::q1 && (r.chunk.flat ? 1 : r.chunk.rows) * r.chunk.cols <= cuda::kMaxChunk;
    return !r.sends() ||
           (r.replicator.on_device != nullptr && (!r.replicator.sparse || chunks_fit) &&
            (r.replicator.scheme != Scheme::momentum || o.subtract == 1.0f));
}

static std::unique_ptr<Optimizer> make_plain(
    const OptimOptions &   o,
    std::vector<ParamView> params,
    Workers &              workers,
    LocalGroup *           ranks,
    DctMomentum *          momentum
) {
    const Resolved r      = resolve(o);
    Device * const device = params.empty() ? nullptr : params[0].device;
    GT_CHECK(!device || has_kernels(o), "this replicator has no kernels for device memory");
    OptimizerParts parts;
    parts.ranks = ranks;
    parts.units = std::make_unique<Units>(make_units(o, std::move(params), workers));
    if (r.sends()) {
        parts.layout        = make_layout(o, r, *parts.units);
        parts.clip_messages = o.clip_messages;
    }
    std::vector<RuleTensor> tensors = rule_tensors(o, *parts.units);
    parts.rule                      = device ? r.rule.on_device(o, std::move(tensors), *device)
                                             : r.rule.make(o, std::move(tensors));
    if (momentum) {
        return r.replicator.on_graph(std::move(parts), o, r.wire, r.sign, *momentum);
    }
    if (device && !r.sends()) {
        return make_steps_on_device(std::move(parts), r.sign, *device);
    }
    std::unique_ptr<DeviceReplicator> on_device;
    if (device) {
        on_device = r.replicator.on_device(o, *parts.units, r.wire, *device);
    }
    if (!has_local_steps(o)) {
        const DecoupledOptions options{
            .decay                = o.decay,
            .fold_by_lr           = r.replicator.scheme == Scheme::momentum,
            .sign                 = r.sign,
            .subtract_missed_mean = r.replicator.subtract_missed_mean};
        return device ? make_decoupled_on_device(
                            std::move(parts), std::move(on_device), options, *device
                        )
                      : make_decoupled(std::move(parts), options);
    }
    return make_local_steps(
        std::move(parts),
        {.residual_decay = r.replicator.decays_residual ? o.residual_decay : 1.0f,
         .outer_lr       = o.outer_lr >= 0.0f ? o.outer_lr : r.replicator.outer_lr,
         .outer_momentum =
             o.outer_momentum >= 0.0f ? o.outer_momentum : r.replicator.outer_momentum,
         .restore_norm = r.restore_norm,
         .correction   = correction_of_round(r.correction, o.muon_momentum, r.every * r.fragments),
         .fragments    = r.fragments,
         .sign         = r.sign,
         .overlap      = r.overlap > 0},
        std::move(on_device), device
    );
}

std::unique_ptr<Optimizer> make_optimizer(
    const OptimOptions &   o,
    std::vector<ParamView> params,
    Workers &              workers,
    LocalGroup *           ranks,
    DctMomentum *          momentum
) {
    check_options(o);
    auto optimizer = make_plain(o, params, workers, ranks, momentum);
    return o.ema <= 0.0f
               ? std::move(optimizer)
               : with_average(
                     std::move(optimizer), std::move(params), o.ema, !resolve(o).sends(), workers
                 );
}

Units make_units(const OptimOptions & options, std::vector<ParamView> params, Workers & workers) {
    const Resolved r = resolve(options);
    return Units(std::move(params), r.chunk, r.rule.whole_matrices, workers);
}

int64_t cut_rows(const OptimOptions & options, const ParamView & param) {
    const Resolved r = resolve(options);
    return cut_rows(shape_of(param), r.chunk, r.rule.whole_matrices);
}

// --- sizes and checks of messages---------------------------------------------------------------------

// Units of a model without memory for weights and gradients.
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
    if (!r.sends()) {
        return 0;
    }
    const auto layout = make_layout(options, r, units);
    return layout->due(step) ? layout->offsets(layout->plan(step)).back() : 0;
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
    if (!r.sends()) {
        return "this replicator sends no messages";
    }
    Round round{.step = step};
    round.messages.push_back({.host = "", .bytes = Bytes(message.begin(), message.end())});
    const auto  layout = make_layout(options, r, units);
    const Inbox inbox(*layout, round, options.clip_messages);
    return inbox.refused().empty() ? "" : inbox.refused()[0].substr(2);
}

// --- shares --------------------------------------------------------------------------------------------

double mean_ratio(const OptimOptions & options, size_t n_hosts) {
    const Resolved r = resolve(options);
    if (!r.replicator.sparse) {
        return static_cast<double>(dense_bytes(mean_wire(r.wire, Group::dense), kLargestGroup)) /
               static_cast<double>(dense_bytes(r.wire, kLargestGroup));
    }
    const int64_t n     = (r.chunk.flat ? 1 : r.chunk.rows) * r.chunk.cols,
                  k     = values_per_chunk(options, n);
    const double unsent = std::pow(1.0 - static_cast<double>(k) / static_cast<double>(n), n_hosts);
    const auto   n_sent =
        std::clamp<int64_t>(std::llround((1.0 - unsent) * static_cast<double>(n)), k, n);
    return static_cast<double>(ChunkCode(mean_wire(r.wire, Group::sparse), n, n_sent).bytes()) /
           static_cast<double>(ChunkCode(r.wire, n, k).bytes());
}

struct Shares::Impl {
    Impl(const OptimOptions & o, const std::vector<ParamView> & params)
        : units(shapes_only(o, params, workers)), layout(make_layout(o, resolve(o), units)),
          clip(o.clip_messages) {}

    Workers                 workers{1};
    Units                   units;
    std::unique_ptr<Layout> layout;
    float                   clip;
};

Shares::Shares(const OptimOptions & options, const std::vector<ParamView> & params)
    : impl_(std::make_unique<Impl>(options, params)) {}
Shares::~Shares() = default;

std::vector<Bytes> Shares::split(std::span<const uint8_t> message, int n) const {
    return split_shares(*impl_->layout, message, n);
}

std::optional<Bytes> Shares::mean(std::span<const Message> shares) const {
    return mean_of_shares(*impl_->layout, shares, impl_->clip);
}

Round Shares::mean_round(const Round & round, int n) const {
    std::vector<std::vector<Message>> shares(static_cast<size_t>(n));
    for (const Message & message : round.messages) {
        auto parts = split(message.bytes, n);
        for (size_t j = 0; j < shares.size(); ++j) {
            shares[j].push_back({message.host, message.weight, std::move(parts[j])});
        }
    }
    Round means = round;
    means.messages.clear();
    means.in_shares = true;
    for (const std::vector<Message> & of_hosts : shares) {
        means.messages.push_back({.bytes = mean(of_hosts).value_or(Bytes())});
    }
    return means;
}

}  // namespace gt
