// tools/inspect/inspect.h — one function per kind of file; each prints what the file holds, or throws an
// Error that names the file and what is damaged. They use the readers that the programs use.
#pragma once

#include "ggml-train/base/base.h"

namespace gt {

// A line of the report: a name, padded, and a value. A newline becomes \n, other control characters '?'.
void print_row(const std::string & name, const std::string & value);

// "1234567 (1.2 MB)"
std::string size_text(uint64_t n_bytes);

// 16 hex digits
std::string digest_text(uint64_t digest);

// A model, a vocabulary, or a checkpoint of a run.
void inspect_gguf(const std::string & path);

void inspect_tokens(const std::string & path);
void inspect_image_cache(const std::string & path);

// A value of a store. hosts.txt (may be empty) has the run's key; without it only the head of the frame
// and the clear head of a message are printed.
void inspect_frame(const std::string & path, const std::string & hosts_txt);

}  // namespace gt
