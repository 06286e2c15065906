#include "models/generate.h"
#include "models/init.h"
#include "models/presets.h"
#include "models/tokenizer.h"
#include "tests/catch.h"
#include "tests/scratch.h"

using namespace gt;
using Catch::Matchers::Contains;

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

TEST_CASE("llama_cpp_writes_with_our_files_in_every_type") {
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

TEST_CASE("writing_goes_on_beyond_the_context") {
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

TEST_CASE("files_that_llama_cpp_cannot_run_are_named") {
    const Scratch dir;
    ModelConfig   config = find_preset("vit-micro").config;
    save_model(dir / "vit.gguf", empty_model(config));
    CHECK_THAT(
        error_of([&] { Generator g(dir / "vit.gguf"); }),
        Contains("vit.gguf: llama.cpp cannot load it (") && Contains("vit")
    );
    CHECK_THAT(error_of([&] { Generator g(dir / "none.gguf"); }), Contains("no such file"));
}
