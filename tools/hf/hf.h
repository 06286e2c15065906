// tools/hf/hf.h — models from Hugging Face: found, downloaded and kept where llama.cpp and
// huggingface_hub keep theirs (CACHE/models--USER--REPO), so that no file is downloaded twice.
//
// Environment: HF_ENDPOINT (default https://huggingface.co), HF_TOKEN; LLAMA_CACHE, HF_HUB_CACHE, HF_HOME
// or XDG_CACHE_HOME for the cache.
#pragma once

#include "ggml-train/base/base.h"

namespace gt {

// A file of a repository.
struct HfFile {
    std::string name, sha256;
    uint64_t    n_bytes = 0;
};

// The GGUF files of a repository, at its newest commit.
struct HfRepo {
    std::string         name, commit;  // user/repo
    std::vector<HfFile> files;
};

// From the answer to GET /api/models/USER/REPO?blobs=true. Files that are not GGUF or whose name or digest
// is malformed are left out. Throws an Error if the answer is not one of this kind.
HfRepo parse_hf_repo(const std::string & repo, const std::string & answer);

// The file that `wanted` names: its whole name, or a part of it such as a type (q8_0), in any case; empty:
// the only file. An Error lists the files if there is not exactly one.
const HfFile & choose_hf_file(const HfRepo & repo, const std::string & wanted);

// The path of a file, USER/REPO or USER/REPO:FILE, which is downloaded first if it is not in the cache.
// A broken download is resumed, also by the next call; what was received must have the file's digest.
// Without network the newest cached file is taken.
std::string fetch_hf(const std::string & repo_and_file);

// `model`, or if -hf was given, the path of that file; a UsageError if both were given.
std::string model_or_hf(const std::string & model, const std::string & repo_and_file);

}  // namespace gt
