#include "models/convert/vit-config.h"

#include "ggml-train/base/file.h"
#include "ggml-train/base/json.h"

#include <cmath>
#include <filesystem>

namespace gt {

namespace {

std::optional<Json> read_json(const std::filesystem::path & path) {
    if (!std::filesystem::exists(path)) {
        return std::nullopt;
    }
    const MappedFile file(path.string());
    const auto       text =
        std::string_view(reinterpret_cast<const char *>(file.bytes().data()), file.bytes().size());
    auto json = Json::parse(text);
    if (!json || !json->is_object()) {
        throw Error(path.string() + ": is not a JSON object; copy it again, or move it away");
    }
    return json;
}

int64_t int_of(const Json & json, const char * key) {
    const double value = json.number(key).value_or(0.0);
    return value >= 0.0 && value <= 1e9 ? static_cast<int64_t>(value) : 0;
}

std::vector<float> floats_of(const Json & json, const char * key) {
    std::vector<float> values;
    for (const Json & element : json.array(key).value_or(std::vector<Json>{})) {
        values.push_back(static_cast<float>(element.number().value_or(0.0)));
    }
    return values;
}

// A number, or height and width at the end of a list: 224, [224, 160], [3, 224, 160].
void read_size(const Json & json, const char * key, VitConfig & c) {
    const std::vector<float> list = floats_of(json, key);
    if (list.size() >= 2) {
        c.image_height = static_cast<int64_t>(list[list.size() - 2]);
        c.image_width  = static_cast<int64_t>(list.back());
    } else if (const int64_t side = int_of(json, key); side > 0) {
        c.image_height = c.image_width = side;
    }
}

void read_timm(const Json & json, VitConfig & c) {
    c.name    = json.string("architecture").value_or("");
    c.pooling = json.string("global_pool").value_or("");
    if (const auto in = json.field("pretrained_cfg")) {
        read_size(*in, "input_size", c);
        c.mean      = floats_of(*in, "mean");
        c.deviation = floats_of(*in, "std");
        c.crop      = static_cast<float>(in->number("crop_pct").value_or(0.0));
    }
    if (const auto args = json.field("model_args")) {
        read_size(*args, "img_size", c);
        c.heads      = int_of(*args, "num_heads");
        c.pooling    = args->string("global_pool").value_or(c.pooling);
        c.activation = args->string("act_layer").value_or("");
    }
    for (const Json & name : json.array("label_names").value_or(std::vector<Json>{})) {
        c.class_names.push_back(name.string().value_or(""));
    }
    c.norm_eps = static_cast<float>(json.number("norm_eps").value_or(0.0));
}

void read_hf(const Json & json, VitConfig & c) {
    c.heads      = int_of(json, "num_attention_heads");
    c.norm_eps   = static_cast<float>(json.number("layer_norm_eps").value_or(0.0));
    c.activation = json.string("hidden_act").value_or("");
    read_size(json, "image_size", c);
    if (const auto labels = json.field("id2label")) {
        const size_t n = labels->keys().size();
        for (size_t i = 0; i < n; ++i) {
            c.class_names.push_back(labels->string(std::to_string(i)).value_or(""));
        }
        if (n > 0 && c.class_names[0] == "LABEL_0") {  // they were never named
            c.class_names.clear();
        }
    }
}

}  // namespace

VitConfig read_vit_config(const std::string & model) {
    const auto folder = std::filesystem::path(model).parent_path();
    VitConfig  c;
    if (const auto json = read_json(folder / "config.json")) {
        c.path = (folder / "config.json").string();
        json->string("architecture") ? read_timm(*json, c) : read_hf(*json, c);
    }
    if (const auto json = read_json(folder / "preprocessor_config.json")) {
        c.mean      = floats_of(*json, "image_mean");
        c.deviation = floats_of(*json, "image_std");
    }
    return c;
}

// The ratio from which timm computes our width inside the MLP: int(width * ratio).
static double mlp_ratio(int64_t width, int64_t mlp) {
    double ratio = static_cast<double>(mlp) / static_cast<double>(width);
    while (static_cast<int64_t>(static_cast<double>(width) * ratio) < mlp) {
        ratio = std::nextafter(ratio, 2.0 * ratio);
    }
    return ratio;
}

static Json list_of(const auto & values) {
    Json list = Json::array();
    for (const auto & value : values) {
        list.push(value);
    }
    return list;
}

std::string timm_config_text(const ModelConfig & c) {
    const char * pool = c.pooling == "cls" ? "token" : "avg";
    Json         args = Json::object();
    args.set("img_size", list_of(std::array{c.image_size, c.width()}))
        .set("patch_size", c.patch_size)
        .set("in_chans", c.channels)
        .set("embed_dim", c.n_embd)
        .set("depth", c.n_layer)
        .set("num_heads", c.n_head)
        .set("mlp_ratio", mlp_ratio(c.n_embd, c.n_ff))
        .set("class_token", c.has_class_token())
        .set("global_pool", pool)
        .set("fc_norm", c.norm_pooled)
        .set("pre_norm", c.pre_norm);
    if (c.layer_scale) {
        args.set("init_values", 1.0);
    }
    Json in = Json::object();
    in.set("input_size", list_of(std::array{c.channels, c.image_size, c.width()}))
        .set("fixed_input_size", true)
        .set("interpolation", "bilinear")
        .set("crop_pct", c.image_crop > 0.0f ? c.image_crop : 1.0f)
        .set("num_classes", c.n_classes)
        .set("pool_size", Json())
        .set("first_conv", "patch_embed.proj")
        .set("classifier", "head");
    if (!c.image_std.empty()) {
        in.set("mean", list_of(c.image_mean)).set("std", list_of(c.image_std));
    }
    // model_args set everything but the epsilon, which an architecture has: 1e-5 those of CLIP, 1e-6 the others
    const bool clip = c.norm_eps == 1e-5f;
    Json       json = Json::object();
    json.set("architecture", clip ? "vit_base_patch16_clip_224" : "vit_tiny_patch16_224")
        .set("num_classes", c.n_classes)
        .set("num_features", c.n_embd)
        .set("global_pool", pool)
        .set("model_args", args)
        .set("pretrained_cfg", in)
        .set("norm_eps", c.norm_eps);
    if (!c.class_names.empty()) {
        json.set("label_names", list_of(c.class_names));
    }
    return json.text();
}

}  // namespace gt
