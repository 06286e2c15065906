#include "models/arch.h"

#include "ggml-train/base/plural.h"
#include "ggml-train/base/text.h"
#include "ggml-train/gguf/gguf-read.h"
#include "models/arch-parts.h"
#include "models/base-weights.h"
#include "models/blocks.h"

namespace gt {

Arch gemma3_arch();  // arch/gemma3.cpp
Arch gpt_arch();     // arch/gpt.cpp
Arch llama_arch();   // arch/llama.cpp
Arch qwen2_arch();   // arch/qwen2.cpp
Arch qwen3_arch();   // arch/qwen3.cpp
Arch vit_arch();     // arch/vit.cpp

static constexpr const char * kLoraRank = "gt.lora.rank";
static constexpr const char * kLoraOn   = "gt.lora.on";

std::vector<Arch> & architectures() {
    static std::vector<Arch> table = {gpt_arch(),   gemma3_arch(), llama_arch(),
                                      qwen2_arch(), qwen3_arch(),  vit_arch()};
    return table;
}

std::vector<std::string> arch_names() {
    std::vector<std::string> names;
    for (const Arch & arch : architectures()) {
        names.push_back(arch.name);
    }
    return names;
}

const Arch & find_arch(const std::string & name, const std::string & where) {
    std::string known;
    for (const Arch & arch : architectures()) {
        if (arch.name == name) {
            return arch;
        }
        known += (known.empty() ? "" : ", ") + arch.name;
    }
    throw Error(
        (where.empty() ? "" : where + ": ") + "architecture \"" + name +
        "\" is not one we train (" + known + ")"
    );
}

bool takes_images(const ModelConfig & config) {
    return find_arch(config.arch).takes == Takes::images;
}

std::vector<TensorSpec> base_specs(const ModelConfig & config) {
    SpecList list(config);
    find_arch(config.arch).tensors(config, list);
    return list.take();
}

// 0: before the blocks; 1 to L: a block; L + 1: after them.
static int64_t depth_of(const std::string & name, bool & after, int64_t n_layer) {
    const size_t at = name.find("blk.");
    if (at == std::string::npos) {
        return after ? n_layer + 1 : 0;
    }
    after = true;
    return 1 + std::stoll(name.substr(at + 4));
}

// Learning rates by depth.
static void set_rates(const ModelConfig & config, std::vector<TensorSpec> & specs) {
    bool after = false;
    for (TensorSpec & spec : specs) {
        const int64_t depth = depth_of(spec.name, after, config.n_layer);
        for (int64_t i = depth; i <= config.n_layer; ++i) {
            spec.rate *= config.layer_decay;
        }
        spec.rate = config.n_frozen > 0 && depth <= config.n_frozen ? 0.0f : spec.rate;
    }
}

std::vector<TensorSpec> tensor_specs(const ModelConfig & config) {
    auto specs = base_specs(config);
    set_rates(config, specs);
    return config.lora.enabled() ? lora_specs(config.lora, specs) : specs;
}

int64_t n_params(const ModelConfig & config) {
    int64_t n = 0;
    for (const TensorSpec & spec : tensor_specs(config)) {
        n += spec.n_elements();
    }
    return n;
}

void check_config(const ModelConfig & c, const std::string & where) {
    const Checks checks(where);
    const Arch & arch = find_arch(c.arch, where);
    checks.positive("the number of layers", c.n_layer);
    checks.positive("the width", c.n_embd);
    checks.positive("the number of heads", c.n_head);
    checks.positive("the number of key-value heads", c.n_head_kv);
    checks.positive("the mlp width", c.n_ff);
    if (c.head_size == 0) {
        checks.divides("the number of heads", c.n_head, "the width", c.n_embd);
    }
    checks.divides("the number of key-value heads", c.n_head_kv, "the number of heads", c.n_head);
    if (!(c.norm_eps > 0.0f && c.norm_eps < 1.0f)) {
        checks.fail(format("norm epsilon is %g; it must be between 0 and 1", c.norm_eps));
    }
    if (arch.takes == Takes::text) {
        checks.positive("the vocabulary", c.n_vocab);
        checks.positive("the context", c.n_ctx);
    }
    arch.check(c, checks);
}

ModelConfig read_config(const gguf_context * gguf, const std::string & where) {
    const auto name = find_string(gguf, "general.architecture", where);
    if (!name) {
        throw Error(where + ": no general.architecture; this is not a model file");
    }
    const Arch &    arch = find_arch(*name, where);
    const KeyReader in(gguf, *name, where);
    ModelConfig     c;
    c.arch      = *name;
    c.n_embd    = in.need_int("embedding_length");
    c.n_layer   = in.need_int("block_count");
    c.n_head    = in.need_int("attention.head_count");
    c.n_head_kv = c.n_head;
    c.n_ff      = in.need_int("feed_forward_length");
    arch.read_keys(in, c);
    c.lora.rank  = find_int(gguf, kLoraRank, where).value_or(0);
    c.lora.alpha = static_cast<float>(find_float(gguf, "adapter.lora.alpha", where).value_or(0.0));
    c.lora.on    = find_string(gguf, kLoraOn, where).value_or("");
    check_config(c, where);
    return c;
}

void write_config(const ModelConfig & c, gguf_context * gguf) {
    const KeyWriter out(gguf, c.arch);
    gguf_set_val_str(gguf, "general.architecture", c.arch.c_str());
    out.set_int("embedding_length", c.n_embd);
    out.set_int("block_count", c.n_layer);
    out.set_int("feed_forward_length", c.n_ff);
    out.set_int("attention.head_count", c.n_head);
    find_arch(c.arch).write_keys(c, out);
    if (c.lora.enabled()) {
        gguf_set_val_f32(gguf, "adapter.lora.alpha", c.lora.alpha);
        gguf_set_val_u32(gguf, kLoraRank, static_cast<uint32_t>(c.lora.rank));
        gguf_set_val_str(gguf, kLoraOn, c.lora.on.c_str());
    }
}

std::string describe(const ModelConfig & c) {
    std::string text = format(
        "%s, %s, %lld wide, %s", c.arch.c_str(), plural(c.n_layer, "layer").c_str(),
        static_cast<long long>(c.n_embd), plural(c.n_head, "head").c_str()
    );
    if (c.n_head_kv != c.n_head) {
        text += format(" (%lld for keys)", static_cast<long long>(c.n_head_kv));
    }
    if (c.head_size > 0) {
        text += format(" of %lld", static_cast<long long>(c.head_size));
    }
    if (takes_images(c)) {
        text += format(", %lld", static_cast<long long>(c.width()));
        text += c.width() == c.image_size ? ""
                                          : format(" x %lld", static_cast<long long>(c.image_size));
        text += format(
            " pixels in patches of %lld, %lld classes", static_cast<long long>(c.patch_size),
            static_cast<long long>(c.n_classes)
        );
        text += c.layer_scale ? ", layer scale" : "";
        text += c.pre_norm ? ", pre-norm" : "";
    } else {
        text += format(
            ", context %lld, vocabulary %lld", static_cast<long long>(c.n_ctx),
            static_cast<long long>(c.n_vocab)
        );
    }
    if (c.lora.enabled()) {
        text += format(
            ", adapter of rank %lld on %s", static_cast<long long>(c.lora.rank),
            c.lora.on.empty() ? "all matrices" : c.lora.on.c_str()
        );
    }
    return text + ", " + count_text(static_cast<double>(n_params(c))) + " weights";
}

// Keys of an adapter. Its file has no tokenizer, and no tensors but A and B.
static void write_adapter_keys(const LoraConfig & lora, ModelHead & head) {
    gguf_context * keys = head.keys.get();
    for (int64_t i = gguf_get_n_kv(keys) - 1; i >= 0; --i) {
        const std::string key = gguf_get_key(keys, i);
        if (key.starts_with("tokenizer.")) {
            gguf_remove_key(keys, key.c_str());
        }
    }
    gguf_set_val_str(keys, "general.type", "adapter");
    gguf_set_val_str(keys, "adapter.type", "lora");
    if (lora.base) {
        const auto digest = static_cast<unsigned long long>(lora.base->digest());
        head.text += format(", base %016llx", digest);
    }
}

ModelHead model_head(const ModelConfig & config, const gguf_context * keys) {
    ModelHead head{gguf_context_ptr(gguf_init_empty()), describe(config), tensor_specs(config), {}};
    if (keys != nullptr) {
        gguf_set_kv(head.keys.get(), keys);
    }
    write_config(config, head.keys.get());
    if (config.lora.enabled()) {
        write_adapter_keys(config.lora, head);
        return head;
    }
    for (const RopeFactors & factors : kRopeFactors) {
        const std::vector<float> & values = config.rope.*factors.values;
        if (!values.empty()) {
            const TensorSpec spec{factors.name, {static_cast<int64_t>(values.size()), 1, 1, 1}};
            head.constants.push_back({spec, values});
        }
    }
    return head;
}

std::unique_ptr<Transformer>
make_model(const Backend & backend, const ModelConfig & config, bool with_grads) {
    return find_arch(config.arch).make(backend, config, with_grads);
}

}  // namespace gt
