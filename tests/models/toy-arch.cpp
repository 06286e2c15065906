// An architecture in one file: a token's embedding, an MLP per block, and no attention.
#include "models/arch-parts.h"
#include "models/blocks.h"

namespace gt {

namespace {

class Toy : public Transformer {
public:
    using Transformer::Transformer;

    ggml_tensor * embed(Ops & ops, const Inputs & in) override {
        return ops.embedding(w("token_embd.weight"), in.tokens, nullptr, in.T);
    }

    ggml_tensor * block(Ops & ops, const Inputs &, int i, ggml_tensor * x) override {
        const std::string at = format("blk.%d.", i);
        ggml_tensor *     h  = layer_norm(ops, x, at + "norm");  // [C, T*B]
        h = ops.gelu(ops.linear(h, {w(at + "up.weight")}, {w(at + "up.bias")}), GeluKind::tanh);
        return ops.linear(h, {w(at + "down.weight")}, {w(at + "down.bias")}, x);  // [C, T*B]
    }

    Head head(Ops & ops, const Inputs &, ggml_tensor * x) override {
        return {.x = layer_norm(ops, x, "output_norm"), .weight = &token_output()};
    }
};

void tensors(const ModelConfig & c, SpecList & list) {
    list.token_table(c);
    for (int64_t l = 0; l < c.n_layer; ++l) {
        const std::string blk = "blk." + std::to_string(l) + ".";
        list.norm(blk + "norm", c.n_embd, true);
        list.linear(blk + "up", {c.n_embd, c.n_ff, 1, 1}, true);
        list.linear(blk + "down", {c.n_ff, c.n_embd, 1, 1}, true, list.out_std);
    }
    list.norm("output_norm", c.n_embd, true);
    list.token_output(c);
}

void read_keys(const KeyReader & in, ModelConfig & c) {
    in.read_text(c);
    c.norm_eps = in.need_float("epsilon");
}

void write_keys(const ModelConfig & c, const KeyWriter & out) {
    out.write_text(c);
    out.set_float("epsilon", c.norm_eps);
}

void check(const ModelConfig & c, const Checks & checks) {
    if (c.n_ff < c.n_embd) {
        checks.fail("the mlp of a toy is at least as wide as the model");
    }
}

}  // namespace

Arch toy_arch() {
    return {
        .name     = "toy",
        .takes    = Takes::text,
        .presets  = {{"toy-tiny", "bytes", "for a test", text_config("toy", {2, 16, 1, 1, 32, 8})}},
        .defaults = text_config("toy", {}),
        .mlp_width  = [](int64_t width) { return 2 * width; },
        .tensors    = tensors,
        .read_keys  = read_keys,
        .write_keys = write_keys,
        .check      = check,
        .make       = make_transformer<Toy>};
}

}  // namespace gt
