// models/prepare.h — text files into a token file (ggml-train/data.h), on all cores.
//
// Which documents validate is decided by their content, so that it does not change when others are
// added; where there are only a few files, the last part of each validates instead.
#pragma once

#include "ggml-train/data.h"
#include "models/tokenizer.h"

namespace gt {

struct PrepareProgress {
    uint64_t n_done = 0, n_total = 0;  // bytes of input
    uint64_t n_tokens = 0, n_documents = 0;
    double   seconds = 0.0, seconds_left = 0.0;
};

struct PrepareOptions {
    std::vector<std::string> inputs;            // files and folders
    std::string              field   = "text";  // of .jsonl lines
    double                   val     = 0.05;    // share that validates
    int                      threads = 0;       // 0: all cores
    std::function<void(const PrepareProgress &)>
        progress;  // called a few times a second, and at the end

    template <class Visit>
    void visit(Visit && visit) {
        visit("field", field, ".jsonl: the field that holds the text");
        visit("val", val, "share of the text that validates");
    }
};

struct PrepareResult {
    TokenInfo info;
    int       n_files = 0, n_skipped = 0;  // skipped: hidden and binary files in folders
};

// Makes `output`. An Error leaves what was there.
PrepareResult prepare_tokens(
    const Tokenizer & tokenizer, const PrepareOptions & options, const std::string & output
);

// The token file for these inputs: the input itself if it is one, else from the cache, where it is
// made if the inputs have changed (by path, size and time) or another tokenizer is used. The cache
// is $XDG_CACHE_HOME/ggml-train, ~/.cache/ggml-train or beside other temporary files.
std::string cached_tokens(const Tokenizer & tokenizer, const PrepareOptions & options);

// "  45 % | 120 MB of 266 MB | 31.2M tokens | 12s left"
std::string progress_text(const PrepareProgress & progress);

}  // namespace gt
