#include "ggml-train/gguf/gguf-write.h"

#include <algorithm>
#include <cstring>

namespace gt {

// Footer of a sealed file: 8 bytes magic, 8 bytes length of the rest, 8 bytes its StreamDigest.
static constexpr char   kSeal[9]   = "GTSEAL01";
static constexpr size_t kSealBytes = 24;

GgufWriter::GgufWriter(const std::string & path) : file_(path), gguf_(gguf_init_empty()) {}

void GgufWriter::declare(const std::string & name, std::array<int64_t, 4> ne, ggml_type type) {
    GT_CHECK(!head_done_, "declare all tensors before writing the first");
    GT_CHECK(name.size() < GGML_MAX_NAME, "GGUF tensor names are shorter than 64 bytes");
    const ggml_context_ptr ctx(
        ggml_init({.mem_size = ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true})
    );
    ggml_tensor * tensor = ggml_new_tensor(ctx.get(), type, 4, ne.data());
    ggml_set_name(tensor, name.c_str());
    gguf_add_tensor(gguf_.get(), tensor);
    sizes_.push_back(ggml_nbytes(tensor));
}

void GgufWriter::write_head() {
    Bytes head(gguf_get_meta_size(gguf_.get()));
    gguf_get_meta_data(gguf_.get(), head.data());
    file_.write(head.data(), head.size());
    head_done_ = true;
}

void GgufWriter::write(const void * data, size_t n_bytes) {
    if (!head_done_) {
        write_head();
    }
    GT_CHECK(
        n_done_ < sizes_.size() && n_partial_ + n_bytes <= sizes_[n_done_],
        "size differs from the declaration"
    );
    file_.write(data, n_bytes);
    n_partial_ += n_bytes;
    if (n_partial_ < sizes_[n_done_]) {
        return;
    }
    const size_t  alignment = gguf_get_alignment(gguf_.get());
    const uint8_t zeros[64] = {};
    for (size_t n = GGML_PAD(n_partial_, alignment) - n_partial_; n > 0;) {
        const size_t some = std::min(n, sizeof zeros);
        file_.write(zeros, some);
        n -= some;
    }
    ++n_done_;
    n_partial_ = 0;
}

void GgufWriter::commit(bool sealed) {
    if (!head_done_) {
        write_head();
    }
    GT_CHECK(n_done_ == sizes_.size(), "a declared tensor was not written");
    if (sealed) {
        const uint64_t tail[2] = {file_.n_written(), file_.digest()};
        uint8_t        footer[kSealBytes];
        std::copy_n(kSeal, 8, footer);
        std::memcpy(footer + 8, tail, 16);
        file_.write(footer, sizeof footer);
    }
    file_.commit();
}

std::string why_not_sealed(std::span<const uint8_t> file) {
    if (file.size() < kSealBytes ||
        std::memcmp(file.data() + file.size() - kSealBytes, kSeal, 8) != 0) {
        return "its end is missing (cut off, or half-written)";
    }
    const size_t n = file.size() - kSealBytes;
    uint64_t     tail[2];
    std::memcpy(tail, file.data() + n + 8, 16);
    if (tail[0] != n) {
        return format(
            "it has %zu bytes, %llu were written", n, static_cast<unsigned long long>(tail[0])
        );
    }
    StreamDigest digest;
    digest.add(file.data(), n);
    return digest.value() == tail[1] ? ""
                                     : "its checksum does not match (damaged on disk or in a copy)";
}

}  // namespace gt
