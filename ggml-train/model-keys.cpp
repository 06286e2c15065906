// ggml-train/model-keys.cpp — ModelConfig to and from GGUF keys; see model-config.h.
#include "ggml-train/gguf-keys.h"
#include "ggml-train/model-config.h"

namespace gt {

namespace {

// Reads keys "<arch>.<name>", naming file and key in every complaint.
struct Reader {
    const gguf_context * gguf;
    const std::string &  where;
    std::string          arch;

    std::optional<int64_t> maybe_int(const char * name) const {
        const std::string key = arch + "." + name;
        const int64_t     id  = gguf_find_key(gguf, key.c_str());
        if (id >= 0 && gguf_get_kv_type(gguf, id) == GGUF_TYPE_ARRAY) {
            throw Error(
                where + ": " + key + " differs from layer to layer; we train models of equal layers"
            );
        }
        return find_int(gguf, key, where);
    }
    int64_t need_int(const char * name) const {
        const auto value = maybe_int(name);
        if (!value) {
            throw Error(
                where + ": key " + arch + "." + name + " is missing; is this a whole model file?"
            );
        }
        return *value;
    }
    float need_float(const char * name) const {
        const auto value = find_float(gguf, arch + "." + name, where);
        if (!value) {
            throw Error(
                where + ": key " + arch + "." + name + " is missing; is this a whole model file?"
            );
        }
        return static_cast<float>(*value);
    }

    void refuse(bool bad, const std::string & what) const {
        if (bad) {
            throw Error(
                where + ": this " + arch + " model has " + what + ", which we do not train"
            );
        }
    }
};

int64_t tensor_dim(const gguf_context * gguf, const char * name, int dim) {
    const int64_t id = gguf_find_tensor(gguf, name);
    return id < 0 ? 0 : gguf_get_tensor_ne(gguf, id)[dim];
}

void read_text(const Reader & in, ModelConfig & c) {
    c.n_ctx     = in.need_int("context_length");
    c.n_head_kv = in.maybe_int("attention.head_count_kv").value_or(c.n_head);
    c.norm_eps  = in.need_float(
         c.arch == "gpt2" ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"
    );
    c.tied = gguf_find_tensor(in.gguf, "output.weight") < 0;

    // The token list counts most, then the key, then the embedding (which may be padded).
    const auto n_tokens = find_array_size(in.gguf, "tokenizer.ggml.tokens", in.where);
    const auto n_vocab  = in.maybe_int("vocab_size");
    c.n_vocab           = n_tokens  ? *n_tokens
                          : n_vocab ? *n_vocab
                                    : tensor_dim(in.gguf, "token_embd.weight", 1);

    if (c.arch == "llama") {
        const int64_t D  = c.n_head > 0 ? c.n_embd / c.n_head : 0;
        c.rope_freq_base = static_cast<float>(
            find_float(in.gguf, "llama.rope.freq_base", in.where).value_or(10000.0)
        );
        in.refuse(in.maybe_int("rope.dimension_count").value_or(D) != D, "partial RoPE");
        in.refuse(
            in.maybe_int("attention.key_length").value_or(D) != D, "heads wider than width / heads"
        );
        in.refuse(
            in.maybe_int("attention.value_length").value_or(D) != D,
            "heads wider than width / heads"
        );
        in.refuse(in.maybe_int("expert_count").value_or(0) != 0, "experts");
        in.refuse(
            gguf_find_tensor(in.gguf, "rope_freqs.weight") >= 0,
            "scaled RoPE frequencies (rope_freqs)"
        );
        in.refuse(
            find_string(in.gguf, "llama.rope.scaling.type", in.where).value_or("none") != "none",
            "RoPE scaling"
        );
    }
}

void read_vit(const Reader & in, ModelConfig & c) {
    c.n_head_kv   = c.n_head;
    c.norm_eps    = in.need_float("attention.layer_norm_epsilon");
    c.image_size  = in.need_int("image_size");
    c.patch_size  = in.need_int("patch_size");
    c.channels    = in.need_int("channels");
    c.n_classes   = in.need_int("classes");
    c.pooling     = find_string(in.gguf, "vit.pooling", in.where).value_or("cls");
    c.image_mean  = find_floats(in.gguf, "vit.image_mean", in.where);
    c.image_std   = find_floats(in.gguf, "vit.image_std", in.where);
    c.image_crop = static_cast<float>(find_float(in.gguf, "vit.image_crop", in.where).value_or(0.0));
    c.image_stored = in.maybe_int("image_stored").value_or(0);
    c.class_names  = find_strings(in.gguf, "vit.class_names", in.where);
}

}  // namespace

ModelConfig read_config(const gguf_context * gguf, const std::string & where) {
    const auto arch = find_string(gguf, "general.architecture", where);
    if (!arch) {
        throw Error(where + ": no general.architecture; this is not a model file");
    }
    if (*arch != "gpt2" && *arch != "llama" && *arch != "vit") {
        throw Error(
            where + ": architecture \"" + *arch + "\" is not one we train (gpt2, llama, vit)"
        );
    }
    const Reader in{gguf, where, *arch};
    ModelConfig  c;
    c.arch    = *arch;
    c.n_embd  = in.need_int("embedding_length");
    c.n_layer = in.need_int("block_count");
    c.n_head  = in.need_int("attention.head_count");
    c.n_ff    = in.need_int("feed_forward_length");
    if (c.arch == "vit") {
        read_vit(in, c);
    } else {
        read_text(in, c);
    }
    check_config(c, where);
    return c;
}

static void write_vit(const ModelConfig & c, gguf_context * gguf) {
    const auto set = [&](const char * key, int64_t n) {
        gguf_set_val_u32(gguf, key, static_cast<uint32_t>(n));
    };
    set("vit.image_size", c.image_size);
    set("vit.patch_size", c.patch_size);
    set("vit.channels", c.channels);
    set("vit.classes", c.n_classes);
    gguf_set_val_str(gguf, "vit.pooling", c.pooling.c_str());
    // a model that does not know these (any more) must not keep another's
    for (const char * key : {"vit.image_mean", "vit.image_std", "vit.image_crop", "vit.image_stored", "vit.class_names"}) {
        gguf_remove_key(gguf, key);
    }
    if (!c.image_mean.empty()) {
        gguf_set_arr_data(
            gguf, "vit.image_mean", GGUF_TYPE_FLOAT32, c.image_mean.data(), c.image_mean.size()
        );
    }
    if (!c.image_std.empty()) {
        gguf_set_arr_data(
            gguf, "vit.image_std", GGUF_TYPE_FLOAT32, c.image_std.data(), c.image_std.size()
        );
    }
    if (c.image_stored > 0) {
        set("vit.image_stored", c.image_stored);
        gguf_set_val_f32(gguf, "vit.image_crop", c.image_crop);
    }
    if (!c.class_names.empty()) {
        std::vector<const char *> names;
        for (const std::string & name : c.class_names) {
            names.push_back(name.c_str());
        }
        gguf_set_arr_str(gguf, "vit.class_names", names.data(), names.size());
    }
}

void write_config(const ModelConfig & c, gguf_context * gguf) {
    const auto set = [&](const char * name, int64_t n) {
        gguf_set_val_u32(gguf, (c.arch + "." + name).c_str(), static_cast<uint32_t>(n));
    };
    const auto set_float = [&](const char * name, float x) {
        gguf_set_val_f32(gguf, (c.arch + "." + name).c_str(), x);
    };
    gguf_set_val_str(gguf, "general.architecture", c.arch.c_str());
    set("embedding_length", c.n_embd);
    set("block_count", c.n_layer);
    set("feed_forward_length", c.n_ff);
    set("attention.head_count", c.n_head);
    if (c.arch == "vit") {
        set_float("attention.layer_norm_epsilon", c.norm_eps);
        write_vit(c, gguf);
        return;
    }
    set("context_length", c.n_ctx);
    set("vocab_size", c.n_vocab);
    set("attention.head_count_kv", c.n_head_kv);
    if (c.arch == "gpt2") {
        set_float("attention.layer_norm_epsilon", c.norm_eps);
    } else {
        set_float("attention.layer_norm_rms_epsilon", c.norm_eps);
        set_float("rope.freq_base", c.rope_freq_base);
        set("rope.dimension_count", c.head_dim());
    }
}

}  // namespace gt
