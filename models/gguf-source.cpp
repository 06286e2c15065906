#include "models/gguf-source.h"

#include <algorithm>
#include <cstring>

namespace gt {

int64_t find_tensor(
    const gguf_context * gguf,
    const TensorSpec &   spec,
    const std::string &  arch,
    const std::string &  where
) {
    const int64_t id = gguf_find_tensor(gguf, spec.name.c_str());
    if (id < 0) {
        throw Error(
            where + ": tensor " + spec.name + " is missing; is this a whole " + arch + " model?"
        );
    }
    const int64_t * ne     = gguf_get_tensor_ne(gguf, id);
    const bool      padded = spec.per_token && ne[0] == spec.ne[0] && ne[1] > spec.ne[1];
    if (!padded && !std::equal(ne, ne + 4, spec.ne.begin())) {
        throw Error(format(
            "%s: tensor %s is %s, the file's keys require %s", where.c_str(), spec.name.c_str(),
            shape_text(ne).c_str(), shape_text(spec.ne.data()).c_str()
        ));
    }
    return id;
}

void check_readable(const gguf_context * gguf, int64_t id, const std::string & where) {
    const ggml_type          type   = gguf_get_tensor_type(gguf, id);
    const ggml_type_traits * traits = ggml_get_type_traits(type);
    if (type != GGML_TYPE_F32 && traits->to_float == nullptr) {
        throw Error(format(
            "%s: tensor %s is of type %s, which cannot be turned into F32", where.c_str(),
            gguf_get_tensor_name(gguf, id), traits->type_name
        ));
    }
}

void check_vectors(const gguf_context * gguf, const std::string & where) {
    for (int64_t i = 0; i < gguf_get_n_tensors(gguf); ++i) {
        const std::string name = gguf_get_tensor_name(gguf, i);
        const ggml_type   type = gguf_get_tensor_type(gguf, i);
        const int64_t *   ne   = gguf_get_tensor_ne(gguf, i);
        if (type != GGML_TYPE_F32 && ne[1] * ne[2] * ne[3] == 1) {
            throw Error(
                where + ": tensor " + name + " is " + ggml_type_name(type) +
                ", and llama.cpp runs norms and biases in F32 only; convert the file with export " +
                where + " --type f16 -o NEW.gguf"
            );
        }
    }
}

void GgufSource::read(int64_t id, std::span<float> out) const {
    const ggml_type type = gguf_get_tensor_type(gguf.get(), id);
    const uint8_t * data = file.bytes().data() + gguf_get_data_offset(gguf.get()) +
                           gguf_get_tensor_offset(gguf.get(), id);
    check_readable(gguf.get(), id, path);
    if (type == GGML_TYPE_F32) {
        std::memcpy(out.data(), data, out.size_bytes());
    } else {
        ggml_quantize_init(type);
        ggml_get_type_traits(type)->to_float(data, out.data(), static_cast<int64_t>(out.size()));
    }
}

}  // namespace gt
