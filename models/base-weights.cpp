#include "models/base-weights.h"

#include "ggml-train/graph/frozen-linear.h"
#include "ggml-train/shard/weights.h"
#include "models/arch.h"
#include "models/gguf-source.h"

#include <algorithm>
#include <sys/mman.h>

namespace gt {

BaseWeights::BaseWeights(const std::string & path, const ModelConfig & config)
    : path_(path), file_(path), digest_(digest64(file_.bytes(), 0)) {
    const auto                    gguf  = open_gguf(path);
    const std::vector<TensorSpec> specs = base_specs(config);
    ctx_.reset(ggml_init(
        {.mem_size = specs.size() * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}
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
        params_.push_back(param);
    }
}

static const Param * find_param(const std::vector<Param> & params, const std::string & name) {
    const auto found = std::find_if(params.begin(), params.end(), [&](const Param & param) {
        return param.name == name;
    });
    return found == params.end() ? nullptr : &*found;
}

const Param * BaseWeights::find(const std::string & name) const {
    return find_param(params_, name);
}

static ggml_type device_type(const ggml_tensor * w) {
    return w->type == GGML_TYPE_F32 ? GGML_TYPE_F32 : GGML_TYPE_F16;
}

size_t BaseWeights::n_bytes_on_device() const {
    size_t n = 0;
    for (const Param & param : params_) {
        n += ggml_row_size(device_type(param.weight), ggml_nelements(param.weight));
    }
    return n;
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

// A matrix at a time.
static void copy_to_device(const ggml_tensor * from, ggml_tensor * to) {
    if (from->type == to->type) {
        ggml_backend_tensor_set(to, from->data, 0, ggml_nbytes(to));
        return;
    }
    const int64_t            C = from->ne[0], n_rows = ggml_nrows(from);
    std::vector<float>       row(static_cast<size_t>(C));
    std::vector<ggml_fp16_t> half(static_cast<size_t>(C * n_rows));
    for (int64_t r = 0; r < n_rows; ++r) {
        read_row(from, r, 0, C, row.data());
        ggml_fp32_to_fp16_row(row.data(), half.data() + r * C, C);
    }
    ggml_backend_tensor_set(to, half.data(), 0, ggml_nbytes(to));
}

DeviceBase::DeviceBase(const Backend & backend, const BaseWeights & base)
    : ctx_(make_context(base.params_.size())), params_(base.params_) {
    for (Param & param : params_) {
        param.weight = ggml_new_tensor(ctx_.get(), device_type(param.weight), 4, param.weight->ne);
        ggml_set_name(param.weight, param.name.c_str());
    }
    buffer_ = backend.allocate(ctx_.get(), "the model that the adapter is for");
    for (size_t i = 0; i < params_.size(); ++i) {
        copy_to_device(base.params_[i].weight, params_[i].weight);
    }
    base.release();
}

const Param * DeviceBase::find(const std::string & name) const {
    return find_param(params_, name);
}

}  // namespace gt
