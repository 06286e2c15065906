// tests/golden/golden-optim.cpp — golden runs of the published optimizers: demo.run, repl.run, diloco.run.
//
// All hosts of the file are simulated in this process, with fp32 on the wire. Every weight and residual
// is compared with the file after every step.
#include "ggml.h"
#include "gguf.h"
#include "optim/math/transform.h"
#include "optim/tables.h"
#include "tests/golden/golden.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

namespace gt {

namespace {

// A GGUF file in memory.
class GoldenFile {
public:
    explicit GoldenFile(const std::string & path) {
        ggml_context *   data   = nullptr;
        gguf_init_params params = {.no_alloc = false, .ctx = &data};
        gguf_.reset(gguf_init_from_file(path.c_str(), params));
        data_.reset(data);
        if (!gguf_) {
            throw Error(path + ": not a GGUF file");
        }
    }

    bool has(const std::string & key) const { return gguf_find_key(gguf_.get(), key.c_str()) >= 0; }

    std::string text(const std::string & key) const {
        return gguf_get_val_str(gguf_.get(), find(key));
    }
    uint32_t number(const std::string & key) const {
        return gguf_get_val_u32(gguf_.get(), find(key));
    }
    float real(const std::string & key, float otherwise) const {
        return has(key) ? gguf_get_val_f32(gguf_.get(), find(key)) : otherwise;
    }
    bool flag(const std::string & key) const { return gguf_get_val_bool(gguf_.get(), find(key)); }

    const ggml_tensor * find_tensor(const std::string & name) const {
        return ggml_get_tensor(data_.get(), name.c_str());
    }
    const ggml_tensor * tensor(const std::string & name) const {
        const ggml_tensor * t = find_tensor(name);
        if (t == nullptr) {
            throw Error("tensor " + name + " is missing");
        }
        return t;
    }
    std::span<const float> values(const std::string & name) const {
        const ggml_tensor * t = tensor(name);
        return {static_cast<const float *>(t->data), static_cast<size_t>(ggml_nelements(t))};
    }

private:
    struct Free {
        void operator()(gguf_context * p) const { gguf_free(p); }
        void operator()(ggml_context * p) const { ggml_free(p); }
    };

    int64_t find(const std::string & key) const {
        const int64_t id = gguf_find_key(gguf_.get(), key.c_str());
        if (id < 0) {
            throw Error("key " + key + " is missing");
        }
        return id;
    }

    std::unique_ptr<gguf_context, Free> gguf_;
    std::unique_ptr<ggml_context, Free> data_;
};

// One simulated host: its weights and gradients, and the optimizer over them.
struct Host {
    std::vector<std::vector<float>> weight, grad;
    std::unique_ptr<Optimizer>      optimizer;
};

// The largest error over its bound, and where.
struct Worst {
    double      ratio = 0.0;
    std::string where = "no difference";

    void note(double error, double bound, const std::string & at) {
        const double ratio_here = error == 0.0 ? 0.0 : bound > 0.0 ? error / bound : INFINITY;
        if (!(ratio_here <= ratio)) {
            ratio = ratio_here;
            where = at;
        }
    }
};

class GoldenRun {
public:
    explicit GoldenRun(const std::string & path) : file_(path), workers_(2) {
        kind_    = file_.text("golden.kind");
        n_hosts_ = static_cast<int>(file_.number("golden.world"));
        n_steps_ = file_.number("golden.steps");
        lr_      = file_.real("golden.lr", 0.0f);
        while (file_.find_tensor(format("init/p%d", n_params_)) != nullptr) {
            ++n_params_;
        }
        read_options();
        hosts_.resize(n_hosts_);
        for (Host & host : hosts_) {
            make_host(host);
        }
    }

    Worst run() {
        Worst worst;
        for (uint32_t step = 0; step < n_steps_; ++step) {
            one_step(step, worst);
            for (int h = 0; h < n_hosts_; ++h) {
                compare_weights(step, h, worst);
                compare_delta(step, h, worst);
            }
        }
        return worst;
    }

    const std::string & kind() const { return kind_; }

private:
    void read_options() {
        const bool diloco   = kind_ == "diloco.run";
        options_.wire       = "fp32";
        options_.replicator = diloco                ? "diloco"
                              : kind_ == "demo.run" ? "demo"
                                                    : file_.text("golden.replicator");
        options_.rule  = diloco ? "adamw" : kind_ == "demo.run" ? "sgd" : file_.text("golden.base");
        options_.sign  = diloco                      ? "off"
                         : kind_ == "demo.run"       ? "on"
                         : file_.flag("golden.sign") ? "on"
                                                     : "off";
        options_.decay = file_.real("golden.decay", 0.0f);
        options_.rate  = file_.real("golden.rate", 0.1f);
        options_.weight_decay   = file_.real("golden.wd", 0.0f);
        options_.decay_all      = true;
        options_.beta1          = file_.real("golden.beta1", 0.9f);
        options_.beta2          = file_.real("golden.beta2", 0.95f);
        options_.eps            = file_.real("golden.eps", 1e-8f);
        options_.outer_lr       = file_.real("golden.outer_lr", 0.7f);
        options_.outer_momentum = file_.real("golden.outer_momentum", 0.9f);
        if (diloco) {
            options_.every   = file_.number("golden.h");
            options_.overlap = 0;
            return;
        }
        const uint32_t chunk = file_.number("golden.chunk");
        options_.chunk       = format("%ux%u", chunk, chunk);
        options_.top_k       = file_.number("golden.topk");
        if (kind_ == "repl.run" && options_.rule == "sgd") {
            options_.weight_decay = 0.0f;
        }
    }

    std::vector<ParamView> views(Host & host) {
        std::vector<ParamView> params(n_params_);
        for (int p = 0; p < n_params_; ++p) {
            const ggml_tensor * t     = file_.tensor(format("init/p%d", p));
            ParamView &         param = params[p];
            param.name                = format("p%d", p);
            std::copy(t->ne, t->ne + 4, param.ne.begin());
            param.kind    = ggml_n_dims(t) > 1 ? ParamKind::matrix : ParamKind::vector;
            param.row_end = t->ne[ggml_n_dims(t) - 1];
            param.weight  = host.weight[p];
            param.grad    = host.grad[p];
        }
        return params;
    }

    void make_host(Host & host) {
        for (int p = 0; p < n_params_; ++p) {
            const auto init = file_.values(format("init/p%d", p));
            host.weight.emplace_back(init.begin(), init.end());
            host.grad.emplace_back(init.size(), 0.0f);
        }
        if (file_.find_tensor("rows/s0/p0") == nullptr) {
            host.optimizer = make_optimizer(options_, views(host), workers_);
        } else {
            make_row_host(host);
        }
    }

    // Rows are chosen by the file; everything else is as in make_optimizer.
    void make_row_host(Host & host) {
        OptimizerParts    parts;
        const ChunkTarget chunk = parse_chunk(options_.chunk);
        parts.units             = std::make_unique<Units>(views(host), chunk, false, workers_);
        const Shapes &             shapes = parts.units->shapes();
        const std::vector<int64_t> view =
            options_.replicator == "random" ? own_rows(shapes) : chunk_rows(shapes, options_.chunk);
        const auto rows = [this](uint64_t round, int tensor, int64_t) {
            const ggml_tensor * t = file_.tensor(
                format("rows/s%llu/p%d", static_cast<unsigned long long>(round), tensor)
            );
            const auto * first = static_cast<const int32_t *>(t->data);
            return std::vector<int64_t>(first, first + ggml_nelements(t));
        };
        parts.layout = std::make_unique<Layout>(
            *parts.units, UpdateHead{}, 1, make_rows(shapes, view, rows, Wire::fp32)
        );
        std::vector<RuleTensor> tensors;
        for (int p = 0; p < n_params_; ++p) {
            tensors.push_back(
                {.name = format("p%d", p), .weight = host.weight[p], .decay = options_.weight_decay}
            );
        }
        parts.rule     = options_.rule == "sgd"
                             ? make_sgd(tensors)
                             : make_adamw(tensors, {options_.beta1, options_.beta2, options_.eps});
        host.optimizer = make_decoupled(
            std::move(parts), {.decay = options_.decay, .sign = options_.sign == "on"}
        );
    }

    void one_step(uint32_t step, Worst &) {
        Round round{.step = step, .has_mine = true};
        largest_.assign(n_params_, 0.0f);
        for (int h = 0; h < n_hosts_; ++h) {
            for (int p = 0; p < n_params_; ++p) {
                const auto g = file_.values(format("grad/s%u/n%d/p%d", step, h, p));
                std::copy(g.begin(), g.end(), hosts_[h].grad[p].begin());
                note_momentum(h, p);
            }
            Bytes message = hosts_[h].optimizer->prepare(step, lr_).message;
            if (!message.empty()) {
                round.messages.push_back({format("n%d", h), 1, std::move(message)});
            }
        }
        for (Host & host : hosts_) {
            host.optimizer->apply(round);
        }
    }

    // A host's residual momentum in elements (demo keeps coefficients); empty if there is none.
    std::vector<float> residual(int h, int p) {
        for (const StateTensor & tensor : hosts_[h].optimizer->state().tensors) {
            if (tensor.name != format("momentum.p%d", p)) {
                continue;
            }
            std::vector<float> m(tensor.values.begin(), tensor.values.end());
            return options_.replicator == "demo" ? elements(m, views(hosts_[h])[p]) : m;
        }
        return {};
    }

    std::vector<float> elements(const std::vector<float> & m, const ParamView & param) {
        const ChunkGrid    grid      = chunk_grid(shape_of(param), parse_chunk(options_.chunk));
        const auto         transform = make_dct_transform(grid);
        const LaneBuffer   scratch(transform->scratch_size());
        const int64_t      n = grid.chunk_size(), per_row = grid.chunks_per_row();
        std::vector<float> result(m.size());
        for (int64_t i = 0; i < grid.n_chunks(); ++i) {
            Sparse chunk;
            for (int64_t j = 0; j < n; ++j) {
                chunk.index.push_back(static_cast<uint16_t>(j));
                chunk.value.push_back(m[i * n + j]);
            }
            const int64_t offset =
                i / per_row * grid.side_rows * grid.cols + i % per_row * grid.side_cols;
            transform->restore(&chunk, 1, result.data() + offset, grid.cols, scratch.data());
        }
        return result;
    }

    // Records the momentum's largest magnitude before extraction: bounds on residuals are relative to it.
    void note_momentum(int h, int p) {
        const std::vector<float> m = residual(h, p);
        for (size_t i = 0; i < m.size(); ++i) {
            const float x = options_.decay * m[i] + lr_ * hosts_[h].grad[p][i];
            largest_[p]   = std::max(largest_[p], std::fabs(x));
        }
    }

    void compare_weights(uint32_t step, int h, Worst & worst) {
        for (int p = 0; p < n_params_; ++p) {
            std::string name = format("param/s%u/p%d", step, p);
            if (file_.find_tensor(name) == nullptr) {
                name = format("param/s%u/n%d/p%d", step, h, p);
            } else if (options_.replicator == "none" && h > 0) {
                continue;  // the file has host 0 only
            }
            const auto   want   = file_.values(name);
            const auto & have   = hosts_[h].weight[p];
            const double bound  = 1e-3 * lr_ * (step + 1);
            const double beyond = 2.0 * lr_ * (step + 1) * (1.0 + 1e-3);
            int64_t      n_off  = 0;
            for (size_t i = 0; i < want.size(); ++i) {
                const double error = std::fabs(static_cast<double>(have[i]) - want[i]);
                if (options_.sign == "on" && error > bound) {
                    ++n_off;
                    worst.note(error, beyond, name);
                } else {
                    worst.note(error, bound, name);
                }
            }
            worst.note(static_cast<double>(n_off), 0.002 * static_cast<double>(want.size()), name);
        }
    }

    void compare_delta(uint32_t step, int h, Worst & worst) {
        if (options_.replicator == "full" || options_.replicator == "none" ||
            kind_ == "diloco.run") {
            return;
        }
        for (int p = 0; p < n_params_; ++p) {
            const std::string        name = format("delta/s%u/n%d/p%d", step, h, p);
            const auto               want = file_.values(name);
            const std::vector<float> have = residual(h, p);
            for (size_t i = 0; i < want.size(); ++i) {
                const double error = std::fabs(static_cast<double>(have[i]) - want[i]);
                worst.note(error, 1e-5 * largest_[p], name);
            }
        }
    }

    GoldenFile         file_;
    Workers            workers_;
    std::string        kind_;
    OptimOptions       options_;
    int                n_hosts_ = 0, n_params_ = 0;
    uint32_t           n_steps_ = 0;
    float              lr_      = 0.0f;
    std::vector<Host>  hosts_;
    std::vector<float> largest_;
};

}  // namespace

GoldenResult golden_optim(const std::string & path) {
    try {
        GoldenRun   run(path);
        const Worst worst = run.run();
        return {run.kind(), worst.ratio, worst.ratio <= 1.0, worst.where};
    } catch (const Error & error) {
        return {"", INFINITY, false, error.what()};
    }
}

}  // namespace gt
