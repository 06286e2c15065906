#include "models/model-file.h"

#include "ggml-train/base/file.h"
#include "ggml-train/gguf/gguf-read.h"
#include "ggml-train/gguf/gguf-write.h"

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

// A GGUF that is open for reading tensors.
struct Source {
    const std::string & path;
    gguf_context_ptr    gguf;
    MappedFile          file;

    explicit Source(const std::string & path) : path(path), gguf(open_gguf(path)), file(path) {}

    // Converts the first values of a tensor to F32.
    void read(int64_t id, std::span<float> out) const {
        const ggml_type          type   = gguf_get_tensor_type(gguf.get(), id);
        const ggml_type_traits * traits = ggml_get_type_traits(type);
        const uint8_t *          data   = file.bytes().data() + gguf_get_data_offset(gguf.get()) +
                               gguf_get_tensor_offset(gguf.get(), id);
        if (type == GGML_TYPE_F32) {
            std::memcpy(out.data(), data, out.size_bytes());
        } else if (traits->to_float != nullptr) {
            ggml_quantize_init(type);
            traits->to_float(data, out.data(), static_cast<int64_t>(out.size()));
        } else {
            throw Error(format(
                "%s: tensor %s is of type %s, which cannot be turned into F32", path.c_str(),
                gguf_get_tensor_name(gguf.get(), id), traits->type_name
            ));
        }
    }
};

// Index of the tensor `spec` describes, with its shape checked. Tables with a row per token may have
// padding rows; they are dropped.
int64_t find_tensor(const Source & source, const TensorSpec & spec, ModelFile & model) {
    const int64_t id = gguf_find_tensor(source.gguf.get(), spec.name.c_str());
    if (id < 0) {
        throw Error(
            source.path + ": tensor " + spec.name + " is missing; is this a whole " +
            model.config.arch + " model?"
        );
    }
    const int64_t * ne     = gguf_get_tensor_ne(source.gguf.get(), id);
    const bool      padded = spec.per_token && ne[0] == spec.ne[0] && ne[1] > spec.ne[1];
    if (!padded && !std::equal(ne, ne + 4, spec.ne.begin())) {
        throw Error(format(
            "%s: tensor %s is %s, the file's keys require %s", source.path.c_str(),
            spec.name.c_str(), shape_text(ne).c_str(), shape_text(spec.ne.data()).c_str()
        ));
    }
    if (padded) {
        model.notes.push_back(format(
            "%s has %lld rows for %lld tokens; the padding was dropped", spec.name.c_str(),
            static_cast<long long>(ne[1]), static_cast<long long>(spec.ne[1])
        ));
    }
    return id;
}

// Reads all tensors. Checks every shape before it allocates memory of that size.
void read_tensors(const Source & source, bool others_allowed, ModelFile & model) {
    const int64_t n_tensors = gguf_get_n_tensors(source.gguf.get());
    if (model.config.n_layer > n_tensors) {
        throw Error(source.path + ": has fewer tensors than layers; is this a whole model?");
    }
    std::vector<int64_t>  ids;
    std::set<std::string> known;
    for (const RopeFactors & factors : kRopeFactors) {
        known.insert(factors.name);
    }
    const auto specs = tensor_specs(model.config);
    for (const TensorSpec & spec : specs) {
        ids.push_back(find_tensor(source, spec, model));
        known.insert(spec.name);
    }
    for (int64_t i = 0; !others_allowed && i < n_tensors; ++i) {
        const std::string name = gguf_get_tensor_name(source.gguf.get(), i);
        if (known.count(name) == 0) {
            throw Error(
                source.path + ": tensor " + name + " is not part of a " + model.config.arch +
                " model as we train it"
            );
        }
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
void read_rope_factors(const Source & source, ModelConfig & config) {
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

// Ties an output matrix that a converter stored although it is the token embedding.
void tie_output(ModelFile & model) {
    if (!find_arch(model.config.arch).ties_equal_output || model.config.tied) {
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

ModelFile load_model(const std::string & path) {
    Source     source(path);
    const bool checkpoint = gguf_find_key(source.gguf.get(), "gt.checkpoint.version") >= 0;
    if (checkpoint) {
        if (const std::string why = why_not_sealed(source.file.bytes()); !why.empty()) {
            throw Error(path + ": damaged checkpoint: " + why + "; use the previous one");
        }
    }
    if (find_int(source.gguf.get(), "split.count", path).value_or(1) > 1) {
        throw Error(
            path + ": is one file of a split model; join them with llama-gguf-split --merge"
        );
    }
    if (!checkpoint && gguf_get_n_tensors(source.gguf.get()) == 0) {
        throw Error(
            path +
            ": contains a vocabulary but no weights; create a model with new-model --vocab " + path
        );
    }
    ModelFile model;
    model.config = read_config(source.gguf.get(), path);
    read_rope_factors(source, model.config);
    read_tensors(source, checkpoint, model);
    tie_output(model);

    model.keys = std::move(source.gguf);
    for (const char * key :
         {"general.alignment", "general.file_type", "general.quantization_version"}) {
        gguf_remove_key(model.keys.get(), key);  // describes the file, not the model
    }
    for (int64_t i = gguf_get_n_kv(model.keys.get()) - 1; i >= 0; --i) {
        const std::string key = gguf_get_key(model.keys.get(), i);
        if (key.starts_with("gt.")) {
            gguf_remove_key(model.keys.get(), key.c_str());
        }
    }
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
    const std::string &         path,
    const ModelConfig &         config,
    const gguf_context *        keys,
    std::span<const WeightView> weights,
    WeightType                  type
) {
    const ModelHead                               head = model_head(config, keys);
    std::map<std::string, std::span<const float>> by_name;
    for (const WeightView & weight : weights) {
        by_name[weight.name] = weight.values;
    }
    GgufWriter writer(path);
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
        const std::span<const float> values = by_name[spec.name];
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
