// ggml-train/gguf/gguf-read.h — reads untrusted GGUF files. ggml's getters abort if a key has another
// type; these throw an Error that names file, key and type.
#pragma once

#include "ggml-cpp.h"
#include "ggml-train/base/base.h"

#include <optional>

namespace gt {

// Reads keys and tensor descriptions, no data. Throws an Error that names the file and the reason if
// it is invalid or ends before the last tensor does.
gguf_context_ptr open_gguf(const std::string & path);

// Value of a key; nothing if it is missing. Throws an Error that begins with `where` on another type.
std::optional<int64_t>
find_int(const gguf_context * gguf, const std::string & key, const std::string & where);
std::optional<double>
find_float(const gguf_context * gguf, const std::string & key, const std::string & where);
std::optional<std::string>
find_string(const gguf_context * gguf, const std::string & key, const std::string & where);
std::vector<int64_t>  // of a number, or of an array of them
find_ints(const gguf_context * gguf, const std::string & key, const std::string & where);
std::vector<float>
find_floats(const gguf_context * gguf, const std::string & key, const std::string & where);
std::vector<std::string>
find_strings(const gguf_context * gguf, const std::string & key, const std::string & where);

// Length of an array; nothing if it is missing.
std::optional<int64_t>
find_array_size(const gguf_context * gguf, const std::string & key, const std::string & where);

// Removes all keys except those that begin with `prefix`.
void keep_keys(gguf_context * gguf, const std::string & prefix);

// Digest of the keys that begin with `prefix` and of their values, independent of order; 0: no keys.
uint64_t digest_keys(const gguf_context * gguf, const std::string & prefix);

// "[768, 50257]"
std::string shape_text(const int64_t * ne);

}  // namespace gt
