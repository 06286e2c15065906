// The table of architectures: toy-arch.cpp and one row add one.
#include "ggml-train/graph/graph.h"
#include "models/blocks.h"
#include "models/init.h"
#include "models/presets.h"
#include "tests/catch.h"
#include "tests/scratch.h"

#include <cmath>

using namespace gt;

namespace gt {
Arch toy_arch();
}

// Appends the toy's row while a test runs.
struct WithToy {
    WithToy() { architectures().push_back(toy_arch()); }
    ~WithToy() { architectures().pop_back(); }
};

TEST_CASE("an_unknown_architecture_is_refused_with_the_known_names") {
    CHECK_THAT(
        error_of([] { find_arch("toy", "m.gguf"); }),
        ContainsSubstring("m.gguf: architecture \"toy\" is not one we train (gpt2, gemma3, llama, "
                          "qwen2, qwen3, vit)")
    );
    const WithToy toy;
    CHECK_THAT(
        error_of([] { find_arch("tay"); }),
        ContainsSubstring("(gpt2, gemma3, llama, qwen2, qwen3, vit, toy)")
    );
}

TEST_CASE("one_file_and_one_row_add_an_architecture") {
    const WithToy toy;
    const Scratch dir;

    // sizes: from the preset, from flags, and refused by the toy's own check
    ModelConfig config = find_preset("toy-tiny").config;
    CHECK(
        sized_config("", {.arch = "toy", .layers = 1, .width = 8, .heads = 1, .context = 4}).n_ff ==
        16
    );
    config.n_vocab = 30;
    check_config(config, "toy");
    CHECK(
        describe(config) ==
        "toy, 2 layers, 16 wide, 1 head, context 8, vocabulary 30, 2.72k weights"
    );
    ModelConfig narrow = config;
    narrow.n_ff        = 4;
    CHECK_THAT(
        error_of([&] { check_config(narrow, "new-model"); }),
        ContainsSubstring("new-model: the mlp")
    );

    // a file, written and read back
    ModelFile model = empty_model(config);
    init_model(model, 1);
    save_model(dir / "toy.gguf", model);
    const ModelFile again = load_model(dir / "toy.gguf");
    CHECK(describe(again.config) == describe(config));
    CHECK(again.config.norm_eps == config.norm_eps);
    REQUIRE(again.tensors.size() == model.tensors.size());

    // one step of gradient descent lowers the loss
    const Backend backend("cpu", 1);
    const auto    graph_model = make_model(backend, again.config, true);
    for (const ModelTensor & tensor : again.tensors) {
        CHECK(tensor.data == model.at(tensor.spec.name).data);
        graph_model->weights().set(graph_model->weights().at(tensor.spec.name), tensor.data);
    }
    StepGraph graph(backend, *graph_model, {.B = 2, .T = 8});
    Batch     batch{.n_samples = 2};
    for (int32_t i = 0; i < 16; ++i) {
        batch.tokens.push_back(i % 30);
        batch.labels.push_back((7 * i + 1) % 30);
    }
    const double before = graph.run(batch);
    for (const Param & param : graph_model->params()) {
        std::vector<float> weight(n_elements(param)), grad(n_elements(param));
        graph_model->weights().get(param, weight);
        graph_model->weights().get_grad(param, grad);
        for (size_t i = 0; i < weight.size(); ++i) {
            weight[i] -= 0.01f * grad[i];
        }
        graph_model->weights().set(param, weight);
    }
    CHECK(before / 16 == Approx(std::log(30.0)).epsilon(0.1));
    CHECK(graph.run(batch) < before);
}
