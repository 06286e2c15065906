// models/gguf-source.h — finds and checks the tensors of a model in a GGUF that somebody else has written.
#pragma once

#include "ggml-train/base/file.h"
#include "ggml-train/gguf/gguf-read.h"
#include "ggml-train/gguf/model-head.h"

namespace gt {

// Index of the tensor that `spec` describes, with its shape checked. Tables with a row per token may have
// more rows than tokens. Every Error begins with `where`, the file.
int64_t find_tensor(
    const gguf_context * gguf,
    const TensorSpec &   spec,
    const std::string &  arch,
    const std::string &  where
);

// Throws an Error if a tensor's type cannot be turned into F32.
void check_readable(const gguf_context * gguf, int64_t id, const std::string & where);

// Throws an Error if a vector (a norm, a bias) is not F32: libllama multiplies and adds them in F32 only, and
// ends the whole process at others; our kernels would read beyond its end.
void check_vectors(const gguf_context * gguf, const std::string & where);

// A GGUF that is open for reading tensors.
struct GgufSource {
    std::string      path;
    gguf_context_ptr gguf;
    MappedFile       file;

    explicit GgufSource(const std::string & path) : path(path), gguf(open_gguf(path)), file(path) {}

    // Converts the first values of a tensor to F32.
    void read(int64_t id, std::span<float> out) const;
};

}  // namespace gt
