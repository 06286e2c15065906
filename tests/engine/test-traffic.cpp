// What a training step of GPT-2 124M costs on a device, counted in its real graph (cost-model.h): bytes that the
// nodes read and write, copies that transpose, changes of stream, and an estimate of its speed. The limits
// are the counts of today plus a few per cent: what makes a step slower without changing a result fails here.
#include "ggml-train/graph/compute.h"
#include "ggml-train/graph/graph.h"
#include "models/blocks.h"
#include "models/presets.h"
#include "tests/catch.h"
#include "tests/engine/cost-model.h"

#include <cstdio>

using namespace gt;

namespace {

constexpr int64_t kTokens = 1024;

// Of all blocks: those after the second cost what the second does.
Cost cost_of_gpt2(Form form, ggml_type compute, int64_t n_samples) {
    Cost        cost[2];
    ModelConfig config  = find_preset("gpt2-124m").config;
    const auto  n_layer = static_cast<double>(config.n_layer);
    config.n_vocab      = 50257;
    config.n_ctx        = kTokens;
    for (const int64_t n : {1, 2}) {
        config.n_layer = n;
        const Backend   backend("cpu", 1);
        const auto      model = make_model(backend, config, true);
        const StepGraph graph(
            backend, *model, {.B = n_samples, .T = kTokens, .form = form, .compute = compute}
        );
        cost[n - 1] = count_cost(graph.graph());
    }
    const auto all = [&](double first, double second) {
        return first + (n_layer - 1.0) * (second - first);
    };
    Cost sum;
    for (double Cost::*what : {&Cost::bytes, &Cost::nodes, &Cost::transposes, &Cost::switches}) {
        sum.*what = all(cost[0].*what, cost[1].*what);
    }
    for (size_t c = 0; c < std::size(kCards); ++c) {
        sum.times[c] = all(cost[0].times[c], cost[1].times[c]);
    }
    return sum;
}

}  // namespace

TEST_CASE("a_step_of_gpt2_reads_and_writes_no_more_than_counted") {
    constexpr int64_t kSamples = 4;
    const struct {
        const char * name;
        Form         form;
        Cost         most;  // bytes per token
    } limits[] = {
        {"device", Form::device, {6.4e6, 385, 0, 0}},
        {"portable", Form::portable, {34.5e6, 2000, 250, 0}},
    };
    for (const auto & [name, form, most] : limits) {
        Cost cost = cost_of_gpt2(form, GGML_TYPE_F32, kSamples);
        cost.bytes /= kSamples * kTokens;
        std::printf(
            "%s form: %.1f MB per token, %.0f nodes, %.0f transposing copies, %.0f changes of "
            "stream\n",
            name, cost.bytes / 1e6, cost.nodes, cost.transposes, cost.switches
        );
        INFO(name);
        CHECK(cost.bytes <= most.bytes);
        CHECK(cost.bytes > 0.9 * most.bytes);  // the count sees the graph
        CHECK(cost.nodes <= most.nodes);
        CHECK(cost.transposes <= most.transposes);
        CHECK(cost.switches <= most.switches);
    }
}

// F16 goes through ggml's products, with copies that transpose.
TEST_CASE("a_step_of_gpt2_in_bf16_is_as_fast_on_paper_as_was_asked") {
    constexpr int64_t kSamples = 16;
    const Cost        ours     = cost_of_gpt2(Form::device, GGML_TYPE_BF16, kSamples);
    const Cost        ggmls    = cost_of_gpt2(Form::device, GGML_TYPE_F16, kSamples);
    const auto        speed    = [](const Cost & cost, size_t card) {
        return kSamples * kTokens / cost.times[card];
    };
    for (const auto & [name, cost] :
         {std::pair("ggml's, f16", ggmls), std::pair("ours, bf16", ours)}) {
        std::printf(
            "products %s: %.1f GB, %.0f nodes, %.0f transposing copies, %.0f changes of stream;",
            name, cost.bytes / 1e9, cost.nodes, cost.transposes, cost.switches
        );
        for (size_t c = 0; c < std::size(kCards); ++c) {
            std::printf(
                " %s: %.0f ms, %.1f k tokens/s", kCards[c].name, cost.times[c] * 1e3,
                speed(cost, c) / 1e3
            );
        }
        std::printf("\n");
    }
    CHECK(ours.bytes <= 42e9);
    CHECK(ours.nodes <= 430);
    CHECK(ours.transposes == 0);
    CHECK(ours.switches == 0);
    for (size_t c = 0; c < std::size(kCards); ++c) {
        INFO(kCards[c].name);
        CHECK(speed(ours, c) >= 2.6 * kCards[c].former);
    }
}

// GELU is computed again in the reverse pass, from the sum that it had in the forward pass.
TEST_CASE("products_of_bf16_include_gelu_its_slope_and_the_gradients_of_biases") {
    ModelConfig config = find_preset("gpt2-124m").config;
    config.n_layer     = 2;
    config.n_vocab     = 512;
    config.n_ctx       = 64;
    const Backend backend("cpu", 1);
    const auto    model = make_model(backend, config, true);
    for (const Recompute recompute : {Recompute::cheap, Recompute::all}) {
        const StepGraph graph(
            backend, *model,
            {.T = 64, .form = Form::device, .compute = GGML_TYPE_BF16, .recompute = recompute}
        );
        int n_gelu = 0, n_back = 0, n_with_gelu = 0, n_with_slope = 0;
        for (int i = 0; i < ggml_graph_n_nodes(graph.graph()); ++i) {
            const ggml_tensor * node = ggml_graph_node(graph.graph(), i);
            n_gelu += is_op(node, kGelu);
            n_back += is_op(node, kGeluBack);
            n_with_gelu += is_op(node, kLinear) && fused_params(node).i[4];
            n_with_slope += is_op(node, kLinearBackX) && fused_params(node).i[4];
            if (is_op(node, kSumRows)) {
                CHECK(ggml_nrows(node->src[1]) == 1);  // of sums that the product made
            }
        }
        CHECK(n_gelu == 2);
        CHECK(n_back == 0);
        CHECK(n_with_gelu == 2);
        CHECK(n_with_slope == 2);
    }
}
