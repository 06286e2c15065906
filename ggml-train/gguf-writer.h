// ggml-train/gguf-writer.h — writes a GGUF tensor by tensor, so that the whole never lies in memory
// twice; aside and renamed, as file.h says. For models and checkpoints.
#pragma once

#include "ggml-cpp.h"
#include "ggml-train/file.h"

#include <array>

namespace gt {

// First declare keys and tensors, then write the tensors in the same order, then commit.
class GgufWriter {
public:
    explicit GgufWriter(const std::string & path);

    gguf_context * keys() { return gguf_.get(); }

    // REQUIRES: name is new and shorter than 64 letters.
    void declare(const std::string & name, std::array<int64_t, 4> ne, ggml_type type);

    // The next declared tensor, in its declared type; or the next piece of it.
    void write(const void * data, size_t n_bytes);

    // sealed: a footer with length and digest follows, for why_not_sealed.
    void commit(bool sealed = false);

private:
    void write_head();

    AsideFile           file_;
    gguf_context_ptr    gguf_;
    std::vector<size_t> sizes_;
    size_t              n_done_    = 0;  // tensors
    size_t              n_piece_   = 0;  // bytes of the one that is not complete
    bool                head_done_ = false;
};

// Nothing if the file ends with the footer that commit(true) wrote and has not changed since;
// otherwise what is wrong with it.
[[nodiscard]] std::string why_not_sealed(std::span<const uint8_t> file);

}  // namespace gt
