#include "models/merge.h"

#include "models/base-weights.h"
#include "models/gguf-source.h"

#include <set>

namespace gt {

std::vector<std::string> save_merged(
    const std::string & path,
    const std::string & base_path,
    const std::string & adapter_path,
    WeightType          type
) {
    const GgufSource adapter(adapter_path);
    const auto       where = adapter_path + " is not an adapter (adapter.type is not lora)";
    if (find_string(adapter.gguf.get(), "adapter.type", adapter_path).value_or("") != "lora") {
        throw Error(where);
    }
    const double alpha =
        find_float(adapter.gguf.get(), "adapter.lora.alpha", adapter_path).value_or(0.0);
    ModelFile           base    = load_for_adapter(base_path, {});
    const ModelConfig   config  = base.config;
    const BaseWeights & weights = *config.lora.base;

    // every A of the adapter belongs to a matrix of the base
    std::set<std::string> unused;
    for (int64_t i = 0; i < gguf_get_n_tensors(adapter.gguf.get()); ++i) {
        const std::string name = gguf_get_tensor_name(adapter.gguf.get(), i);
        if (name.ends_with(".lora_a")) {
            unused.insert(name);
        }
    }
    std::vector<float> values;
    const auto         read = [&](const std::string & name, int64_t other) {
        const int64_t   id = gguf_find_tensor(adapter.gguf.get(), name.c_str());
        const int64_t * ne = id < 0 ? nullptr : gguf_get_tensor_ne(adapter.gguf.get(), id);
        if (!ne || (ne[0] != other && ne[1] != other)) {
            throw Error(adapter_path + ": " + name + " does not fit " + base_path);
        }
        std::vector<float> data(static_cast<size_t>(ne[0] * ne[1]));
        adapter.read(id, data);
        return data;
    };
    const auto merged = [&](const TensorSpec & spec) -> std::span<const float> {
        values.resize(static_cast<size_t>(spec.n_elements()));
        if (gguf_find_tensor(adapter.gguf.get(), spec.name.c_str()) >= 0) {  // a classifier
            values = read(spec.name, spec.ne[0]);
            if (static_cast<int64_t>(values.size()) != spec.n_elements()) {
                throw Error(adapter_path + ": " + spec.name + " does not fit " + base_path);
            }
            return values;
        }
        weights.read(spec, values);
        if (unused.erase(spec.name + ".lora_a") > 0) {
            const auto    A    = read(spec.name + ".lora_a", spec.ne[0]);
            const auto    B    = read(spec.name + ".lora_b", spec.ne[1]);
            const int64_t rank = static_cast<int64_t>(A.size()) / spec.ne[0];
            if (rank * spec.ne[1] != static_cast<int64_t>(B.size())) {
                throw Error(adapter_path + ": A and B of " + spec.name + " have different ranks");
            }
            const double scale = alpha > 0.0 ? alpha / static_cast<double>(rank) : 1.0;
            add_adapter(values, A, B, rank, static_cast<float>(scale));
        }
        return values;
    };
    // a ViT has learnt the names of its classes
    ModelConfig whole =
        takes_images(config) ? read_config(adapter.gguf.get(), adapter_path) : config;
    whole.lora = {};
    if (describe(whole) != describe(config)) {
        throw Error(
            adapter_path + " is for another model (" + describe(whole) + ") than " + base_path
        );
    }
    auto notes = save_model(path, whole, base.keys.get(), merged, type);
    for (const std::string & name : unused) {
        notes.push_back(name + " was not merged: " + base_path + " has no such matrix");
    }
    return notes;
}

}  // namespace gt
