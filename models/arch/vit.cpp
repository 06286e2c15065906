// models/arch/vit.cpp — ViT: patches, class token or mean, erf GELU, a linear classifier; arXiv 2010.11929.
// Tensors have the names of llama.cpp's image encoders (`v.*`) plus a classifier `v.cls`; the keys
// `vit.*` are our own.
#include "models/arch-parts.h"
#include "models/blocks.h"

namespace gt {

namespace {

// x + factor * branch, one factor per sample: stochastic depth, arXiv 1603.09382.
ggml_tensor *
add_branch(Ops & ops, const Inputs & in, int branch, ggml_tensor * x, ggml_tensor * y) {
    ggml_context * ctx    = ops.ctx();
    const size_t   size   = sizeof(float);
    ggml_tensor *  factor = ggml_cont(  // [1, 1, B]
        ctx, ggml_view_3d(ctx, in.depth, 1, 1, in.B, size, in.depth->nb[1], branch * size)
    );
    y                     = ggml_reshape_3d(ctx, y, y->ne[0], y->ne[1] / in.B, in.B);  // [C, T, B]
    y                     = ggml_mul(ctx, y, factor);
    return ggml_add(ctx, ggml_reshape_2d(ctx, y, x->ne[0], x->ne[1]), x);  // [C, T*B]
}

class Vit : public Transformer {
public:
    using Transformer::Transformer;

    ggml_tensor * embed(Ops & ops, const Inputs & in) override {
        ggml_context * ctx = ops.ctx();
        const int64_t  C = config_.n_embd, P = config_.n_patches(), T = config_.n_positions();
        ggml_tensor *  x =
            ops.patch_embedding(in.images, w("v.patch_embd.weight"), w("v.patch_embd.bias"));
        x = ggml_reshape_3d(ctx, x, C, P, in.B);  // [C, P, B]
        if (config_.has_class_token()) {
            ggml_tensor * token =
                ggml_repeat_4d(ctx, w("v.class_embd"), C, 1, in.B, 1);  // [C, 1, B]
            x = ggml_concat(ctx, token, x, 1);                          // [C, T, B]
        }
        x = ggml_add(ctx, x, w("v.position_embd.weight"));
        x = ggml_reshape_2d(ctx, x, C, T * in.B);  // [C, T*B]
        return config_.pre_norm ? layer_norm(ops, x, "v.pre_ln") : x;
    }

    ggml_tensor * block(Ops & ops, const Inputs & in, int i, ggml_tensor * x) override {
        const std::string at  = format("v.blk.%d.", i);
        const auto        lin = [&](ggml_tensor * y, const char * name, ggml_tensor * residual) {
            return linear(ops, y, at, {name}, residual);
        };
        const auto add = [&](ggml_tensor * y, const char * name, const char * scale, int branch) {
            if (!config_.layer_scale && !in.depth) {
                return lin(y, name, x);
            }
            y = lin(y, name, nullptr);
            y = config_.layer_scale ? ggml_mul(ops.ctx(), y, w(at + scale + ".weight")) : y;
            return in.depth ? add_branch(ops, in, branch, x, y) : ggml_add(ops.ctx(), y, x);
        };
        ggml_tensor * h = layer_norm(ops, x, at + "ln1");                      // [C, T*B]
        h               = linear(ops, h, at, {"attn_q", "attn_k", "attn_v"});  // [3C, T*B]
        h = ops.attention(h, attention_shape(config_.n_positions(), false));   // [C, T*B]
        x = add(h, "attn_out", "ls1", 2 * i);                                  // [C, T*B]

        h = layer_norm(ops, x, at + "ln2");                      // [C, T*B]
        h = ops.gelu(lin(h, "ffn_up", nullptr), GeluKind::erf);  // [F, T*B]
        return add(h, "ffn_down", "ls2", 2 * i + 1);             // [C, T*B]
    }

    Head head(Ops & ops, const Inputs & in, ggml_tensor * x) override {
        ggml_context * ctx = ops.ctx();
        const int64_t  C = config_.n_embd, T = config_.n_positions(), P = config_.n_patches();
        const bool     mean = config_.pooling != "cls";
        x                   = config_.norm_pooled ? x : layer_norm(ops, x, "v.post_ln");
        x                   = ggml_reshape_3d(ctx, x, C, T, in.B);  // [C, T, B]
        if (!mean || T > P) {  // the class token, or the patches after it
            x = ggml_cont(
                ctx,
                ggml_view_3d(ctx, x, C, mean ? P : 1, in.B, x->nb[1], x->nb[2], mean ? x->nb[1] : 0)
            );
        }
        if (mean) {
            x = ggml_sum_rows(ctx, ggml_cont(ctx, ggml_permute(ctx, x, 1, 0, 2, 3)));  // [1, C, B]
            x = ggml_scale(ctx, x, 1.0f / static_cast<float>(P));
        }
        x = ggml_reshape_2d(ctx, x, C, in.B);
        x = config_.norm_pooled ? layer_norm(ops, x, "v.post_ln") : x;
        return {.x = x, .weight = &weights_.at("v.cls.weight"), .bias = &weights_.at("v.cls.bias")};
    }
};

void tensors(const ModelConfig & c, SpecList & list) {
    const int64_t C = c.n_embd, F = c.n_ff, P = c.patch_size;
    list.init = Init::trunc_normal;
    if (c.has_class_token()) {
        list.add({"v.class_embd", {C, 1, 1, 1}, ParamKind::embedding, list.init, 0.02f});
    }
    list.linear("v.patch_embd", {P, P, c.channels, C}, true);
    list.table("v.position_embd", {C, c.n_positions(), 1, 1});
    if (c.pre_norm) {
        list.norm("v.pre_ln", C, true);
    }
    for (int64_t l = 0; l < c.n_layer; ++l) {
        const std::string blk = "v.blk." + std::to_string(l) + ".";
        list.norm(blk + "ln1", C, true);
        for (const char * name : {"attn_q", "attn_k", "attn_v", "attn_out"}) {
            list.linear(blk + name, {C, C, 1, 1}, true);
        }
        list.norm(blk + "ln2", C, true);
        list.linear(blk + "ffn_up", {C, F, 1, 1}, true);
        list.linear(blk + "ffn_down", {F, C, 1, 1}, true);
        for (const char * name : {"ls1", "ls2"}) {
            if (c.layer_scale) {
                list.norm(blk + name, C, false);
            }
        }
    }
    list.norm("v.post_ln", C, true);
    list.linear("v.cls", {C, c.n_classes, 1, 1}, true);
}

void read_keys(const KeyReader & in, ModelConfig & c) {
    c.norm_eps     = in.need_float("attention.layer_norm_epsilon");
    c.image_size   = in.need_int("image_size");
    c.patch_size   = in.need_int("patch_size");
    c.channels     = in.need_int("channels");
    c.n_classes    = in.need_int("classes");
    c.pooling      = in.get_string("pooling", "cls");
    c.image_width  = in.find_int("image_width").value_or(0);
    c.norm_pooled  = in.find_int("norm_pooled").value_or(0) != 0;
    c.layer_scale  = in.find_int("layer_scale").value_or(0) != 0;
    c.pre_norm     = in.find_int("pre_norm").value_or(0) != 0;
    c.image_mean   = in.get_floats("image_mean");
    c.image_std    = in.get_floats("image_std");
    c.image_crop   = in.get_float("image_crop", 0.0f);
    c.image_stored = in.find_int("image_stored").value_or(0);
    c.class_names  = in.get_strings("class_names");
}

void write_keys(const ModelConfig & c, const KeyWriter & out) {
    out.set_float("attention.layer_norm_epsilon", c.norm_eps);
    out.set_int("image_size", c.image_size);
    out.set_int("patch_size", c.patch_size);
    out.set_int("channels", c.channels);
    out.set_int("classes", c.n_classes);
    out.set_string("pooling", c.pooling);
    // optional keys: those of the model this one was made from are removed
    const std::pair<const char *, int64_t> optional[] = {
        {"image_width", c.image_width},
        {"norm_pooled", c.norm_pooled},
        {"layer_scale", c.layer_scale},
        {"pre_norm", c.pre_norm}};
    for (const auto & [name, value] : optional) {
        out.remove(name);
        if (value != 0) {
            out.set_int(name, value);
        }
    }
    out.set_floats("image_mean", c.image_mean);
    out.set_floats("image_std", c.image_std);
    out.remove("image_stored");
    out.remove("image_crop");
    if (c.image_stored > 0) {
        out.set_int("image_stored", c.image_stored);
        out.set_float("image_crop", c.image_crop);
    }
    out.set_strings("class_names", c.class_names);
}

void check(const ModelConfig & c, const Checks & checks) {
    checks.positive("the image size", c.image_size);
    checks.positive("the patch size", c.patch_size);
    checks.positive("the number of channels", c.channels);
    checks.positive("the number of classes", c.n_classes);
    checks.divides("the patch size", c.patch_size, "the image size", c.image_size);
    checks.positive("the image width", c.width());
    checks.divides("the patch size", c.patch_size, "the image width", c.width());
    if (c.pooling != "cls" && c.pooling != "mean" && c.pooling != "avg") {
        checks.fail("pooling \"" + c.pooling + "\" is none of cls, mean and avg");
    }
    if (c.norm_pooled && c.pooling == "cls") {
        checks.fail("only a mean is normalized after pooling");
    }
    if (!c.class_names.empty() && static_cast<int64_t>(c.class_names.size()) != c.n_classes) {
        checks.fail(format(
            "%zu class names for %lld classes", c.class_names.size(),
            static_cast<long long>(c.n_classes)
        ));
    }
    const size_t channels = static_cast<size_t>(c.channels);
    if ((!c.image_mean.empty() && c.image_mean.size() != channels) ||
        (!c.image_std.empty() && c.image_std.size() != channels)) {
        checks.fail("image mean and deviation must have one value per channel");
    }
    for (const float deviation : c.image_std) {
        if (!(deviation > 0.0f)) {
            checks.fail(format("image deviation is %g; it must be above 0", deviation));
        }
    }
    if (!(c.image_crop >= 0.0f && c.image_crop <= 1.0f) || c.image_stored < 0 ||
        c.image_stored > 65536) {
        checks.fail(format(
            "image crop %g of %lld stored pixels is invalid", c.image_crop,
            static_cast<long long>(c.image_stored)
        ));
    }
}

// Image mean and deviation stay empty until training measures them.
ModelConfig sized(int64_t layers, int64_t width, int64_t heads, int64_t image, int64_t patch) {
    ModelConfig c;
    c.arch       = "vit";
    c.n_layer    = layers;
    c.n_embd     = width;
    c.n_head     = heads;
    c.n_head_kv  = heads;
    c.n_ff       = 4 * width;
    c.norm_eps   = 1e-6f;
    c.image_size = image;
    c.patch_size = patch;
    c.channels   = 3;
    c.n_classes  = 10;
    return c;
}

}  // namespace

Arch vit_arch() {
    return {
        .name  = "vit",
        .takes = Takes::images,
        .presets =
            {{"vit-micro", "", "small images", sized(4, 128, 4, 32, 4)},
             {"vit-tiny", "", "ViT-Ti/16 (DeiT)", sized(12, 192, 3, 224, 16)},
             {"vit-small", "", "ViT-S/16 (DeiT)", sized(12, 384, 6, 224, 16)},
             {"vit-base", "", "ViT-B/16", sized(12, 768, 12, 224, 16)}},
        .defaults   = sized(0, 0, 0, 224, 16),
        .mlp_width  = [](int64_t width) { return 4 * width; },
        .tensors    = tensors,
        .read_keys  = read_keys,
        .write_keys = write_keys,
        .check      = check,
        .make       = make_transformer<Vit>};
}

}  // namespace gt
