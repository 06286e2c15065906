#include "ggml-train/base/file.h"
#include "ggml-train/gguf/gguf-read.h"
#include "models/init.h"
#include "models/model-file.h"
#include "models/presets.h"
#include "tests/catch.h"
#include "tests/scratch.h"

#include <cmath>
#include <cstring>

using namespace gt;

static ModelFile tiny(const std::string & preset, int64_t n_vocab = 67) {
    ModelConfig config = find_preset(preset).config;
    config.n_layer     = 2;
    config.n_vocab     = takes_images(config) ? 0 : n_vocab;
    if (takes_images(config)) {
        config.image_size = 32;
    }
    ModelFile model = empty_model(config);
    init_model(model, 7);
    return model;
}

TEST_CASE("tensor_table_matches_the_golden_files") {
    for (const char * name : {"gpt2-tiny", "llama-tiny", "vit-tiny"}) {
        const std::string path   = std::string(GT_SOURCE_DIR "/tests/golden/") + name + ".gguf";
        const auto        gguf   = open_gguf(path);
        ModelConfig       config = read_config(gguf.get(), path);
        config.tied              = gguf_find_tensor(gguf.get(), "init/output.weight") < 0;
        size_t n_init            = 0;
        for (int64_t i = 0; i < gguf_get_n_tensors(gguf.get()); ++i) {
            n_init += std::strncmp(gguf_get_tensor_name(gguf.get(), i), "init/", 5) == 0;
        }
        const auto specs = tensor_specs(config);
        CHECK(specs.size() == n_init);
        for (const TensorSpec & spec : specs) {
            const int64_t id = gguf_find_tensor(gguf.get(), ("init/" + spec.name).c_str());
            INFO(name << " " << spec.name);
            REQUIRE(id >= 0);
            const int64_t * ne = gguf_get_tensor_ne(gguf.get(), id);
            CHECK(std::equal(ne, ne + 4, spec.ne.begin()));
        }
    }
}

TEST_CASE("presets_have_the_published_sizes") {
    ModelConfig gpt2 = find_preset("gpt2-124m").config;
    gpt2.n_vocab     = 50257;
    CHECK(n_params(gpt2) == 124439808);  // as HF counts gpt2
    ModelConfig vit = find_preset("vit-small").config;
    vit.n_classes   = 1000;
    CHECK(n_params(vit) == 22050664);  // as timm counts deit_small_patch16_224
    CHECK_THROWS_AS(find_preset("gpt3"), Error);
    for (const Preset & preset : presets()) {
        ModelConfig config = preset.config;
        config.n_vocab     = takes_images(config) ? 0 : 257;
        CHECK_NOTHROW(check_config(config, preset.name));
    }
}

TEST_CASE("a_trained_model_is_known_by_its_norms_and_biases") {
    for (const char * preset : {"gpt-tiny", "llama-tiny", "vit-micro"}) {
        ModelFile model = tiny(preset);
        CHECK_FALSE(is_trained(model));
        for (ModelTensor & tensor : model.tensors) {
            if (tensor.spec.init == Init::ones) {
                tensor.data[0] += 1e-6f;
                break;
            }
        }
        CHECK(is_trained(model));
    }
}

TEST_CASE("a_model_file_round_trips_bit_for_bit") {
    for (const char * preset : {"gpt-tiny", "llama-tiny", "vit-tiny"}) {
        const Scratch   dir;
        const ModelFile model = tiny(preset);
        save_model(dir / "m.gguf", model);
        CHECK_FALSE(std::filesystem::exists(dir / "m.gguf.part"));
        const ModelFile again = load_model(dir / "m.gguf");
        CHECK(describe(again.config) == describe(model.config));
        CHECK(again.config.image_mean == model.config.image_mean);
        REQUIRE(again.tensors.size() == model.tensors.size());
        for (size_t i = 0; i < model.tensors.size(); ++i) {
            CHECK(again.tensors[i].spec.name == model.tensors[i].spec.name);
            CHECK(again.tensors[i].data == model.tensors[i].data);
        }
        save_model(dir / "n.gguf", again);
        save_model(dir / "o.gguf", load_model(dir / "n.gguf"));
        CHECK(read_text(dir / "n.gguf") == read_text(dir / "o.gguf"));
    }
}

TEST_CASE("smaller_weight_types_stay_close_and_keep_vectors_exact") {
    const Scratch   dir;
    const ModelFile model = tiny("gpt-tiny");
    const struct {
        const char * type;
        float        bound;
    } cases[] = {{"f16", 1e-3f}, {"bf16", 8e-3f}, {"Q8_0", 1e-2f}};
    for (const auto & c : cases) {
        const auto notes = save_model(dir / "m.gguf", model, parse_weight_type(c.type));
        CHECK(notes.empty());
        const ModelFile again = load_model(dir / "m.gguf");
        for (size_t i = 0; i < model.tensors.size(); ++i) {
            const ModelTensor &a = model.tensors[i], &b = again.tensors[i];
            float              largest = 0, worst = 0;
            for (size_t k = 0; k < a.data.size(); ++k) {
                largest = std::max(largest, std::fabs(a.data[k]));
                worst   = std::max(worst, std::fabs(a.data[k] - b.data[k]));
            }
            INFO(c.type << " " << a.spec.name);
            CHECK(worst <= c.bound * largest);
            if (a.spec.kind == ParamKind::vector || a.spec.name == "position_embd.weight") {
                CHECK(worst == 0.0f);
            } else {
                CHECK(worst > 0.0f);
            }
        }
    }
    CHECK_THROWS_AS(parse_weight_type("q4"), Error);
}

TEST_CASE("rows_that_do_not_fit_q8_0_fall_back_to_f16_with_a_note") {
    const Scratch dir;
    ModelConfig   config = tiny("gpt-tiny").config;
    config.n_embd        = 40;
    config.n_ff          = 96;
    ModelFile model      = empty_model(config);
    init_model(model, 1);
    const auto notes = save_model(dir / "m.gguf", model, WeightType::q8_0);
    REQUIRE(notes.size() == 1);
    CHECK_THAT(notes[0], ContainsSubstring("F16"));
    const auto gguf = open_gguf(dir / "m.gguf");
    const auto type = [&](const char * name) {
        return gguf_get_tensor_type(gguf.get(), gguf_find_tensor(gguf.get(), name));
    };
    CHECK(type("token_embd.weight") == GGML_TYPE_F16);
    CHECK(type("blk.0.ffn_down.weight") == GGML_TYPE_Q8_0);
    CHECK(type("blk.0.ffn_down.bias") == GGML_TYPE_F32);
}

TEST_CASE("bad_model_files_are_refused_with_a_reason") {
    const Scratch   dir;
    const ModelFile model = tiny("llama-tiny");
    const auto why = [&](const char * name) { return error_of([&] { load_model(dir / name); }); };
    CHECK_THAT(why("none.gguf"), ContainsSubstring("no such file"));
    write_text(dir / "text.gguf", "Hello, this is no model at all.");
    CHECK_THAT(why("text.gguf"), ContainsSubstring("not a GGUF"));

    save_model(dir / "m.gguf", model);
    const std::string whole = read_text(dir / "m.gguf");
    for (size_t n = 0; n < whole.size(); n += whole.size() / 57 + 1) {  // cut at any place
        write_text(dir / "cut.gguf", whole.substr(0, n));
        CHECK_FALSE(why("cut.gguf").empty());
    }
    write_text(dir / "cut.gguf", whole.substr(0, whole.size() - 40));
    CHECK_THAT(why("cut.gguf"), ContainsSubstring("cut.gguf: cut off: tensor "));

    // keys of another value or type, tensors of another shape, other architectures
    const auto change = [&](const char * name, auto && fn) {
        ModelFile other = tiny("llama-tiny");
        fn(other);
        save_model(dir / name, other);
        std::string text = read_text(dir / name);
        return text;
    };
    std::string text = change("a.gguf", [](ModelFile &) {});
    text.replace(text.find("llama"), 5, "mamba");
    write_text(dir / "a.gguf", text);
    CHECK_THAT(why("a.gguf"), ContainsSubstring("architecture \"mamba\""));

    ModelFile part = tiny("llama-tiny");
    gguf_set_val_u16(part.keys.get(), "split.count", 3);
    save_model(dir / "part.gguf", part);
    CHECK_THAT(why("part.gguf"), ContainsSubstring("one file of a split model"));

    text = whole;
    text.replace(text.find("blk.1.ffn_up.weight"), 19, "blk.7.ffn_up.weight");
    write_text(dir / "b.gguf", text);
    CHECK_THAT(why("b.gguf"), ContainsSubstring("blk.1.ffn_up.weight is missing"));

    text                                      = whole;
    text[text.find("llama.block_count") + 17] = 8;  // the type: a string
    write_text(dir / "c.gguf", text);
    CHECK_FALSE(why("c.gguf").empty());

    text                                      = whole;
    text[text.find("llama.block_count") + 21] = 1;  // the value
    write_text(dir / "d.gguf", text);
    CHECK_THAT(why("d.gguf"), ContainsSubstring("blk.1.") && ContainsSubstring("not part of"));

    text                                              = whole;
    text[text.find("llama.feed_forward_length") + 29] = 64;  // 352 -> 320
    write_text(dir / "e.gguf", text);
    CHECK_THAT(why("e.gguf"), ContainsSubstring("[128, 352]") && ContainsSubstring("[128, 320]"));
}

TEST_CASE("any_flipped_byte_of_a_model_head_is_an_error_or_harmless") {
    const Scratch dir;
    save_model(dir / "m.gguf", tiny("gpt-tiny"));
    const std::string whole = read_text(dir / "m.gguf");
    for (size_t i = 0; i < 2500; i += 7) {
        std::string text = whole;
        text[i]          = static_cast<char>(text[i] ^ (1 << (i % 8)));
        write_text(dir / "x.gguf", text);
        error_of([&] { load_model(dir / "x.gguf"); });  // must not abort
    }
}

TEST_CASE("a_gpt2_output_that_equals_the_embedding_is_tied") {
    const Scratch dir;
    ModelConfig   config = tiny("gpt-tiny").config;
    config.tied          = false;
    ModelFile model      = empty_model(config);
    init_model(model, 3);
    model.at("output.weight").data = model.at("token_embd.weight").data;
    save_model(dir / "m.gguf", model);
    const ModelFile again = load_model(dir / "m.gguf");
    CHECK(again.config.tied);
    CHECK(again.notes.size() == 1);
    CHECK(again.tensors.back().spec.name == "output_norm.bias");
}

TEST_CASE("padding_rows_of_a_vocabulary_are_dropped_on_load") {
    const Scratch dir;
    ModelFile     model   = tiny("gpt-tiny", 64);
    const char *  names[] = {"a", "b", "c", "d", "e"};
    gguf_set_arr_str(model.keys.get(), "tokenizer.ggml.tokens", names, 5);
    save_model(dir / "m.gguf", model);
    const ModelFile again = load_model(dir / "m.gguf");
    CHECK(again.config.n_vocab == 5);
    CHECK(again.at("token_embd.weight").data.size() == 5 * 128);
    CHECK(tokenizer_digest(again.keys.get()) == tokenizer_digest(model.keys.get()));
    CHECK(tokenizer_digest(again.keys.get()) != 0);
}

TEST_CASE("a_failed_write_leaves_the_old_file_unchanged") {
    const Scratch dir;
    write_text(dir / "x", "old");
    {
        AsideFile file(dir / "x");
        file.write("new", 3);
    }
    CHECK(read_text(dir / "x") == "old");
    CHECK_FALSE(std::filesystem::exists(dir / "x.part"));
    CHECK_THROWS_AS(AsideFile(dir / "no/such/folder"), Error);
    if (std::filesystem::exists("/dev/full")) {  // a disk that is always full
        std::filesystem::create_symlink("/dev/full", dir / "x.part");
        CHECK_THAT(
            error_of([&] {
                AsideFile file(dir / "x");
                file.write("new", 3);
                file.commit();
            }),
            ContainsSubstring("No space left") && ContainsSubstring("unchanged")
        );
        CHECK(read_text(dir / "x") == "old");
    }
}

TEST_CASE("init_is_normal_and_depends_on_seed_and_name_only") {
    TensorSpec         spec{"a.weight", {100, 1000, 1, 1}, ParamKind::matrix, Init::normal, 0.02f};
    std::vector<float> x(100000), y(100000);
    init_tensor(spec, 1, x);
    const auto moments = [&](const std::vector<float> & v, double & mean, double & dev,
                             double & kurt) {
        mean = dev = kurt = 0;
        for (const float f : v) {
            mean += f;
        }
        mean /= v.size();
        for (const float f : v) {
            dev += (f - mean) * (f - mean);
        }
        dev = std::sqrt(dev / v.size());
        for (const float f : v) {
            kurt += std::pow((f - mean) / dev, 4);
        }
        kurt /= v.size();
    };
    double mean, dev, kurt;
    moments(x, mean, dev, kurt);
    CHECK(std::fabs(mean) < 3e-4);
    CHECK(dev == Approx(0.02).epsilon(0.01));
    CHECK(kurt == Approx(3.0).margin(0.1));
    init_tensor(spec, 1, y);
    CHECK(x == y);
    init_tensor(spec, 2, y);
    CHECK(x != y);
    spec.name = "b.weight";
    init_tensor(spec, 1, y);
    CHECK(x != y);
    spec.init = Init::trunc_normal;
    init_tensor(spec, 1, y);
    for (const float f : y) {
        REQUIRE(std::fabs(f) <= 0.04f);
    }
    moments(y, mean, dev, kurt);
    CHECK(dev == Approx(0.02 * 0.8796).epsilon(0.01));
}
