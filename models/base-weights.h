// models/base-weights.h — the weights an adapter is trained for: mapped from their GGUF in the types they have,
// never copied, never changed.
#pragma once

#include "ggml-cpp.h"
#include "ggml-train/base/file.h"
#include "ggml-train/model.h"
#include "models/model-config.h"

namespace gt {

class Backend;

class BaseWeights {
public:
    // config: of the file, with its adapter's settings or without. REQUIRES: check_vectors passed. Throws an
    // Error that names the file.
    BaseWeights(const std::string & path, const ModelConfig & config);

    const Param * find(const std::string & name) const;  // null: there is none

    // Gives the pages of the file back; they are read again when they are needed.
    void release() const;

    // The values of a tensor as F32, without padding.
    void read(const TensorSpec & spec, std::span<float> out) const;

    const std::string & path() const { return path_; }
    size_t              n_bytes() const { return file_.bytes().size(); }
    size_t              n_bytes_on_device() const;          // of a DeviceBase
    uint64_t            digest() const { return digest_; }  // of the whole file

private:
    std::string        path_;
    MappedFile         file_;
    uint64_t           digest_;
    ggml_context_ptr   ctx_;
    std::vector<Param> params_;

    friend class DeviceBase;
};

// The same weights in the memory of a device that cannot read the file: F32 as they are, all others in F16, a
// type that every backend of ggml can read.
class DeviceBase {
public:
    DeviceBase(const Backend & backend, const BaseWeights & base);

    const Param * find(const std::string & name) const;  // null: there is none

private:
    ggml_context_ptr        ctx_;
    ggml_backend_buffer_ptr buffer_;
    std::vector<Param>      params_;
};

}  // namespace gt
