#include "tools/train/rank.h"

#include "comm/local/check-ranks.h"
#include "ggml-train/evaluator.h"
#include "ggml-train/graph/compute.h"
#include "optim/device/momentum-graph.h"
#include "optim/on-graph.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>

namespace gt {

WholeWeights::WholeWeights(const HostState & state) {
    std::map<std::string, const HostTensor *> others;
    for (const HostTensor & tensor : state.tensors) {
        others[tensor.name] = &tensor;
    }
    for (const HostTensor & weight : state.weights) {
        const auto         average = others.find(kAveragePrefix + weight.name);
        const HostTensor & chosen  = average == others.end() ? weight : *average->second;
        const Floats &     first   = chosen.pieces[0].copies[0];
        if (chosen.pieces.size() == 1 && !first.memory) {
            views.push_back({weight.name, first.values});
            continue;
        }
        copies.emplace_back();
        for (const HostTensor::Piece & piece : chosen.pieces) {
            const HostView view = piece.view();
            copies.back().insert(copies.back().end(), view.values().begin(), view.values().end());
        }
        views.push_back({weight.name, copies.back()});
    }
}

namespace {

// Tells after every micro-batch, which takes `least` seconds or more.
class WatchedGraph : public StepRunner {
public:
    using Watch = std::function<void(bool training)>;

    WatchedGraph(
        std::unique_ptr<StepRunner> graph, const Watch & watch, bool training, double least
    )
        : graph_(std::move(graph)), watch_(watch), training_(training), least_(least) {}

    double run(const Batch & batch, float scale, bool first) override {
        const auto   until = std::chrono::steady_clock::now() + least_;
        const double loss  = graph_->run(batch, scale, first);
        std::this_thread::sleep_until(until);
        if (watch_) {
            watch_(training_);
        }
        return loss;
    }
    void                 follow() override { graph_->follow(); }
    void                 release() override { graph_->release(); }
    std::vector<float>   logits() const override { return graph_->logits(); }
    size_t               activation_bytes() const override { return graph_->activation_bytes(); }
    const GraphOptions & options() const override { return graph_->options(); }

private:
    std::unique_ptr<StepRunner>   graph_;
    const Watch &                 watch_;
    bool                          training_;
    std::chrono::duration<double> least_;
};

// GT_TEST_STEP_SECONDS, for tests and benchmarks only: the gradient of a whole batch lasts at least that
// long, as on a slower machine. Returns the share of a micro-batch.
double least_seconds(const RunPlan & plan) {
    const char * text = std::getenv("GT_TEST_STEP_SECONDS");
    return text ? std::strtod(text, nullptr) * static_cast<double>(plan.micro) /
                      static_cast<double>(plan.batch)
                : 0.0;
}

}  // namespace

// A rank's share of the host's threads.
static int rank_threads(int n_threads, const LocalGroup & ranks) {
    return std::max(1, n_threads / ranks.size());
}

// CPU ranks share one device.
static DeviceSpec device_of(const std::string & devices, int rank) {
    const std::vector<DeviceSpec> specs = parse_devices(devices);
    return specs.size() == 1 ? specs[0] : specs[static_cast<size_t>(rank)];
}

Form form_of(const TrainFlags & train) {
    return train.portable ? Form::portable : best_form(parse_devices(train.device)[0]);
}

std::string chosen_compute(const TrainFlags & train) {
    if (train.compute != "auto") {
        return train.compute;
    }
    const std::vector<DeviceSpec> devices = parse_devices(train.device);
    return !train.portable && std::all_of(devices.begin(), devices.end(), multiplies_bf16) ? "bf16"
                                                                                           : "f32";
}

ggml_type compute_type(const TrainFlags & train) {
    return train.compute == "bf16"  ? GGML_TYPE_BF16
           : train.compute == "f16" ? GGML_TYPE_F16
                                    : GGML_TYPE_F32;
}

GraphOptions
graph_options(const TrainFlags & train, const ModelConfig & config, int64_t B, int64_t T) {
    return {
        .B           = B,
        .T           = T,
        .image_size  = config.image_size,
        .image_width = config.image_width,
        .channels    = config.channels,
        .form        = form_of(train),
        .compute     = compute_type(train),
        .recompute   = train.recompute ? Recompute::all : Recompute::cheap};
}

bool is_half(const TrainFlags & train) {
    return train.compute == "f16" || train.compute == "bf16";
}

TrainRank::TrainRank(
    const RunPlan & plan, const ModelFile & model, Data & data, LocalGroup & ranks, Peers & peers
)
    : ranks_(ranks), optim_(plan.optim),
      backend_(device_of(plan.device, ranks.rank()), rank_threads(plan.threads, ranks)),
      workers_(rank_threads(plan.threads, ranks)) {
    if (backend_.device() && ranks_.size() > 1) {
        check_ranks(ranks_, *backend_.device());
    }
    make_shards(plan, model.config);
    load_weights(model);
    optimizer_ = make_optimizer(optim_, shards_->views(), workers_, &ranks_, momentum_.get());
    state_     = join_state(ranks_, shards_->views(), optimizer_->state(), shards_->cut());
    shared_    = std::make_unique<SharedState>(state_, workers_);
    make_graphs(plan, model.config);
    trainer_ = std::make_unique<Trainer>(
        TrainerParts{ranks_, *graph_, *shards_, *optimizer_, *shared_, data, peers}, plan.schedule,
        TrainerOptions{
            .clip       = plan.clip,
            .overlap    = overlap_of(plan.optim),
            .in_turn    = shares_of(plan.optim) > 0,
            .steps      = static_cast<uint64_t>(plan.steps),
            .loss_scale = is_half(plan) ? 65536.0f : 1.0f,
            .batch      = plan.batch}
    );
}

void TrainRank::make_shards(const RunPlan & plan, const ModelConfig & config) {
    const auto           shapes = param_shapes(tensor_specs(config));
    std::vector<int64_t> rows;
    for (const ParamView & shape : shapes) {
        rows.push_back(cut_rows(optim_, shape));
    }
    const auto memory = has_kernels(optim_) && !plan.optimizer_on_host ? OptimizerMemory::device
                                                                       : OptimizerMemory::host;
    if (plan.shard == "full") {
        ModelConfig window = config;
        window.n_layer     = std::min(config.n_layer, kWindowBlocks);
        window.n_frozen    = 0;  // every block passes through the window
        model_             = make_model(backend_, window, true);
        auto stream =
            std::make_unique<Stream>(backend_, model_->weights(), shapes, rows, ranks_, memory);
        stream_ = stream.get();
        shards_ = std::move(stream);
    } else {
        model_ = make_model(backend_, config, true);
        make_momentum(plan, shapes);
        shards_ = make_whole_shards(
            backend_, model_->weights(), shapes, rows, ranks_, plan.shard != "none",
            momentum_ ? OptimizerMemory::beside_grads : memory
        );
    }
}

// If only ggml's ops run on the device, the momentum stays there with the gradients. Not if products are
// rounded to half precision: gradients, scaled as they are then, would overflow.
void TrainRank::make_momentum(const RunPlan & plan, const std::vector<ParamView> & params) {
    if (!has_graph(optim_) || backend_.is_host() || backend_.device() || is_half(plan)) {
        return;
    }
    Shapes                     shapes;
    std::vector<ggml_tensor *> grads;
    for (size_t i = 0; i < params.size(); ++i) {
        shapes.push_back(shape_of(params[i]));
        grads.push_back(model_->weights().params()[i].grad);
    }
    momentum_ = make_momentum_graph(backend_, grads, dct_chunks(optim_, shapes), optim_.decay);
}

// Copies the rows that this rank owns.
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

void TrainRank::make_graphs(const RunPlan & plan, const ModelConfig & config) {
    GraphOptions options = graph_options(plan, config, plan.micro, plan.T);
    options.smoothing    = plan.smoothing;
    options.mixup        = plan.mixup;
    options.depth        = plan.depth;
    options.packed       = plan.packed;
    options.dropout      = plan.dropout;
    graph_ = std::make_unique<WatchedGraph>(make_graph(options), watch_, true, least_seconds(plan));
    options.goal      = plan.logits ? GraphOptions::Goal::logits : GraphOptions::Goal::loss;
    options.smoothing = 0.0f;
    options.mixup = options.depth = false;
    options.dropout               = 0.0f;
    eval_ = std::make_unique<WatchedGraph>(make_graph(options), watch_, false, 0.0);
}

void TrainRank::swap_average() {
    if (optim_.ema > 0.0f) {
        optimizer_->swap_average();
        shards_->share_weights();
    }
}

Score TrainRank::validate(Data & data, bool last) {
    graph_->release();  // the activations of a step
    swap_average();
    const Score score = Evaluator(ranks_, *eval_).validate(data, last);
    swap_average();
    return score;
}

RankMemory TrainRank::memory() const {
    const size_t step = graph_->activation_bytes(), eval = eval_->activation_bytes();
    RankMemory   memory{
          .weights        = shards_->bytes(),
          .activations    = backend_.is_host() ? std::max(step, eval) : step + eval,
          .momentum_graph = momentum_ != nullptr};
    for (const StateTensor & tensor : optimizer_->state().tensors) {
        memory.state += tensor.values.size_bytes();
    }
    if (stream_) {
        const Weights & window = model_->weights();
        memory.window = window.flat_weights().size_bytes() + window.flat_grads().size_bytes();
    }
    return memory;
}

}  // namespace gt
