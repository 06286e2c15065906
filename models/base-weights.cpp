#include "models/base-weights.h"

#include "ggml-train/graph/frozen-linear.h"
#include "models/arch.h"
#include "models/gguf-source.h"

#include <sys/mman.h>

namespace gt {

BaseWeights::BaseWeights(const std::string & path, const ModelConfig & config)
    : path_(path), file_(path), digest_(digest64(file_.bytes(), 0)) {
    const auto                    gguf  = open_gguf(path);
    const std::vector<TensorSpec> specs = base_specs(config);
    ctx_.reset(ggml_init(
        {.mem_size   = 2 * specs.size() * ggml_tensor_overhead(),
         .mem_buffer = nullptr,
         .no_alloc   = true}
    ));
    for (const TensorSpec & spec : specs) {
        const int64_t   id   = find_tensor(gguf.get(), spec, config.arch, path);
        const ggml_type type = gguf_get_tensor_type(gguf.get(), id);
        const int64_t * ne   = gguf_get_tensor_ne(gguf.get(), id);
        const uint8_t * data = file_.bytes().data() + gguf_get_data_offset(gguf.get()) +
                               gguf_get_tensor_offset(gguf.get(), id);
        check_readable(gguf.get(), id, path);
        ggml_quantize_init(type);
        Param param{.name = spec.name, .ne = spec.ne, .kind = spec.kind};
        param.weight       = ggml_new_tensor(ctx_.get(), type, 4, ne);
        param.weight->data = const_cast<uint8_t *>(data);
        ggml_set_name(param.weight, spec.name.c_str());
        if (spec.kind == ParamKind::vector && type != GGML_TYPE_F32) {
            copies_.emplace_back(static_cast<size_t>(spec.n_elements()));
            read_row(param.weight, 0, 0, ne[0], copies_.back().data());
            param.weight       = ggml_new_tensor(ctx_.get(), GGML_TYPE_F32, 4, ne);
            param.weight->data = copies_.back().data();
        }
        params_.push_back(param);
    }
}

const Param * BaseWeights::find(const std::string & name) const {
    for (const Param & param : params_) {
        if (param.name == name) {
            return &param;
        }
    }
    return nullptr;
}

void BaseWeights::release() const {
    ::madvise(const_cast<uint8_t *>(file_.bytes().data()), file_.bytes().size(), MADV_DONTNEED);
}

void BaseWeights::read(const TensorSpec & spec, std::span<float> out) const {
    const ggml_tensor * w = find(spec.name)->weight;
    for (int64_t row = 0; row < spec.n_elements() / spec.ne[0]; ++row) {
        read_row(w, row, 0, spec.ne[0], out.data() + row * spec.ne[0]);
    }
}

}  // namespace gt
