#include "models/convert/vit-names.h"

#include "ggml-train/base/base.h"

#include <span>
#include <utility>

namespace gt {

namespace {

using Pair = std::pair<const char *, const char *>;

// ours, timm's
constexpr Pair kOutside[] = {
    {"v.class_embd", "cls_token"},
    {"v.position_embd.weight", "pos_embed"},
    {"v.patch_embd.", "patch_embed.proj."},
    {"v.pre_ln.", "norm_pre."},
    {"v.post_ln.", "norm."},
    {"v.cls.", "head."},
};
constexpr Pair kInBlocks[] = {
    {"ln1.", "norm1."},          {"attn_q.", "attn.q_proj."}, {"attn_k.", "attn.k_proj."},
    {"attn_v.", "attn.v_proj."}, {"attn_out.", "attn.proj."}, {"ls1.weight", "ls1.gamma"},
    {"ln2.", "norm2."},          {"ffn_up.", "mlp.fc1."},     {"ffn_down.", "mlp.fc2."},
    {"ls2.weight", "ls2.gamma"},
};

// Hugging Face's, timm's; the first match counts
constexpr Pair kHfOutside[] = {
    {"embeddings.cls_token", "cls_token"},
    {"embeddings.distillation_token", "dist_token"},
    {"embeddings.mask_token", "mask_token"},
    {"embeddings.register_tokens", "reg_token"},
    {"embeddings.position_embeddings", "pos_embed"},
    {"embeddings.patch_embeddings.projection.", "patch_embed.proj."},
    {"layernorm.", "norm."},
    {"classifier.", "head."},
    {"cls_classifier.", "head."},
    {"distillation_classifier.", "head_dist."},
};
constexpr Pair kHfInBlocks[] = {
    {"attention.attention.query.", "attn.q_proj."},
    {"attention.attention.key.", "attn.k_proj."},
    {"attention.attention.value.", "attn.v_proj."},
    {"attention.output.dense.", "attn.proj."},
    {"attention.q_proj.", "attn.q_proj."},  // transformers 5
    {"attention.k_proj.", "attn.k_proj."},
    {"attention.v_proj.", "attn.v_proj."},
    {"attention.o_proj.", "attn.proj."},
    {"intermediate.dense.", "mlp.fc1."},
    {"output.dense.", "mlp.fc2."},
    {"layernorm_before.", "norm1."},
    {"layernorm_after.", "norm2."},
    {"layer_scale1.lambda1", "ls1.gamma"},
    {"layer_scale2.lambda1", "ls2.gamma"},
};

// The name with the first prefix of the table replaced; nothing if none fits.
std::optional<std::string> replaced(const std::string & name, std::span<const Pair> table) {
    for (const auto & [from, to] : table) {
        if (name.starts_with(from)) {
            return to + name.substr(std::string(from).size());
        }
    }
    return std::nullopt;
}

// The length of "PREFIX<number>." at the begin of the name; 0: it does not begin so.
size_t block_prefix(const std::string & name, const std::string & prefix) {
    if (!name.starts_with(prefix)) {
        return 0;
    }
    const size_t end = name.find_first_not_of("0123456789", prefix.size());
    return end != std::string::npos && end > prefix.size() && name[end] == '.' ? end + 1 : 0;
}

}  // namespace

std::string timm_name(const std::string & ours, const ModelConfig & config) {
    if (config.norm_pooled && ours.starts_with("v.post_ln.")) {
        return "fc_" + *replaced(ours, kOutside);
    }
    const std::string prefix = "v.blk.";
    const size_t      n      = block_prefix(ours, prefix);
    const auto        name = n > 0 ? replaced(ours.substr(n), kInBlocks) : replaced(ours, kOutside);
    GT_CHECK(name, ours.c_str());
    return n > 0 ? "blocks." + ours.substr(prefix.size(), n - prefix.size()) + *name : *name;
}

std::string to_timm_name(const std::string & name) {
    std::string rest = name;
    for (const char * model : {"vit.", "deit.", "dinov2."}) {
        if (rest.starts_with(model)) {
            rest = rest.substr(std::string(model).size());
            break;
        }
    }
    for (const char * blocks : {"encoder.layer.", "encoder.layers.", "layers."}) {
        if (const size_t n = block_prefix(rest, blocks)) {
            const std::string at = std::string(blocks);
            const std::string in = rest.substr(n);
            return "blocks." + rest.substr(at.size(), n - at.size()) +
                   replaced(in, kHfInBlocks).value_or(in);
        }
    }
    return replaced(rest, kHfOutside).value_or(rest);
}

bool is_for_training(const std::string & timm) {
    return timm == "dist_token" || timm == "mask_token" || timm.starts_with("head_dist.") ||
           timm.starts_with("pooler.");
}

}  // namespace gt
