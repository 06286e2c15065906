// models/text/text-source.h — reads documents from files: text, or .jsonl (one field per line), also
// gzipped; folders are searched recursively. Long documents are split into parts where it does not
// change their tokens.
#pragma once

#include "ggml-train/base/base.h"

namespace gt {

struct TextFile {
    std::string path;
    uint64_t    n_bytes  = 0;  // on disk
    int64_t     mtime    = 0;  // nanoseconds
    bool        is_jsonl = false, is_gz = false;
};

// All text files of the paths, sorted within each folder. Hidden and binary files in folders, and a.gz
// beside a, are skipped and counted; a binary file or a JSON list that is named itself is an Error.
std::vector<TextFile>
list_text_files(const std::vector<std::string> & paths, int * n_skipped = nullptr);

struct TextPart {
    std::string text;
    bool        begins = false, ends = false;  // the first, the last of its document
    bool        is_tail = false;               // see `tail`
};

class TextReader {
public:
    // field: the one to read from .jsonl objects; empty: the whole line, not parsed. tail: this last fraction
    // of every plain text file becomes a separate document (for validation, if there are few files); 0: no
    // split.
    TextReader(std::vector<TextFile> files, std::string field, double tail);
    ~TextReader();
    TextReader(const TextReader &)             = delete;
    TextReader & operator=(const TextReader &) = delete;

    // Reads the next part, at most about 1 MB; false at the end. Throws an Error that names file and
    // line.
    bool next(TextPart & part);

    // Of a .jsonl file: the place of the last part, file:line.
    std::string where() const;

    uint64_t n_done() const;  // bytes on disk
    uint64_t n_total() const;

private:
    bool        open_next();
    bool        fill();  // false at the end of the file
    bool        next_text(TextPart & part);
    bool        next_line(TextPart & part);
    std::string field_of(const std::string & line) const;

    std::vector<TextFile> files_;
    std::string           field_;
    double                tail_;
    size_t                file_ = 0;        // index of the open file
    void *                gz_   = nullptr;  // gzFile; reads plain files, too
    std::string           buffer_;          // read so far; returned up to begin_
    size_t                begin_  = 0;
    bool                  at_end_ = false;  // the file ends with buffer_
    bool                  begins_ = true;   // next_text: at the beginning of a document
    uint64_t              offset_ = 0;      // of begin_ in the decompressed file
    uint64_t              line_   = 0;
    std::string           value_;  // next_line: the field's text; returned up to value_begin_
    size_t                value_begin_ = 0;
    uint64_t              n_before_    = 0;  // bytes of the previous files
};

}  // namespace gt
