#include "tools/train-rank.h"

#include "optim/codec.h"
#include "tools/check-ranks.h"

#include <algorithm>
#include <cstdlib>

namespace gt {

WholeWeights::WholeWeights(const HostState & state) {
    for (const HostTensor & weight : state.weights) {
        const Floats & first = weight.pieces[0].copies[0];
        if (weight.pieces.size() == 1 && !first.device) {
            views.push_back({weight.name, first.values});
            continue;
        }
        copies.emplace_back();
        for (const HostTensor::Piece & piece : weight.pieces) {
            const HostView view = piece.view();
            copies.back().insert(copies.back().end(), view.values().begin(), view.values().end());
        }
        views.push_back({weight.name, copies.back()});
    }
}

double test_step_seconds() {
    const char * text = std::getenv("GT_TEST_STEP_SECONDS");
    return text ? std::strtod(text, nullptr) : 0.0;
}

// A rank's share of the host's threads.
static int rank_threads(int n_threads, const LocalGroup & ranks) {
    return std::max(1, n_threads / ranks.size());
}

// CPU ranks share one device.
static DeviceSpec device_of(const std::string & devices, int rank) {
    const std::vector<DeviceSpec> specs = parse_devices(devices);
    return specs.size() == 1 ? specs[0] : specs[static_cast<size_t>(rank)];
}

Form form_of(const TrainFlags & f) {
    return f.portable ? Form::portable : f.device == "cpu" ? Form::fused : Form::device;
}

TrainRank::TrainRank(
    const TrainFlags & f, const TrainTask & task, LocalGroup & ranks, RunPeers & peers
)
    : ranks_(ranks), optim_(f.optim),
      backend_(device_of(f.device, ranks.rank()), rank_threads(f.threads, ranks)),
      workers_(rank_threads(f.threads, ranks)) {
    if (backend_.device() && ranks_.size() > 1) {
        check_ranks(ranks_, *backend_.device());
    }
    make_shards(f, task.model.config);
    load_weights(task.model);
    optimizer_ = make_optimizer(optim_, shards_->views(), workers_);
    state_     = join_state(ranks_, shards_->views(), optimizer_->state(), shards_->cut());
    shared_    = std::make_unique<SharedState>(state_, workers_);
    make_graphs(f, task);
    trainer_ = std::make_unique<Trainer>(
        ranks_, *graph_, *shards_, *optimizer_, *shared_, peers,
        StepSource{
            .samples   = [&](uint64_t step,
                           int64_t  n) { return task.train(step, peers.host(), 0, n); },
            .lr        = [&](uint64_t step) { return f.schedule.at(step); },
            .grad_norm = [this] { return host_grad_norm(); },
            .join      = join_messages},
        TrainerOptions{
            .clip       = f.clip,
            .overlap    = f.optim.overlap ? 1u : 0u,
            .steps      = static_cast<uint64_t>(f.steps),
            .loss_scale = f.compute == "f16" ? 65536.0f : 1.0f,
            .batch      = f.batch,
            .step_s     = test_step_seconds()}
    );
}

void TrainRank::make_shards(const TrainFlags & f, const ModelConfig & config) {
    const CutRows cut_rows = [&](const ParamView & param) { return gt::cut_rows(f.optim, param); };
    const auto    shapes   = param_shapes(config);
    if (f.shard == "full") {
        ModelConfig window = config;
        window.n_layer     = std::min(config.n_layer, kWindowBlocks);
        model_             = make_model(backend_, window, true);
        auto stream        = std::make_unique<Stream>(
            backend_, model_->weights(), shapes, ranks_, has_kernels(optim_), cut_rows
        );
        stream_ = stream.get();
        shards_ = std::move(stream);
    } else {
        model_  = make_model(backend_, config, true);
        shards_ = make_whole_shards(
            backend_, model_->weights(), shapes, ranks_, f.shard != "none", has_kernels(optim_),
            cut_rows
        );
    }
}

// The rows that this rank owns, from the file.
void TrainRank::load_weights(const ModelFile & model) {
    for (const ParamView & view : shards_->views()) {
        const int64_t rows = view.row_end - view.row_begin;
        if (rows > 0) {
            const auto    n    = static_cast<int64_t>(view.weight.size());
            const float * from = model.at(view.name).data.data() + view.row_begin * (n / rows);
            Floats{view.weight, view.device}.write({from, view.weight.size()});
        }
    }
    shards_->share_weights();
}

std::unique_ptr<StepRunner> TrainRank::make_graph(const GraphOptions & options) {
    if (stream_) {
        return std::make_unique<StreamGraph>(backend_, *model_, *stream_, options);
    }
    return std::make_unique<StepGraph>(backend_, *model_, options);
}

void TrainRank::make_graphs(const TrainFlags & f, const TrainTask & task) {
    GraphOptions options = {
        .B          = f.micro,
        .T          = task.T,
        .image_size = task.model.config.image_size,
        .channels   = task.model.config.channels,
        .form       = form_of(f),
        .compute    = f.compute == "bf16"  ? GGML_TYPE_BF16
                      : f.compute == "f16" ? GGML_TYPE_F16
                                           : GGML_TYPE_F32,
        .recompute  = f.recompute ? Recompute::all : Recompute::cheap,
        .smoothing  = f.smoothing,
        .mixup      = task.mixup,
        .depth      = task.depth};
    graph_            = make_graph(options);
    options.goal      = task.evaluate ? GraphOptions::Goal::logits : GraphOptions::Goal::loss;
    options.smoothing = 0.0f;
    options.mixup = options.depth = false;
    eval_                         = make_graph(options);
}

RankMemory TrainRank::memory() const {
    RankMemory memory{
        .weights     = shards_->bytes(),
        .activations = graph_->activation_bytes() + eval_->activation_bytes()};
    for (const StateTensor & tensor : optimizer_->state().tensors) {
        memory.state += tensor.values.size_bytes();
    }
    if (stream_) {
        const Weights & window = model_->weights();
        memory.window = window.flat_weights().size_bytes() + window.flat_grads().size_bytes();
    }
    return memory;
}

// Each rank squares the rows it owns; the order of the sum depends on the model alone.
double TrainRank::host_grad_norm() {
    std::vector<double> parts(static_cast<size_t>(grad_norm_parts(optim_, shards_->views())));
    grad_norm(optim_, shards_->views(), workers_, parts);
    if (!shards_->cut()) {
        return grad_norm(parts);
    }
    std::vector<double> sums(parts.size(), 0.0);
    for (const std::vector<double> & others : from_all(ranks_, parts)) {
        for (size_t i = 0; i < sums.size(); ++i) {
            sums[i] += others[i];
        }
    }
    return grad_norm(sums);
}

}  // namespace gt
