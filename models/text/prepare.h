// models/text/prepare.h — tokenizes text files into a token file (token-data.h), on all cores.
//
// A hash of its content assigns a document to training or validation, so that adding documents moves
// no other one. With only a few files, the last part of each file is used for validation instead.
#pragma once

#include "models/text/token-data.h"
#include "models/text/tokenizer.h"

namespace gt {

struct PrepareProgress {
    uint64_t n_done = 0, n_total = 0;  // bytes of input
    uint64_t n_tokens = 0, n_documents = 0;
    double   seconds = 0.0, seconds_left = 0.0;
};

struct PrepareOptions {
    std::vector<std::string> inputs;            // files and folders
    std::string              field   = "text";  // of .jsonl objects
    double                   val     = 0.05;    // fraction of the text for validation
    int                      threads = 0;       // 0: all cores
    // called a few times a second, and at the end
    std::function<void(const PrepareProgress &)> progress;

    template <class Visit>
    void visit(Visit && visit) {
        visit("field", field, "field of .jsonl objects that contains the text");
        visit("val-fraction,val", val, "fraction held out for validation", {}, 0, 0.99);
    }
};

struct PrepareResult {
    TokenInfo info;
    int       n_files = 0, n_skipped = 0;  // skipped: hidden and binary files in folders
};

// Writes `output`. An Error leaves an existing file unchanged.
PrepareResult prepare_tokens(
    const Tokenizer & tokenizer, const PrepareOptions & options, const std::string & output
);

bool is_token_file(const std::string & path);

struct CachedTokens {
    std::string path;
    int         n_files = 0, n_skipped = 0;  // as in PrepareResult; 0: the input is a token file
    bool        is_new = false;              // it was written just now
};

// A token file for these inputs: the input itself if it is one, else a cached one, which is rewritten if
// the inputs (path, size, mtime) or the tokenizer changed. The cache is in $XDG_CACHE_HOME/ggml-train,
// ~/.cache/ggml-train or the folder for temporary files; files that were not used for the longest time are
// removed when it has more than max_bytes.
CachedTokens cached_tokens(
    const Tokenizer & tokenizer, const PrepareOptions & options, uint64_t max_bytes = 20ull << 30
);

// "  45 % | 120 MB of 266 MB | 31.2M tokens | 12s left"
std::string progress_text(const PrepareProgress & progress);

}  // namespace gt
