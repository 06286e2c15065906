#include "ggml-train/model-config.h"

#include "ggml-train/gguf-keys.h"

#include <cmath>
#include <limits>

namespace gt {

using Shape = std::array<int64_t, 4>;

// Collects the specs of one model; `out_std` is the init of projections that write to the residual
// stream, scaled by 1/sqrt(2L) (GPT-2, section 2.3) so that its variance does not grow with depth.
struct SpecList {
    std::vector<TensorSpec> specs;
    Init                    init;
    float                   out_std;

    void table(const std::string & name, Shape ne) {
        specs.push_back({name + ".weight", ne, ParamKind::embedding, init, 0.02f});
    }
    void linear(const std::string & name, Shape ne, bool bias, float std = 0.02f) {
        specs.push_back({name + ".weight", ne, ParamKind::matrix, init, std});
        if (bias) {
            const int64_t n_out = ne[3] > 1 ? ne[3] : ne[1];
            specs.push_back({name + ".bias", {n_out, 1, 1, 1}, ParamKind::vector, Init::zeros, 0});
        }
    }
    void norm(const std::string & name, int64_t C, bool bias) {
        specs.push_back({name + ".weight", {C, 1, 1, 1}, ParamKind::vector, Init::ones, 0});
        if (bias) {
            specs.push_back({name + ".bias", {C, 1, 1, 1}, ParamKind::vector, Init::zeros, 0});
        }
    }
};

static void add_gpt2(SpecList & list, const ModelConfig & c) {
    const int64_t C = c.n_embd, F = c.n_ff;
    list.table("token_embd", {C, c.n_vocab, 1, 1});
    list.table("position_embd", {C, c.n_ctx, 1, 1});
    for (int64_t l = 0; l < c.n_layer; ++l) {
        const std::string blk = "blk." + std::to_string(l) + ".";
        list.norm(blk + "attn_norm", C, true);
        list.linear(blk + "attn_qkv", {C, 3 * C, 1, 1}, true);  // rows: Q, K, V
        list.linear(blk + "attn_output", {C, C, 1, 1}, true, list.out_std);
        list.norm(blk + "ffn_norm", C, true);
        list.linear(blk + "ffn_up", {C, F, 1, 1}, true);
        list.linear(blk + "ffn_down", {F, C, 1, 1}, true, list.out_std);
    }
    list.norm("output_norm", C, true);
}

static void add_llama(SpecList & list, const ModelConfig & c) {
    const int64_t C = c.n_embd, F = c.n_ff, kv = c.n_head_kv * c.head_dim();
    list.table("token_embd", {C, c.n_vocab, 1, 1});
    for (int64_t l = 0; l < c.n_layer; ++l) {
        const std::string blk = "blk." + std::to_string(l) + ".";
        list.norm(blk + "attn_norm", C, false);
        list.linear(blk + "attn_q", {C, C, 1, 1}, false);
        list.linear(blk + "attn_k", {C, kv, 1, 1}, false);
        list.linear(blk + "attn_v", {C, kv, 1, 1}, false);
        list.linear(blk + "attn_output", {C, C, 1, 1}, false, list.out_std);
        list.norm(blk + "ffn_norm", C, false);
        list.linear(blk + "ffn_gate", {C, F, 1, 1}, false);
        list.linear(blk + "ffn_up", {C, F, 1, 1}, false);
        list.linear(blk + "ffn_down", {F, C, 1, 1}, false, list.out_std);
    }
    list.norm("output_norm", C, false);
}

static void add_vit(SpecList & list, const ModelConfig & c) {
    const int64_t C = c.n_embd, F = c.n_ff, P = c.patch_size;
    if (c.has_class_token()) {
        list.specs.push_back({"v.class_embd", {C, 1, 1, 1}, ParamKind::embedding, list.init, 0.02f}
        );
    }
    list.linear("v.patch_embd", {P, P, c.channels, C}, true);
    list.table("v.position_embd", {C, c.n_positions(), 1, 1});
    for (int64_t l = 0; l < c.n_layer; ++l) {
        const std::string blk = "v.blk." + std::to_string(l) + ".";
        list.norm(blk + "ln1", C, true);
        for (const char * name : {"attn_q", "attn_k", "attn_v", "attn_out"}) {
            list.linear(blk + name, {C, C, 1, 1}, true);
        }
        list.norm(blk + "ln2", C, true);
        list.linear(blk + "ffn_up", {C, F, 1, 1}, true);
        list.linear(blk + "ffn_down", {F, C, 1, 1}, true);
    }
    list.norm("v.post_ln", C, true);
    list.linear("v.cls", {C, c.n_classes, 1, 1}, true);
}

std::vector<TensorSpec> tensor_specs(const ModelConfig & c) {
    // The residual scale is rounded once, here; init must not depend on the order of operations.
    const float out_std =
        static_cast<float>(0.02 / std::sqrt(2.0 * static_cast<double>(c.n_layer)));
    SpecList list{{}, Init::normal, out_std};
    if (c.arch == "vit") {
        list.init = Init::trunc_normal;
        add_vit(list, c);
        return list.specs;
    }
    if (c.arch == "gpt2") {
        add_gpt2(list, c);
    } else {
        GT_CHECK(c.arch == "llama", "check_config lets through known architectures only");
        add_llama(list, c);
    }
    if (!c.tied) {
        list.linear("output", {c.n_embd, c.n_vocab, 1, 1}, false);
    }
    return list.specs;
}

int64_t n_params(const ModelConfig & config) {
    int64_t n = 0;
    for (const TensorSpec & spec : tensor_specs(config)) {
        n += spec.n_elements();
    }
    return n;
}

void check_config(const ModelConfig & c, const std::string & where) {
    const auto fail     = [&](const std::string & why) { throw Error(where + ": " + why); };
    const auto positive = [&](const char * what, int64_t n) {
        if (n < 1 || n > std::numeric_limits<int32_t>::max()) {
            fail(format("%s is %lld; it must be at least 1", what, static_cast<long long>(n)));
        }
    };
    const auto divides = [&](const char * what, int64_t n, const char * of_what, int64_t of) {
        if (of % n != 0) {
            fail(format(
                "%s (%lld) does not divide %s (%lld)", what, static_cast<long long>(n), of_what,
                static_cast<long long>(of)
            ));
        }
    };
    if (c.arch != "gpt2" && c.arch != "llama" && c.arch != "vit") {
        fail("architecture \"" + c.arch + "\" is not one we train (gpt2, llama, vit)");
    }
    positive("the number of layers", c.n_layer);
    positive("the width", c.n_embd);
    positive("the number of heads", c.n_head);
    positive("the number of key-value heads", c.n_head_kv);
    positive("the mlp width", c.n_ff);
    divides("the number of heads", c.n_head, "the width", c.n_embd);
    divides("the number of key-value heads", c.n_head_kv, "the number of heads", c.n_head);
    if (!(c.norm_eps > 0.0f && c.norm_eps < 1.0f)) {
        fail(format("norm epsilon is %g; expected a small positive number", c.norm_eps));
    }
    if (c.arch == "vit") {
        positive("the image size", c.image_size);
        positive("the patch size", c.patch_size);
        positive("the number of channels", c.channels);
        positive("the number of classes", c.n_classes);
        divides("the patch size", c.patch_size, "the image size", c.image_size);
        if (c.pooling != "cls" && c.pooling != "mean") {
            fail("pooling \"" + c.pooling + "\" is neither cls nor mean");
        }
        if (!c.class_names.empty() && static_cast<int64_t>(c.class_names.size()) != c.n_classes) {
            fail(format(
                "%zu class names for %lld classes", c.class_names.size(),
                static_cast<long long>(c.n_classes)
            ));
        }
        const size_t channels = static_cast<size_t>(c.channels);
        if ((!c.image_mean.empty() && c.image_mean.size() != channels) ||
            (!c.image_std.empty() && c.image_std.size() != channels)) {
            fail("image mean and deviation must have one value per channel");
        }
        for (float deviation : c.image_std) {
            if (!(deviation > 0.0f)) {
                fail(format("image deviation is %g; it must be above 0", deviation));
            }
        }
        if (!(c.image_crop >= 0.0f && c.image_crop <= 1.0f) || c.image_stored < 0 || c.image_stored > 65536) {
            fail(format(
                "image crop %g of %lld stored pixels makes no sense", c.image_crop,
                static_cast<long long>(c.image_stored)
            ));
        }
        return;
    }
    positive("the vocabulary", c.n_vocab);
    positive("the context", c.n_ctx);
    if (c.arch == "gpt2" && c.n_head_kv != c.n_head) {
        fail("gpt2 has as many key-value heads as heads; use llama for grouped heads");
    }
    if (c.arch == "llama" && c.head_dim() % 2 != 0) {
        fail("llama needs an even head size (width / heads), since RoPE turns pairs");
    }
    if (c.arch == "llama" && !(c.rope_freq_base > 1.0f)) {
        fail(format("RoPE frequency base is %g; expected above 1", c.rope_freq_base));
    }
}

std::string describe(const ModelConfig & c) {
    std::string text = format(
        "%s, %lld layers, %lld wide, %lld heads", c.arch.c_str(), static_cast<long long>(c.n_layer),
        static_cast<long long>(c.n_embd), static_cast<long long>(c.n_head)
    );
    if (c.n_head_kv != c.n_head) {
        text += format(" (%lld for keys)", static_cast<long long>(c.n_head_kv));
    }
    if (c.arch == "vit") {
        text += format(
            ", %lld pixels in patches of %lld, %lld classes", static_cast<long long>(c.image_size),
            static_cast<long long>(c.patch_size), static_cast<long long>(c.n_classes)
        );
    } else {
        text += format(
            ", context %lld, vocabulary %lld", static_cast<long long>(c.n_ctx),
            static_cast<long long>(c.n_vocab)
        );
    }
    return text + format(", %.1fM weights", static_cast<double>(n_params(c)) / 1e6);
}

}  // namespace gt
