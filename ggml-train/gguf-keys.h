// ggml-train/gguf-keys.h — reading GGUF files of unknown origin. ggml's own getters abort on a key
// of another type; these return nothing or throw an Error that names file, key and type.
#pragma once

#include "ggml-cpp.h"
#include "ggml-train/base.h"

#include <optional>

namespace gt {

// Opens a GGUF: keys and tensor descriptions, no data. Checks that the whole of every tensor is in
// the file. Throws an Error naming the file and what is wrong with it.
gguf_context_ptr open_gguf(const std::string & path);

// Value of a key: nothing if absent; an Error beginning with `where` if of another type.
std::optional<int64_t>
find_int(const gguf_context * gguf, const std::string & key, const std::string & where);
std::optional<double>
find_float(const gguf_context * gguf, const std::string & key, const std::string & where);
std::optional<std::string>
find_string(const gguf_context * gguf, const std::string & key, const std::string & where);
std::vector<float>
find_floats(const gguf_context * gguf, const std::string & key, const std::string & where);
std::vector<std::string>
find_strings(const gguf_context * gguf, const std::string & key, const std::string & where);

// Length of an array key; nothing if absent.
std::optional<int64_t>
find_array_size(const gguf_context * gguf, const std::string & key, const std::string & where);

// Removes all keys but those that begin with `prefix`.
void keep_keys(gguf_context * gguf, const std::string & prefix);

// Digest of the keys that begin with `prefix` and their values, whatever their order; 0: none.
uint64_t digest_keys(const gguf_context * gguf, const std::string & prefix);

// Shape of a tensor as text: "[768, 50257]".
std::string shape_text(const int64_t * ne);

}  // namespace gt
