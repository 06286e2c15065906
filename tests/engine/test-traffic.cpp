// What a training step of GPT-2 124M costs on a device, counted in its real graph: bytes that the nodes
// read and write, products, copies that transpose, and how often the host waits. The limits are the counts
// of today plus a few per cent: what makes a step slower without changing a result fails here.
#include "ggml-train/graph/compute.h"
#include "ggml-train/graph/graph.h"
#include "models/blocks.h"
#include "models/presets.h"
#include "tests/catch.h"

#include <cstdio>
#include <ggml-impl.h>

using namespace gt;

namespace {

struct Cost {
    double bytes = 0, nodes = 0, transposes = 0, waits = 0;
};

// Bytes that a node reads and writes once; views cost nothing.
double bytes_of(const ggml_tensor * node) {
    const bool sparse = node->op == GGML_OP_GET_ROWS || node->op == GGML_OP_SET_ROWS;
    double     bytes  = 0;
    for (const ggml_tensor * src : node->src) {
        // the table is not read as a whole; the target of SET_ROWS and a cast's own memory not at all
        const bool skipped = !src || src == node ||
                             (sparse && ggml_nelements(src) > ggml_nelements(node)) ||
                             (node->op == GGML_OP_SET_ROWS && src == node->src[2]);
        bytes += skipped ? 0.0 : static_cast<double>(ggml_nbytes(src));
    }
    const ggml_tensor * out = node->op == GGML_OP_SET_ROWS ? node->src[0] : node;
    return bytes + static_cast<double>(ggml_nbytes(out));
}

Cost count(ggml_cgraph * graph) {
    Cost cost;
    int  last = -1;
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        const ggml_tensor * node = ggml_graph_node(graph, i);
        if (ggml_op_is_empty(node->op)) {
            continue;
        }
        const int ours = find_device_run(node) ? 1 : 0;  // compute.cpp waits at every change
        cost.waits += ours != last ? 1 : 0;
        last = ours;
        cost.nodes += 1;
        cost.bytes += bytes_of(node);
        const bool copies = node->op == GGML_OP_CONT || node->op == GGML_OP_CPY;
        cost.transposes += copies && ggml_is_transposed(node->src[0]) ? 1 : 0;
    }
    return cost;
}

// Of all blocks: those after the second cost what the second does.
Cost cost_of_gpt2(Form form) {
    constexpr int64_t kSamples = 4, kTokens = 1024;
    Cost              cost[2];
    ModelConfig       config  = find_preset("gpt2-124m").config;
    const auto        n_layer = static_cast<double>(config.n_layer);
    config.n_vocab            = 50257;
    config.n_ctx              = kTokens;
    for (const int64_t n : {1, 2}) {
        config.n_layer = n;
        const Backend   backend("cpu", 1);
        const auto      model = make_model(backend, config, true);
        const StepGraph graph(backend, *model, {.B = kSamples, .T = kTokens, .form = form});
        cost[n - 1] = count(graph.graph());
    }
    const auto all = [&](double Cost::*what) {
        return cost[0].*what + (n_layer - 1.0) * (cost[1].*what - cost[0].*what);
    };
    return {
        all(&Cost::bytes) / (kSamples * kTokens), all(&Cost::nodes), all(&Cost::transposes),
        form == Form::device ? all(&Cost::waits) : 1.0};
}

}  // namespace

TEST_CASE("a_step_of_gpt2_reads_and_writes_no_more_than_counted") {
    const struct {
        const char * name;
        Form         form;
        Cost         most;
    } limits[] = {
        {"device", Form::device, {10.5e6, 690, 165, 215}},
        {"portable", Form::portable, {34.5e6, 2000, 250, 1}},
    };
    for (const auto & [name, form, most] : limits) {
        const Cost cost = cost_of_gpt2(form);
        std::printf(
            "%s form: %.1f MB per token, %.0f nodes, %.0f transposing copies, %.0f host waits\n",
            name, cost.bytes / 1e6, cost.nodes, cost.transposes, cost.waits
        );
        INFO(name);
        CHECK(cost.bytes <= most.bytes);
        CHECK(cost.bytes > 0.9 * most.bytes);  // the count sees the graph
        CHECK(cost.nodes <= most.nodes);
        CHECK(cost.transposes <= most.transposes);
        CHECK(cost.waits <= most.waits);
    }
}
