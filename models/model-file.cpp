#include "models/model-file.h"

#include "ggml-train/gguf/gguf-write.h"
#include "models/base-weights.h"
#include "models/gguf-source.h"
#include "models/init.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <set>
#include <utility>

namespace gt {

const ModelTensor & ModelFile::at(const std::string & name) const {
    for (const ModelTensor & tensor : tensors) {
        if (tensor.spec.name == name) {
            return tensor;
        }
    }
    GT_CHECK(false, ("no tensor " + name).c_str());
}

ModelTensor & ModelFile::at(const std::string & name) {
    return const_cast<ModelTensor &>(std::as_const(*this).at(name));
}

ModelFile empty_model(const ModelConfig & config) {
    ModelFile model;
    model.config = config;
    model.keys.reset(gguf_init_empty());
    for (TensorSpec & spec : tensor_specs(config)) {
        std::vector<float> data(spec.n_elements(), 0.0f);
        model.tensors.push_back({std::move(spec), std::move(data)});
    }
    return model;
}

// --- load ----------------------------------------------------------------------------------------

namespace {

// Index of the tensor `spec` describes. Rows of padding are dropped.
int64_t find_tensor(const GgufSource & source, const TensorSpec & spec, ModelFile & model) {
    const int64_t id     = find_tensor(source.gguf.get(), spec, model.config.arch, source.path);
    const int64_t n_rows = gguf_get_tensor_ne(source.gguf.get(), id)[1];
    if (n_rows != spec.ne[1]) {
        model.notes.push_back(format(
            "%s has %lld rows for %lld tokens; the padding was dropped", spec.name.c_str(),
            static_cast<long long>(n_rows), static_cast<long long>(spec.ne[1])
        ));
    }
    return id;
}

// A tensor that the graph does not compute with would change the model without a word.
void refuse_others(
    const GgufSource & source, const std::vector<TensorSpec> & specs, const ModelConfig & config
) {
    std::set<std::string> known;
    for (const RopeFactors & factors : kRopeFactors) {
        known.insert(factors.name);
    }
    for (const TensorSpec & spec : specs) {
        known.insert(spec.name);
    }
    for (int64_t i = 0; i < gguf_get_n_tensors(source.gguf.get()); ++i) {
        const std::string name = gguf_get_tensor_name(source.gguf.get(), i);
        if (!known.contains(name)) {
            throw Error(
                source.path + ": tensor " + name + " is not part of a " + config.arch +
                " model as we train it"
            );
        }
    }
}

// Reads all tensors. Checks every shape before it allocates memory of that size.
void read_tensors(const GgufSource & source, bool others_allowed, ModelFile & model) {
    if (model.config.n_layer > gguf_get_n_tensors(source.gguf.get())) {
        throw Error(source.path + ": has fewer tensors than layers; is this a whole model?");
    }
    std::vector<int64_t> ids;
    const auto           specs = tensor_specs(model.config);
    for (const TensorSpec & spec : specs) {
        ids.push_back(find_tensor(source, spec, model));
    }
    if (!others_allowed) {
        refuse_others(source, specs, model.config);
    }
    for (size_t i = 0; i < specs.size(); ++i) {
        model.tensors.push_back({specs[i], std::vector<float>(specs[i].n_elements())});
        source.read(ids[i], model.tensors[i].data);
    }
    for (const int64_t id : ids) {
        const ggml_type type = gguf_get_tensor_type(source.gguf.get(), id);
        if (ggml_is_quantized(type)) {
            model.notes.push_back(std::string(ggml_type_name(type)) + " weights, unpacked to F32");
            return;
        }
    }
}

// Factors of RoPE are part of the model's sizes, though they are stored as tensors.
void read_rope_factors(const GgufSource & source, ModelConfig & config) {
    for (const RopeFactors & factors : kRopeFactors) {
        const int64_t id = gguf_find_tensor(source.gguf.get(), factors.name);
        if (id >= 0) {
            const int64_t * ne = gguf_get_tensor_ne(source.gguf.get(), id);
            if (ne[0] != config.head_dim() / 2 || ne[1] * ne[2] * ne[3] != 1) {
                throw Error(format(
                    "%s: tensor %s is %s, the file's keys require [%lld]", source.path.c_str(),
                    factors.name, shape_text(ne).c_str(),
                    static_cast<long long>(config.head_dim() / 2)
                ));
            }
            std::vector<float> & values = config.rope.*factors.values;
            values.resize(static_cast<size_t>(ne[0]));
            source.read(id, values);
        }
    }
    check_config(config, source.path);
}

// A checkpoint with a running average of the weights: the average is the model.
void read_average(const GgufSource & source, ModelFile & model) {
    const auto names = find_strings(source.gguf.get(), "gt.checkpoint.tensors", source.path);
    bool       found = false;
    for (ModelTensor & tensor : model.tensors) {
        const auto at = std::find(names.begin(), names.end(), kAveragePrefix + tensor.spec.name);
        if (at == names.end()) {
            continue;
        }
        const std::string stored = "s." + std::to_string(at - names.begin());
        const int64_t     id     = gguf_find_tensor(source.gguf.get(), stored.c_str());
        if (id < 0 ||
            gguf_get_tensor_size(source.gguf.get(), id) != tensor.data.size() * sizeof(float)) {
            throw Error(source.path + ": the average of " + tensor.spec.name + " is missing");
        }
        source.read(id, tensor.data);
        found = true;
    }
    if (found) {
        model.notes.push_back("weights are the running average (--ema)");
    }
}

// Ties an output matrix that a converter stored although it is the token embedding.
void tie_output(ModelFile & model) {
    if (!find_arch(model.config.arch).ties_equal_output || model.config.tied ||
        model.config.lora.enabled()) {
        return;
    }
    const std::vector<float> & a = model.at("token_embd.weight").data;
    const std::vector<float> & b = model.at("output.weight").data;
    if (std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0) {
        model.tensors.pop_back();
        model.config.tied = true;
        model.notes.push_back("output.weight equals token_embd.weight; they are trained as one");
    }
}

}  // namespace

static void check_whole(const GgufSource & source) {
    const std::string & path = source.path;
    if (find_int(source.gguf.get(), "split.count", path).value_or(1) > 1) {
        throw Error(
            path + ": is one file of a split model; join them with llama-gguf-split --merge"
        );
    }
    if (gguf_get_n_tensors(source.gguf.get()) == 0) {
        throw Error(
            path +
            ": contains a vocabulary but no weights; create a model with new-model --vocab " + path
        );
    }
}

// Keys that describe the model, not its file.
static gguf_context_ptr model_keys(gguf_context_ptr keys) {
    for (const char * key :
         {"general.alignment", "general.file_type", "general.quantization_version"}) {
        gguf_remove_key(keys.get(), key);
    }
    for (int64_t i = gguf_get_n_kv(keys.get()) - 1; i >= 0; --i) {
        const std::string key = gguf_get_key(keys.get(), i);
        if (key.starts_with("gt.")) {
            gguf_remove_key(keys.get(), key.c_str());
        }
    }
    return keys;
}

ModelFile load_model(const std::string & path) {
    GgufSource source(path);
    const bool checkpoint = gguf_find_key(source.gguf.get(), "gt.checkpoint.version") >= 0;
    if (checkpoint) {
        if (const std::string why = why_not_sealed(source.file.bytes()); !why.empty()) {
            throw Error(path + ": damaged checkpoint: " + why + "; use the previous one");
        }
    }
    check_whole(source);
    ModelFile model;
    model.config = read_config(source.gguf.get(), path);
    read_rope_factors(source, model.config);
    read_tensors(source, checkpoint, model);
    if (checkpoint) {
        read_average(source, model);
    }
    tie_output(model);
    model.keys = model_keys(std::move(source.gguf));
    return model;
}

ModelFile load_for_adapter(const std::string & path, const LoraConfig & lora) {
    constexpr uint64_t kSeed = 1;  // all hosts start from the same A
    GgufSource         source(path);
    check_whole(source);
    ModelFile model;
    model.config = read_config(source.gguf.get(), path);
    if (model.config.lora.enabled()) {
        throw Error(path + ": is an adapter; --lora needs the model that it is for");
    }
    read_rope_factors(source, model.config);
    refuse_others(source, base_specs(model.config), model.config);
    check_vectors(source.gguf.get(), path);
    model.config.lora      = lora;
    model.config.lora.base = std::make_shared<BaseWeights>(path, model.config);
    std::vector<TensorSpec> specs;
    if (lora.enabled()) {
        specs = tensor_specs(model.config);
    }
    for (TensorSpec & spec : specs) {
        std::vector<float> data(spec.n_elements());
        if (model.config.lora.base->find(spec.name)) {
            model.config.lora.base->read(spec, data);
        } else {
            init_tensor(spec, kSeed, data);
        }
        model.tensors.push_back({std::move(spec), std::move(data)});
    }
    model.keys = model_keys(std::move(source.gguf));
    return model;
}

// --- save ----------------------------------------------------------------------------------------

WeightType parse_weight_type(const std::string & name) {
    std::string lower;
    for (const char c : name) {
        lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    const std::map<std::string, WeightType> types = {
        {"f32", WeightType::f32},
        {"f16", WeightType::f16},
        {"bf16", WeightType::bf16},
        {"q8_0", WeightType::q8_0},
    };
    const auto found = types.find(lower);
    if (found == types.end()) {
        throw Error("weight type \"" + name + "\" is not one of f32, f16, bf16, q8_0");
    }
    return found->second;
}

static ggml_type stored_type(const TensorSpec & spec, WeightType type) {
    const bool keep =
        spec.kind == ParamKind::vector || (spec.kind == ParamKind::embedding && !spec.per_token);
    if (keep || type == WeightType::f32) {
        return GGML_TYPE_F32;
    }
    if (type == WeightType::q8_0) {
        return spec.ne[0] % 32 == 0 ? GGML_TYPE_Q8_0 : GGML_TYPE_F16;
    }
    return type == WeightType::f16 ? GGML_TYPE_F16 : GGML_TYPE_BF16;
}

// llama.cpp's number for such a file (llama_ftype).
static uint32_t file_type(WeightType type) {
    switch (type) {
        case WeightType::f32:
            return 0;
        case WeightType::f16:
            return 1;
        case WeightType::q8_0:
            return 7;
        case WeightType::bf16:
            return 32;
    }
    return 0;
}

std::vector<std::string> save_model(
    const std::string &  path,
    const ModelConfig &  config,
    const gguf_context * keys,
    const ReadTensor &   read,
    WeightType           type
) {
    const ModelHead head = model_head(config, keys);
    GgufWriter      writer(path);
    gguf_set_kv(writer.keys(), head.keys.get());
    gguf_set_val_u32(writer.keys(), "general.file_type", file_type(type));
    if (type == WeightType::q8_0) {
        gguf_set_val_u32(writer.keys(), "general.quantization_version", GGML_QNT_VERSION);
    }
    int n_fallback = 0;
    for (const TensorSpec & spec : head.tensors) {
        const ggml_type stored = stored_type(spec, type);
        n_fallback += type == WeightType::q8_0 && stored == GGML_TYPE_F16;
        writer.declare(spec.name, spec.ne, stored);
    }
    for (const auto & [spec, values] : head.constants) {
        writer.declare(spec.name, spec.ne, GGML_TYPE_F32);
    }
    Bytes packed;
    for (const TensorSpec & spec : head.tensors) {
        const std::span<const float> values = read(spec);
        GT_CHECK(static_cast<int64_t>(values.size()) == spec.n_elements(), spec.name.c_str());
        const ggml_type stored = stored_type(spec, type);
        const int64_t   n_rows = spec.n_elements() / spec.ne[0];
        if (stored == GGML_TYPE_F32) {
            writer.write(values.data(), values.size_bytes());
            continue;
        }
        packed.resize(ggml_row_size(stored, spec.ne[0]) * n_rows);
        ggml_quantize_chunk(stored, values.data(), packed.data(), 0, n_rows, spec.ne[0], nullptr);
        writer.write(packed.data(), packed.size());
    }
    for (const auto & [spec, values] : head.constants) {
        writer.write(values.data(), values.size() * sizeof(float));
    }
    writer.commit();
    if (n_fallback == 0) {
        return {};
    }
    return {
        format("%d tensors are stored as F16: Q8_0 needs rows of a multiple of 32", n_fallback)};
}

std::vector<std::string> save_model(
    const std::string &         path,
    const ModelConfig &         config,
    const gguf_context *        keys,
    std::span<const WeightView> weights,
    WeightType                  type
) {
    std::map<std::string, std::span<const float>> by_name;
    for (const WeightView & weight : weights) {
        by_name[weight.name] = weight.values;
    }
    const ReadTensor read = [&](const TensorSpec & spec) { return by_name[spec.name]; };
    return save_model(path, config, keys, read, type);
}

std::vector<std::string>
save_model(const std::string & path, const ModelFile & model, WeightType type) {
    std::vector<WeightView> weights;
    for (const ModelTensor & tensor : model.tensors) {
        weights.push_back({tensor.spec.name, tensor.data});
    }
    return save_model(path, model.config, model.keys.get(), weights, type);
}

// --- tokenizer -----------------------------------------------------------------------------------

uint64_t tokenizer_digest(const gguf_context * keys) {
    // chat templates and other tokenizer.* keys do not affect tokenization
    return digest_keys(keys, "tokenizer.ggml.");
}

}  // namespace gt
