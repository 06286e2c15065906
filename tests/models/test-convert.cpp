// Models of timm and Hugging Face, in and out.
#include "ggml-train/base/json.h"
#include "models/convert/export-vit.h"
#include "models/convert/import-vit.h"
#include "models/convert/safetensors.h"
#include "models/convert/vit-config.h"
#include "models/convert/vit-names.h"
#include "models/init.h"
#include "tests/catch.h"
#include "tests/scratch.h"

#include <cstring>
#include <filesystem>

using namespace gt;

namespace {

// A small ViT with every optional part, and weights that differ everywhere.
ModelFile some_vit(const std::string & pooling, bool norm_pooled) {
    ModelConfig c = find_arch("vit").defaults;
    c.n_layer     = 2;
    c.n_embd      = 24;
    c.n_head = c.n_head_kv = 3;
    c.n_ff                 = 40;  // no multiple of the width
    c.image_size           = 16;
    c.image_width          = 24;
    c.patch_size           = 8;
    c.n_classes            = 5;
    c.class_names          = {"a", "b", "c", "d", "e"};
    c.image_mean           = {0.5f, 0.4f, 0.3f};
    c.image_std            = {0.2f, 0.25f, 0.3f};
    c.image_crop           = 1.0f;
    c.image_stored         = 24;
    c.pooling              = pooling;
    c.norm_pooled          = norm_pooled;
    c.layer_scale          = norm_pooled;
    c.pre_norm             = !norm_pooled;
    check_config(c, "some_vit");
    ModelFile model = empty_model(c);
    init_model(model, 1);
    for (ModelTensor & tensor : model.tensors) {
        for (size_t i = 0; i < tensor.data.size(); ++i) {
            tensor.data[i] += 1e-3f * static_cast<float>(i % 97);
        }
    }
    if (c.pre_norm) {  // timm has none then
        std::fill_n(model.at("v.patch_embd.bias").data.begin(), c.n_embd, 0.0f);
    }
    return model;
}

void check_equal(const ModelFile & a, const ModelFile & b) {
    CHECK(describe(a.config) == describe(b.config));
    CHECK(a.config.pooling == b.config.pooling);
    CHECK(a.config.norm_pooled == b.config.norm_pooled);
    CHECK(a.config.norm_eps == b.config.norm_eps);
    CHECK(a.config.image_mean == b.config.image_mean);
    CHECK(a.config.image_stored == b.config.image_stored);
    CHECK(a.config.class_names == b.config.class_names);
    REQUIRE(a.tensors.size() == b.tensors.size());
    for (const ModelTensor & tensor : a.tensors) {
        INFO(tensor.spec.name);
        CHECK(tensor.data == b.at(tensor.spec.name).data);
    }
}

// The tensors of a file, to change and write again.
struct Loose {
    std::vector<SafeValues>                   tensors;
    std::map<std::string, std::vector<float>> memory;

    explicit Loose(const std::string & path) {
        const MappedFile file(path);
        for (const auto & [name, tensor] : parse_safetensors(file.bytes(), path).tensors) {
            add(name, tensor.shape, read_values(file.bytes(), tensor));
        }
    }
    void
    add(const std::string & name, const std::vector<int64_t> & shape, std::vector<float> values) {
        memory[name] = std::move(values);
        tensors.push_back({name, shape, memory[name]});
    }
    void drop(const std::string & name) {
        std::erase_if(tensors, [&](const SafeValues & tensor) { return tensor.name == name; });
    }
    void write(const std::string & path) const { write_safetensors(path, tensors, {}); }
};

std::string with_header(const std::string & header, size_t n_data) {
    const uint64_t n = header.size();
    std::string    text(sizeof(n), '\0');
    std::memcpy(text.data(), &n, sizeof(n));
    return text + header + std::string(n_data, '\0');
}

}  // namespace

TEST_CASE("a_vit_written_for_timm_is_read_back_bit_for_bit") {
    const Scratch dir;
    for (const auto & [pooling, norm_pooled] :
         {std::pair{"cls", false},
          {"mean", false},
          {"mean", true},
          {"avg", false},
          {"avg", true}}) {
        INFO(pooling << norm_pooled);
        const ModelFile model = some_vit(pooling, norm_pooled);
        save_timm(dir / "model.safetensors", model);
        check_equal(import_vit(dir / "model.safetensors", 0, 0, 1), model);
    }
}

TEST_CASE("the_architecture_named_for_timm_has_the_models_epsilon") {
    ModelConfig config = some_vit("cls", false).config;
    for (const auto & [epsilon, name] :
         {std::pair{1e-6f, "vit_tiny_patch16_224"}, {1e-5f, "vit_base_patch16_clip_224"}}) {
        config.norm_eps = epsilon;
        CHECK(Json::parse(timm_config_text(config))->string("architecture") == name);
    }
}

TEST_CASE("a_bias_that_timm_does_not_have_becomes_part_of_the_positions") {
    const Scratch dir;
    ModelFile     model = some_vit("cls", false);
    std::fill_n(model.at("v.patch_embd.bias").data.begin(), 24, 0.5f);
    save_timm(dir / "model.safetensors", model);
    const ModelFile made = import_vit(dir / "model.safetensors", 0, 0, 1);
    const auto &    now  = made.at("v.position_embd.weight").data;
    const auto &    was  = model.at("v.position_embd.weight").data;
    CHECK(made.at("v.patch_embd.bias").data == std::vector<float>(24));
    CHECK(now[0] == was[0]);  // the class token's
    CHECK(now[24] == was[24] + 0.5f);
    CHECK(now.back() == was.back() + 0.5f);
}

TEST_CASE("hugging_faces_names_are_those_of_timm") {
    for (const auto & [theirs, timm] : std::vector<std::pair<std::string, std::string>>{
             {"vit.embeddings.cls_token", "cls_token"},
             {"vit.embeddings.position_embeddings", "pos_embed"},
             {"vit.embeddings.patch_embeddings.projection.bias", "patch_embed.proj.bias"},
             {"vit.encoder.layer.11.attention.attention.key.bias", "blocks.11.attn.k_proj.bias"},
             {"vit.encoder.layer.0.attention.output.dense.weight", "blocks.0.attn.proj.weight"},
             {"vit.encoder.layer.0.output.dense.weight", "blocks.0.mlp.fc2.weight"},
             {"vit.encoder.layer.0.intermediate.dense.weight", "blocks.0.mlp.fc1.weight"},
             {"vit.encoder.layer.0.layernorm_before.weight", "blocks.0.norm1.weight"},
             {"vit.encoder.layer.0.layernorm_after.weight", "blocks.0.norm2.weight"},
             {"vit.layernorm.weight", "norm.weight"},
             {"classifier.weight", "head.weight"},
             {"deit.embeddings.distillation_token", "dist_token"},
             {"cls_classifier.bias", "head.bias"},
             {"dinov2.encoder.layer.0.layer_scale1.lambda1", "blocks.0.ls1.gamma"},
             {"blocks.0.attn.qkv.weight", "blocks.0.attn.qkv.weight"}}) {
        CHECK(to_timm_name(theirs) == timm);
    }
    for (const TensorSpec & spec : base_specs(some_vit("cls", false).config)) {
        const std::string name = timm_name(spec.name, {});
        CHECK(to_timm_name(name) == name);
    }
}

TEST_CASE("parts_that_only_distillation_uses_are_dropped") {
    const Scratch   dir;
    const ModelFile model = some_vit("cls", false);
    save_timm(dir / "model.safetensors", model);
    Loose              loose(dir / "model.safetensors");
    std::vector<float> positions = loose.memory["pos_embed"];
    positions.insert(positions.begin() + 24, 24, 7.0f);  // the second token's
    loose.drop("pos_embed");
    loose.add("pos_embed", {1, 8, 24}, positions);
    loose.add("dist_token", {1, 1, 24}, std::vector<float>(24, 1.0f));
    loose.add("head_dist.weight", {5, 24}, std::vector<float>(120, 1.0f));
    loose.write(dir / "model.safetensors");
    const ModelFile made = import_vit(dir / "model.safetensors", 0, 0, 1);
    check_equal(made, model);
    REQUIRE(made.notes.size() == 1);
    CHECK_THAT(made.notes[0], ContainsSubstring("distillation"));
}

TEST_CASE("a_vit_without_classifier_gets_a_new_one_and_biases_may_be_missing") {
    const Scratch   dir;
    const ModelFile model = some_vit("cls", false);
    save_timm(dir / "model.safetensors", model);
    Loose loose(dir / "model.safetensors");
    loose.drop("head.weight");
    loose.drop("head.bias");
    loose.drop("blocks.1.attn.qkv.bias");
    loose.write(dir / "model.safetensors");
    CHECK_THAT(
        error_of([&] { import_vit(dir / "model.safetensors", 0, 0, 1); }),
        ContainsSubstring("has no classifier; add --classes N")
    );
    const ModelFile made = import_vit(dir / "model.safetensors", 0, 3, 1);
    CHECK(made.config.n_classes == 3);
    CHECK(made.at("v.blk.1.attn_k.bias").data == std::vector<float>(24));
    CHECK(made.at("v.blk.1.attn_k.weight").data == model.at("v.blk.1.attn_k.weight").data);
}

TEST_CASE("without_config_the_heads_are_assumed_or_asked_for") {
    const Scratch dir;
    save_timm(dir / "model.safetensors", some_vit("cls", false));
    std::filesystem::remove(dir / "config.json");
    Loose              loose(dir / "model.safetensors");
    std::vector<float> square = loose.memory["pos_embed"];
    square.resize(5 * 24);  // 2 x 2 patches: nothing says which rectangle six would be
    loose.drop("pos_embed");
    loose.add("pos_embed", {1, 5, 24}, square);
    loose.write(dir / "model.safetensors");
    CHECK_THAT(
        error_of([&] { import_vit(dir / "model.safetensors", 0, 0, 1); }),
        ContainsSubstring("add --heads N")
    );
    CHECK(import_vit(dir / "model.safetensors", 6, 0, 1).config.n_head == 6);
}

TEST_CASE("what_we_do_not_compute_is_refused") {
    const Scratch dir;
    const auto    refused = [&](const char * name, std::vector<int64_t> shape, const char * why) {
        save_timm(dir / "model.safetensors", some_vit("cls", false));
        Loose  loose(dir / "model.safetensors");
        size_t n = 1;
        for (const int64_t d : shape) {
            n *= static_cast<size_t>(d);
        }
        loose.drop(name);
        loose.add(name, shape, std::vector<float>(n));
        loose.write(dir / "model.safetensors");
        CHECK_THAT(
               error_of([&] { import_vit(dir / "model.safetensors", 0, 0, 1); }),
               ContainsSubstring(dir / "model.safetensors") && ContainsSubstring(why)
           );
    };
    refused("reg_token", {1, 4, 24}, "register tokens");
    refused("blocks.0.attn.q_norm.weight", {8}, "normalized queries");
    refused("something.else", {2}, "tensor something.else is not part of a ViT");
    refused("blocks.1.mlp.fc2.weight", {24, 41}, "blocks.1.mlp.fc2.weight is [24, 41]");
    refused("pos_embed", {1, 8, 24}, "8 positions are no square");

    save_timm(dir / "model.safetensors", some_vit("cls", false));
    Loose loose(dir / "model.safetensors");
    loose.drop("blocks.1.norm2.weight");
    loose.write(dir / "model.safetensors");
    CHECK_THAT(
        error_of([&] { import_vit(dir / "model.safetensors", 0, 0, 1); }),
        ContainsSubstring("tensor blocks.1.norm2.weight is missing")
    );
    write_text(dir / "config.json", "{");
    CHECK_THAT(
        error_of([&] { import_vit(dir / "model.safetensors", 0, 0, 1); }),
        ContainsSubstring("config.json: is not a JSON object")
    );
}

TEST_CASE("a_damaged_safetensors_file_is_refused_with_the_reason") {
    const auto why = [](const std::string & bytes) {
        return error_of([&] {
            parse_safetensors({reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()}, "m");
        });
    };
    const std::string entry = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
    CHECK(why(with_header("{" + entry + "}", 8)).empty());
    CHECK_THAT(why("abc"), ContainsSubstring("m: too short"));
    CHECK_THAT(why(with_header("{" + entry + "}", 4)), ContainsSubstring("cut off"));
    CHECK_THAT(why(with_header("{" + entry + "}", 9)), ContainsSubstring("belong to no tensor"));
    CHECK_THAT(why(with_header("{" + entry, 8)), ContainsSubstring("not a JSON object"));
    CHECK_THAT(why(with_header("[1]", 0)), ContainsSubstring("not a JSON object"));
    std::string longer = with_header("{" + entry + "}", 8);
    longer[1]          = 'x';  // a header of thousands of bytes
    CHECK_THAT(why(longer), ContainsSubstring("its header would have"));
    const auto one = [&](const char * text) {
        return why(with_header(std::string(R"({"a":)") + text + "}", 8));
    };
    CHECK_THAT(
        one(R"({"dtype":"I64","shape":[1],"data_offsets":[0,8]})"),
        ContainsSubstring("tensor a is of type I64")
    );
    CHECK_THAT(one(R"({"shape":[2],"data_offsets":[0,8]})"), ContainsSubstring("no dtype"));
    CHECK_THAT(
        one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"),
        ContainsSubstring("no valid shape")
    );
    CHECK_THAT(
        one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), ContainsSubstring("needs more")
    );
    CHECK_THAT(
        one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"),
        ContainsSubstring("needs more bytes")
    );
    CHECK_THAT(
        one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})"), ContainsSubstring("do not fit")
    );
    CHECK_THAT(
        one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"),
        ContainsSubstring("no valid data_offsets")
    );
    CHECK_THAT(one(R"(7)"), ContainsSubstring("no dtype"));
    CHECK_THAT(
        why(with_header(
            "{" + entry + R"(,"b":{"dtype":"F16","shape":[2],"data_offsets":[4,8]}})", 8
        )),
        ContainsSubstring("overlap")
    );
}

TEST_CASE("halves_become_floats") {
    std::string file = with_header(
        R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]},)"
        R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[4,8]}})",
        8
    );
    const uint16_t halves[] = {0x3c00, 0xc100, 0x3f80, 0xc020};
    std::memcpy(file.data() + file.size() - 8, halves, 8);
    const std::span<const uint8_t> bytes(
        reinterpret_cast<const uint8_t *>(file.data()), file.size()
    );
    const auto head = parse_safetensors(bytes, "m");
    CHECK(read_values(bytes, head.tensors.at("a")) == std::vector<float>{1.0f, -2.5f});
    CHECK(read_values(bytes, head.tensors.at("b")) == std::vector<float>{1.0f, -2.5f});
}
