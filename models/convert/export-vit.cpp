#include "models/convert/export-vit.h"

#include "models/convert/safetensors.h"
#include "models/convert/vit-config.h"
#include "models/convert/vit-names.h"

#include <deque>
#include <filesystem>

namespace gt {

// timm's shape, in C order.
static std::vector<int64_t> timm_shape(const TensorSpec & spec, const std::string & name) {
    if (name == "cls_token") {
        return {1, 1, spec.ne[0]};
    }
    if (name == "pos_embed") {
        return {1, spec.ne[1], spec.ne[0]};
    }
    if (name == "patch_embed.proj.weight") {
        return {spec.ne[3], spec.ne[2], spec.ne[1], spec.ne[0]};
    }
    if (spec.kind == ParamKind::vector) {
        return {spec.ne[0]};
    }
    return {spec.ne[1], spec.ne[0]};
}

// timm's patch embedding has no bias before a norm: it is added to the positions of the patches.
static std::vector<float> positions_with_bias(const ModelFile & model) {
    std::vector<float>         positions = model.at("v.position_embd.weight").data;
    const std::vector<float> & bias      = model.at("v.patch_embd.bias").data;
    const size_t               first     = model.config.has_class_token() ? bias.size() : 0;
    for (size_t i = first; i < positions.size(); ++i) {
        positions[i] += bias[i % bias.size()];
    }
    return positions;
}

std::string save_timm(const std::string & path, const ModelFile & model) {
    std::vector<SafeValues>        tensors;
    std::deque<std::vector<float>> joined;  // qkv, positions
    for (const ModelTensor & tensor : model.tensors) {
        const std::string name = timm_name(tensor.spec.name, model.config);
        const size_t      at   = name.find(".attn.q_proj.");
        if (at != std::string::npos) {
            std::vector<float> & qkv = joined.emplace_back();
            for (const char * part : {"attn_q", "attn_k", "attn_v"}) {
                std::string ours = tensor.spec.name;
                ours.replace(ours.find("attn_q"), 6, part);
                const std::vector<float> & data = model.at(ours).data;
                qkv.insert(qkv.end(), data.begin(), data.end());
            }
            std::vector<int64_t> shape = timm_shape(tensor.spec, name);
            shape[0] *= 3;
            const std::string tail = name.substr(at + std::string(".attn.q_proj.").size());
            tensors.push_back({name.substr(0, at) + ".attn.qkv." + tail, shape, qkv});
        } else if (model.config.pre_norm && name == "pos_embed") {
            const std::vector<float> & sums = joined.emplace_back(positions_with_bias(model));
            tensors.push_back({name, timm_shape(tensor.spec, name), sums});
        } else if (model.config.pre_norm && name == "patch_embed.proj.bias") {
            continue;
        } else if (name.find(".attn.k_proj.") == name.npos && name.find(".attn.v_proj.") == name.npos) {
            tensors.push_back({name, timm_shape(tensor.spec, name), tensor.data});
        }
    }
    const std::string config = (std::filesystem::path(path).parent_path() / "config.json").string();
    const std::string text   = timm_config_text(model.config) + "\n";
    write_safetensors(path, tensors, {{"format", "pt"}});
    AsideFile file(config);
    file.write(text.data(), text.size());
    file.commit();
    return config;
}

}  // namespace gt
