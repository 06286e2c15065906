// models/text-source.h — documents out of files: text, .jsonl (one field of each line), either also
// as .gz; folders are searched. Long documents come in parts, cut where a tokenizer does not mind.
#pragma once

#include "ggml-train/base.h"

namespace gt {

struct TextFile {
    std::string path;
    uint64_t    n_bytes  = 0;  // on the disk
    int64_t     mtime    = 0;  // nanoseconds
    bool        is_jsonl = false, is_gz = false;
};

// All text files that the paths name, folders searched, in an order that does not depend on the
// disk. In folders hidden and binary files are left out and counted; a named file is always taken.
std::vector<TextFile>
list_text_files(const std::vector<std::string> & paths, int * n_skipped = nullptr);

struct TextPart {
    std::string text;
    bool        begins = false, ends = false;  // of its document
    bool        is_tail = false;               // of the document's last share, see `tail`
};

class TextReader {
public:
    // field: what to take of a .jsonl line. tail: this last share of every plain text file is a
    // document of its own (for validation, where files are few); 0: files are whole.
    TextReader(std::vector<TextFile> files, std::string field, double tail);
    ~TextReader();
    TextReader(const TextReader &)             = delete;
    TextReader & operator=(const TextReader &) = delete;

    // The next part of at most about a megabyte; false: there is no more. An Error names file and
    // line of what cannot be read.
    bool next(TextPart & part);

    uint64_t n_done() const;  // bytes of the files on the disk
    uint64_t n_total() const;

private:
    bool        open_next();
    bool        fill();  // false: the file has ended
    bool        next_text(TextPart & part);
    bool        next_line(TextPart & part);
    std::string field_of(const std::string & line) const;

    std::vector<TextFile> files_;
    std::string           field_;
    double                tail_;
    size_t                file_ = 0;        // index of the open one
    void *                gz_   = nullptr;  // gzFile: reads plain files too
    std::string           buffer_;          // read; given out up to begin_
    size_t                begin_  = 0;
    bool                  at_end_ = false;  // nothing follows buffer_
    bool                  begins_ = true;   // next_text: a document begins
    uint64_t              offset_ = 0;      // of begin_ in the unpacked file
    uint64_t              line_   = 0;
    std::string           value_;  // next_line: a line's field; given out up to value_begin_
    size_t                value_begin_ = 0;
    uint64_t              n_before_    = 0;  // bytes of the files before this one
};

}  // namespace gt
