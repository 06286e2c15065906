#include "ggml-train/base/file.h"
#include "ggml-train/gguf/gguf-read.h"
#include "models/init.h"
#include "models/presets.h"
#include "models/text/generate.h"
#include "models/text/tokenizer.h"
#include "tests/catch.h"
#include "tests/scratch.h"

#include <cmath>
#include <cstring>

using namespace gt;

static ModelFile byte_model(const char * preset) {
    ModelConfig config = find_preset(preset).config;
    config.n_layer     = 2;
    config.n_ctx       = 32;
    config.n_vocab     = 257;
    ModelFile model    = empty_model(config);
    model.keys         = byte_vocabulary();
    init_model(model, 1);
    return model;
}

TEST_CASE("llama_cpp_samples_from_our_files_of_every_type") {
    const Scratch dir;
    for (const char * preset : {"gpt-tiny", "llama-tiny"}) {
        const ModelFile model = byte_model(preset);
        for (const char * type : {"f32", "f16", "bf16", "q8_0"}) {
            INFO(preset << " " << type);
            save_model(dir / "m.gguf", model, parse_weight_type(type));
            Generator   generator(dir / "m.gguf", 1);
            std::string streamed;
            const auto  text =
                generator.run("Once", {.n_tokens = 20}, [&](const std::string & piece) {
                    streamed += piece;
                    return true;
                });
            CHECK(text.size() <= 20);
            CHECK(text == streamed);
            CHECK(generator.run("Once", {.n_tokens = 20}) == text);  // same seed, same text
            CHECK(generator.run("Once", {.n_tokens = 20, .seed = 2}) != text);
            CHECK(generator.logits(std::vector<int32_t>{1, 2, 3}).size() == 3 * 257);
        }
    }
}

TEST_CASE("sampling_continues_beyond_the_context") {
    const Scratch   dir;
    const ModelFile model = byte_model("gpt-tiny");
    save_model(dir / "m.gguf", model);
    Generator generator(dir / "m.gguf", 1);
    CHECK(generator.context() == 32);
    GenerateOptions greedy{.n_tokens = 100, .temperature = 0.0f};
    CHECK_FALSE(generator.run(std::string(100, 'a'), greedy).empty());
    CHECK_NOTHROW(generator.run("", greedy));
    std::vector<WeightView> weights;
    for (const ModelTensor & tensor : model.tensors) {
        weights.push_back({tensor.spec.name, tensor.data});
    }
    CHECK(
        generate_from(model.config, model.keys.get(), weights, dir.path(), "ab", greedy, 1) ==
        generator.run("ab", greedy)
    );
    CHECK_FALSE(std::filesystem::exists(dir / ".sample.gguf"));
}

TEST_CASE("an_error_names_the_file_that_llama_cpp_cannot_run") {
    const Scratch dir;
    ModelConfig   config = find_preset("vit-micro").config;
    save_model(dir / "vit.gguf", empty_model(config));
    CHECK_THAT(
        error_of([&] { Generator g(dir / "vit.gguf"); }),
        ContainsSubstring("vit.gguf: llama.cpp cannot load it (") && ContainsSubstring("vit")
    );
    CHECK_THAT(
        error_of([&] { Generator g(dir / "none.gguf"); }), ContainsSubstring("no such file")
    );
}

template <class T>
static std::vector<T> golden_tensor(const std::string & path, const std::string & name) {
    const auto       gguf = open_gguf(path);
    const MappedFile file(path);
    const int64_t    id = gguf_find_tensor(gguf.get(), name.c_str());
    REQUIRE(id >= 0);
    std::vector<T> data(gguf_get_tensor_size(gguf.get(), id) / sizeof(T));
    const size_t offset = gguf_get_data_offset(gguf.get()) + gguf_get_tensor_offset(gguf.get(), id);
    std::memcpy(data.data(), file.bytes().data() + offset, data.size() * sizeof(T));
    return data;
}

// Reads `init/` of a golden file into a model without tokenizer.
static ModelFile golden_model(const std::string & path) {
    const auto  gguf   = open_gguf(path);
    ModelConfig config = read_config(gguf.get(), path);
    config.tied        = gguf_find_tensor(gguf.get(), "init/output.weight") < 0;
    ModelFile model    = empty_model(config);
    gguf_set_val_str(model.keys.get(), "tokenizer.ggml.model", "no_vocab");
    for (ModelTensor & tensor : model.tensors) {
        tensor.data = golden_tensor<float>(path, "init/" + tensor.spec.name);
    }
    return model;
}

TEST_CASE("llama_cpp_computes_pytorchs_logits_from_our_files", "[ref]") {
    for (const char * name : {"gpt2-tiny", "llama-tiny"}) {
        const Scratch     dir;
        const std::string path = std::string(GT_SOURCE_DIR "/tests/golden/") + name + ".gguf";
        save_model(dir / "m.gguf", golden_model(path));
        Generator  generator(dir / "m.gguf", 1);
        const auto tokens   = golden_tensor<int32_t>(path, "tokens");  // [T + 1, B, steps]
        const auto expected = golden_tensor<float>(path, "logits");    // [V, T, B]
        const auto got      = generator.logits(std::span(tokens).first(24));
        float      largest = 0.0f, worst = 0.0f;
        for (size_t i = 0; i < got.size(); ++i) {
            largest = std::max(largest, std::fabs(expected[i]));
            worst   = std::max(worst, std::fabs(expected[i] - got[i]));
        }
        INFO(name << ": " << worst / largest);
        CHECK(got.size() == 24 * 101);
        CHECK(worst < 1e-3f * largest);
    }
}
