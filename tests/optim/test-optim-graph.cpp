// demo's extract as a ggml graph selects the coefficients of repl-demo.cpp, on any backend.
#include "ggml-alloc.h"
#include "ggml-cpp.h"
#include "ggml-cpu.h"
#include "optim/device/demo-graph.h"
#include "optim/tables.h"
#include "optim/wire/indices.h"
#include "tests/catch.h"
#include "tests/fake/fake-device.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

using namespace gt;

namespace {

constexpr int64_t kTopK  = 8;
constexpr float   kDecay = 0.9f, kAlpha = 0.01f;

// The graph for one tensor on a backend, its inputs filled.
struct GraphRun {
    ggml_context_ptr        state, nodes;
    ggml_backend_buffer_ptr buffer;
    ggml_gallocr_ptr        alloc;
    ggml_cgraph *           graph = nullptr;
    DemoGraph               demo;
    std::vector<int32_t>    index;
    std::vector<float>      value, remainder;

    GraphRun(
        ggml_backend_t             backend,
        const ChunkGrid &          grid,
        const std::vector<float> & grad,
        const std::vector<float> & momentum
    ) {
        const ggml_init_params params = {
            64 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true};
        state.reset(ggml_init(params));
        nodes.reset(ggml_init(params));
        graph = ggml_new_graph(nodes.get());
        demo  = build_demo_graph(state.get(), nodes.get(), graph, grid, kTopK, kDecay, kAlpha);
        buffer.reset(ggml_backend_alloc_ctx_tensors(state.get(), backend));
        alloc.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend)));
        REQUIRE(ggml_gallocr_alloc_graph(alloc.get(), graph));
        fill_tables(demo);
        ggml_backend_tensor_set(demo.grad, grad.data(), 0, ggml_nbytes(demo.grad));
        ggml_backend_tensor_set(demo.momentum, momentum.data(), 0, ggml_nbytes(demo.momentum));
        REQUIRE(ggml_backend_graph_compute(backend, graph) == GGML_STATUS_SUCCESS);
        index.resize(ggml_nelements(demo.index));
        value.resize(ggml_nelements(demo.value));
        remainder.resize(ggml_nelements(demo.remainder));
        ggml_backend_tensor_get(demo.index, index.data(), 0, ggml_nbytes(demo.index));
        ggml_backend_tensor_get(demo.value, value.data(), 0, ggml_nbytes(demo.value));
        ggml_backend_tensor_get(demo.remainder, remainder.data(), 0, ggml_nbytes(demo.remainder));
    }
};

void compare(ggml_backend_t backend, const TensorShape & shape, const char * chunk) {
    INFO(shape.rows << "x" << shape.cols << " on " << ggml_backend_name(backend));
    const ChunkGrid    grid = chunk_grid(shape, parse_chunk(chunk));
    const int64_t      n = grid.chunk_size(), k = std::min(kTopK, n), total = shape.size();
    std::vector<float> grad(total), momentum(total);
    for (int64_t i = 0; i < total; ++i) {
        grad[i]     = random_uniform(random_bits(1, i)) - 0.5f;
        momentum[i] = 0.01f * (random_uniform(random_bits(2, i)) - 0.5f);
    }
    const GraphRun run(backend, grid, grad, momentum);
    for (int i = 0; i < ggml_graph_n_nodes(run.graph); ++i) {
        const ggml_op op = ggml_graph_node(run.graph, i)->op;
        CHECK(op != GGML_OP_CUSTOM);
        CHECK(op != GGML_OP_MAP_CUSTOM1);
        CHECK(op != GGML_OP_MAP_CUSTOM2);
        CHECK(op != GGML_OP_MAP_CUSTOM3);
    }

    // the fused form
    const auto fused = make_demo({.chunk = chunk, .top_k = kTopK}, {shape}, Wire::fp32);
    const Unit unit{0, 0, shape.rows};
    const Plan plan = fused->plan(0);
    Bytes      bytes(fused->bytes(plan, unit));
    fused->extract(plan, unit, {grad.data(), kDecay, kAlpha}, momentum.data(), bytes.data());
    const IndexCode code(n, k);
    float           largest = 0.0f;
    for (const float v : run.value) {
        largest = std::max(largest, std::fabs(v));
    }
    int64_t n_other = 0;
    for (int64_t c = 0; c < grid.n_chunks(); ++c) {
        std::vector<uint16_t> index(k);
        std::vector<float>    value(k);
        const uint8_t *       at = bytes.data() + c * (4 * k + code.bytes());
        REQUIRE(decode_group(Wire::fp32, Group::sparse, at, k, value.data()) == nullptr);
        REQUIRE(code.decode(at + 4 * k, index.data()) == nullptr);
        std::map<int32_t, float> by_index;
        for (int64_t i = 0; i < k; ++i) {
            by_index[run.index[c * k + i]] = run.value[c * k + i];
        }
        REQUIRE(static_cast<int64_t>(by_index.size()) == k);
        for (int64_t i = 0; i < k; ++i) {
            const auto found = by_index.find(index[i]);
            if (found == by_index.end()) {
                ++n_other;  // a near-tie: the graph selected another one
                CHECK(run.remainder[c * n + index[i]] == Approx(value[i]).margin(1e-5 * largest));
                continue;
            }
            CHECK(std::fabs(found->second - value[i]) <= 1e-5f * largest);
            CHECK(run.remainder[c * n + index[i]] == 0.0f);
        }
        for (int64_t i = 0; i < n; ++i) {
            const bool sent_here = by_index.count(static_cast<int32_t>(i)) > 0;
            if (!sent_here && momentum[c * n + i] != 0.0f) {
                CHECK(std::fabs(run.remainder[c * n + i] - momentum[c * n + i]) <= 1e-5f * largest);
            }
        }
    }
    CHECK(n_other * 200 <= grid.n_chunks() * k);
}

}  // namespace

TEST_CASE("the_graph_form_of_demo_selects_the_coefficients_of_the_fused_form") {
    ggml_backend_ptr cpu(ggml_backend_cpu_init()), fake(make_fake_device(0, 2, 0));
    for (ggml_backend_t backend : {cpu.get(), fake.get()}) {
        compare(backend, {.rows = 128, .cols = 192}, "64x64");
        compare(backend, {.rows = 58, .cols = 40}, "64x64");
        compare(backend, {.rows = 67, .cols = 48}, "64x64");
        compare(backend, {.rows = 130, .cols = 1, .is_vector = true}, "64x64");
        compare(backend, {.rows = 64, .cols = 96}, "512");
    }
}
