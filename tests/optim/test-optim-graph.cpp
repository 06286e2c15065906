// demo with its momentum in ggml's ops sends the coefficients that it sends from host memory, on any backend.
#include "ggml-train/device/backend.h"
#include "optim/device/momentum-graph.h"
#include "optim/on-graph.h"
#include "optim/wire/chunk-code.h"
#include "tests/catch.h"
#include "tests/optim/optim-sim.h"
#include "tests/vulkan.h"

#include <algorithm>
#include <cmath>
#include <map>

using namespace gt;

namespace {

constexpr float kRounding = 1e-5f;  // of the largest coefficient of a chunk

std::vector<std::string> devices() {
    std::vector<std::string> names{"cpu", "fake"};
    if (has_vulkan()) {
        names.push_back("vulkan");
    }
    return names;
}

// The same model twice: with the optimizer in host memory, and with gradients and momentum on a device.
class Twins {
public:
    Twins(const std::string & device, const OptimOptions & options, std::vector<SimShape> shapes)
        : host_model_(shapes), graph_model_(shapes), backend_(device, 2), workers_(2) {
        ctx_ = make_context(shapes.size());
        for (const SimShape & shape : shapes) {
            grads_.push_back(ggml_new_tensor(ctx_.get(), GGML_TYPE_F32, 4, shape.ne.data()));
        }
        buffer_ = backend_.allocate(ctx_.get(), "gradients");
        Shapes matrices;
        auto   params = graph_model_.params(options);
        for (ParamView & param : params) {
            matrices.push_back(shape_of(param));
            param.grad = {};
        }
        chunks   = dct_chunks(options, matrices);
        momentum = make_momentum_graph(backend_, grads_, chunks, options.decay);
        REQUIRE(momentum);
        on_host  = make_optimizer(options, host_model_.params(options), workers_);
        on_graph = make_optimizer(options, params, workers_, nullptr, momentum.get());
    }

    void set_gradients(uint64_t step) {
        host_model_.set_gradients(0, step);
        for (size_t t = 0; t < grads_.size(); ++t) {
            ggml_backend_tensor_set(
                grads_[t], host_model_.grad[t].data(), 0, ggml_nbytes(grads_[t])
            );
        }
    }

    // The device's momentum becomes the host's.
    void equal_momentum() {
        const OptimizerState from = on_host->state();
        for (size_t t = 0; t < grads_.size(); ++t) {
            momentum->tensor(t).write(from.tensors[t].values);
        }
    }

    bool equal_weights() const { return host_model_.weight == graph_model_.weight; }

    std::vector<DctChunks>       chunks;
    std::unique_ptr<DctMomentum> momentum;
    std::unique_ptr<Optimizer>   on_host, on_graph;

private:
    SimModel                   host_model_, graph_model_;
    Backend                    backend_;
    Workers                    workers_;
    ggml_context_ptr           ctx_;
    ggml_backend_buffer_ptr    buffer_;
    std::vector<ggml_tensor *> grads_;
};

using Sent = std::map<int64_t, float>;  // by place

std::vector<Sent> read_tensor(const uint8_t *& bytes, const DctChunks & chunks, Wire wire) {
    const ChunkCode       code(wire, chunks.grid.chunk_size(), chunks.k);
    std::vector<uint16_t> index(chunks.k);
    std::vector<float>    value(chunks.k);
    std::vector<Sent>     all;
    for (int64_t c = 0; c < chunks.grid.n_chunks(); ++c, bytes += code.bytes()) {
        REQUIRE(code.decode(bytes, index.data(), value.data()) == nullptr);
        all.emplace_back();
        for (int64_t i = 0; i < chunks.k; ++i) {
            all.back()[index[i]] = value[i];
        }
    }
    return all;
}

// Both selected the k largest of the momentum m, and agree where magnitudes differ by more than rounding.
// `left` is what they left of it. Returns how many coefficients only one selected.
int64_t compare(
    std::span<const float> m,
    std::span<const float> left,
    const Sent &           want,
    const Sent &           got,
    float                  subtract,
    Wire                   wire,
    int64_t                k
) {
    float largest = 0.0f, least = INFINITY;
    for (const float x : m) {
        largest = std::max(largest, std::fabs(x));
    }
    for (const auto & [place, value] : want) {
        least = std::min(least, std::fabs(m[place]));
    }
    const float rounding = kRounding * largest;
    REQUIRE(static_cast<int64_t>(got.size()) == k);
    int64_t n_other = 0;
    for (size_t i = 0; i < m.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const bool a = want.count(at) > 0, b = got.count(at) > 0;
        if (a != b) {
            ++n_other;
            CHECK(std::fabs(std::fabs(m[i]) - least) <= rounding);
        }
        if (a && b) {
            // a type of few bits may round it to the next level
            const float value = want.at(at), other = got.at(at);
            CHECK(std::signbit(value) == std::signbit(other));
            CHECK((wire != Wire::fp32 || std::fabs(value - other) <= rounding));
        }
        const float sent = b ? subtract * got.at(at) : 0.0f;
        if (std::fabs(left[i] + sent - m[i]) > rounding) {
            CHECK(left[i] + sent == m[i]);  // prints both
        }
    }
    return n_other;
}

void check_messages(
    const std::string & device, OptimOptions options, Wire wire, std::vector<SimShape> shapes
) {
    INFO(device << ", " << options.wire << ", chunks of " << options.chunk);
    Twins   twins(device, options, shapes);
    int64_t n_other = 0, n_sent = 0;
    for (uint64_t step = 0; step < 2; ++step) {
        twins.set_gradients(step);
        twins.equal_momentum();
        const Prepared want = twins.on_host->prepare(step, 0.1f, {.max_norm = 0.5f});
        const Prepared got  = twins.on_graph->prepare(step, 0.1f, {.max_norm = 0.5f});
        CHECK(got.grad_norm == Approx(want.grad_norm).epsilon(1e-6));
        REQUIRE(got.message.size() == want.message.size());
        CHECK(
            std::equal(got.message.begin(), got.message.begin() + kHeadBytes, want.message.begin())
        );
        const uint8_t *      a    = want.message.data() + kHeadBytes;
        const uint8_t *      b    = got.message.data() + kHeadBytes;
        const OptimizerState left = twins.on_host->state();
        for (size_t t = 0; t < shapes.size(); ++t) {
            INFO(shapes[t].name << ", step " << step);
            const DctChunks & chunks   = twins.chunks[t];
            const auto        wanted   = read_tensor(a, chunks, wire);
            const auto        selected = read_tensor(b, chunks, wire);
            const auto        after    = twins.momentum->tensor(t).read();
            const int64_t     n        = chunks.grid.chunk_size();
            for (size_t c = 0; c < wanted.size(); ++c) {
                const auto         part = left.tensors[t].values.subspan(c * n, n);
                std::vector<float> m(part.begin(), part.end());
                for (const auto & [place, value] : wanted[c]) {
                    m[place] += options.subtract * value;
                }
                n_other += compare(
                    m, std::span(after).subspan(c * n, n), wanted[c], selected[c], options.subtract,
                    wire, chunks.k
                );
                n_sent += chunks.k;
            }
        }
        for (Optimizer * optimizer : {twins.on_host.get(), twins.on_graph.get()}) {
            Round round{.step = step, .has_mine = true};
            round.messages.push_back({.host = "a", .bytes = got.message});
            optimizer->apply(round);
        }
        CHECK(twins.equal_weights());
    }
    CHECK(n_other * 500 <= n_sent);
}

}  // namespace

TEST_CASE("demo_on_a_graph_sends_the_coefficients_that_it_sends_from_host_memory") {
    for (const std::string & device : devices()) {
        check_messages(device, {.wire = "fp32", .top_k = 8}, Wire::fp32, sim_shapes());
        check_messages(device, {.subtract = 0.2f}, Wire::q4, sim_shapes());
        check_messages(
            device, {.rule = "sgd", .wire = "q1", .chunk = "512", .top_k = 5}, Wire::q1,
            sim_shapes()
        );
    }
}

TEST_CASE("demo_on_a_graph_works_on_large_tensors_slice_by_slice") {
    const std::string device = devices().back();
    const SimShape    large{"two slices", {2048, 1088, 1, 1}, ParamKind::matrix};
    check_messages(device, {.rule = "sgd", .wire = "fp32"}, Wire::fp32, {large});
}

TEST_CASE("demo_on_a_graph_takes_back_what_it_sent_and_continues_from_its_state") {
    for (const std::string & device : devices()) {
        INFO(device);
        Twins twins(device, {}, sim_shapes());
        using Momentum  = std::vector<std::vector<float>>;
        const auto read = [&] {
            Momentum all;
            for (size_t t = 0; t < twins.chunks.size(); ++t) {
                all.push_back(twins.momentum->tensor(t).read());
            }
            return all;
        };
        const auto write = [&](const Momentum & all) {
            for (size_t t = 0; t < all.size(); ++t) {
                twins.momentum->tensor(t).write(all[t]);
            }
        };
        twins.set_gradients(0);
        (void) twins.on_graph->prepare(0, 0.1f);
        const Momentum before = read();
        twins.set_gradients(1);
        twins.momentum->fold(0.1f);
        const Momentum folded = read();

        // from the same state, the same message
        write(before);
        const Bytes message = twins.on_graph->prepare(1, 0.1f).message;
        write(before);
        CHECK(twins.on_graph->prepare(1, 0.1f).message == message);

        twins.on_graph->take_back(1);
        const Momentum back = read();
        for (size_t t = 0; t < back.size(); ++t) {
            const auto near = [](float a, float b) { return std::fabs(a - b) <= 1e-7f; };
            CHECK(std::equal(back[t].begin(), back[t].end(), folded[t].begin(), near));
        }
        twins.on_graph->drop_residual();
        for (const std::vector<float> & zero : read()) {
            CHECK(std::count(zero.begin(), zero.end(), 0.0f) == static_cast<int64_t>(zero.size()));
        }
    }
}
