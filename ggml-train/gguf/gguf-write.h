// ggml-train/gguf/gguf-write.h — writes a GGUF tensor by tensor, so that no second copy of the model is
// in memory; atomic, see file.h. For models and checkpoints.
#pragma once

#include "ggml-cpp.h"
#include "ggml-train/base/file.h"

#include <array>

namespace gt {

// Declare keys and tensors, write the tensors in the same order, then commit.
class GgufWriter {
public:
    explicit GgufWriter(const std::string & path);

    gguf_context * keys() { return gguf_.get(); }

    // REQUIRES: name is new and shorter than 64 bytes.
    void declare(const std::string & name, std::array<int64_t, 4> ne, ggml_type type);

    // Writes the next declared tensor in its declared type, whole or in several calls.
    void write(const void * data, size_t n_bytes);

    // sealed: appends a footer with length and digest, for why_not_sealed.
    void commit(bool sealed = false);

private:
    void write_head();

    AsideFile           file_;
    gguf_context_ptr    gguf_;
    std::vector<size_t> sizes_;
    size_t              n_done_    = 0;  // complete tensors
    size_t              n_partial_ = 0;  // bytes of the incomplete one
    bool                head_done_ = false;
};

// Empty if the file ends with the footer of commit(true) and is unchanged since; else the reason.
[[nodiscard]] std::string why_not_sealed(std::span<const uint8_t> file);

}  // namespace gt
