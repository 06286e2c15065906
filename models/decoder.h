// models/decoder.h — the decoder that Llama and its relatives share: RoPE, RMSNorm, a gated MLP, grouped heads.
// A relative is a row made by decoder_arch, in a file of its own.
#pragma once

#include "models/arch-parts.h"
#include "models/blocks.h"

namespace gt {

// What differs between the relatives.
struct DecoderKind {
    bool neox    = false;  // RoPE pairs i with i + D/2 (true) or with its neighbour (false)
    bool qk_norm = false;  // RMSNorm of every query and key head
    bool factors = false;  // RoPE may have factors (rope_freqs)
    bool gemma   = false;  // embeddings times sqrt(C), GELU, norms after attention and MLP, windows
};

class Decoder : public Transformer {
public:
    Decoder(const Backend & backend, const ModelConfig & config, bool with_grads, DecoderKind kind);

    ggml_tensor * embed(Ops & ops, const Inputs & in) override;
    ggml_tensor * block(Ops & ops, const Inputs & in, int i, ggml_tensor * x) override;
    Head          head(Ops & ops, const Inputs & in, ggml_tensor * x) override;

private:
    bool          has_window(int block) const;
    Rope          rope_of(int block, int64_t T) const;
    ggml_tensor * queries_keys_values(Ops & ops, const std::string & at, ggml_tensor * h) const;
    ggml_tensor * add_branch(
        Ops &               ops,
        ggml_tensor *       x,
        ggml_tensor *       h,
        const std::string & at,
        const char *        matrix,
        const char *        norm
    ) const;

    DecoderKind   kind_;
    ggml_tensor * divisors_        = nullptr;  // of RoPE
    ggml_tensor * long_divisors_   = nullptr;  // the same for sequences beyond the original context
    ggml_tensor * window_divisors_ = nullptr;  // the same for blocks with a window
};

void decoder_tensors(const ModelConfig & config, DecoderKind kind, SpecList & list);
void decoder_read_keys(const KeyReader & in, DecoderKind kind, ModelConfig & config);
void decoder_write_keys(const ModelConfig & config, const KeyWriter & out);
void decoder_check(const ModelConfig & config, const Checks & checks);

// A row without presets.
template <DecoderKind kind>
Arch decoder_arch(const ModelConfig & defaults) {
    return {
        .name     = defaults.arch,
        .takes    = Takes::text,
        .presets  = {},
        .defaults = defaults,
        // two thirds of four times the width, rounded up to a multiple of 32
        .mlp_width = [](int64_t width) { return (8 * width / 3 + 31) / 32 * 32; },
        .tensors   = [](const ModelConfig & c, SpecList & list) { decoder_tensors(c, kind, list); },
        .read_keys = [](const KeyReader & in, ModelConfig & c) { decoder_read_keys(in, kind, c); },
        .write_keys = decoder_write_keys,
        .check      = decoder_check,
        .make       = [](const Backend & backend, const ModelConfig & c,
                   bool with_grads) -> std::unique_ptr<Transformer> {
            return std::make_unique<Decoder>(backend, c, with_grads, kind);
        }};
}

}  // namespace gt
