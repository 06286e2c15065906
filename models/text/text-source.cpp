#include "models/text/text-source.h"

#include "ggml-train/base/json.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <zlib.h>

namespace gt {

namespace fs = std::filesystem;

static constexpr size_t kPartBytes = 1 << 20;

// --- list ----------------------------------------------------------------------------------------

static TextFile describe_file(const fs::path & path) {
    TextFile    file;
    struct stat info = {};
    if (::stat(path.c_str(), &info) != 0) {
        throw Error(path.string() + ": " + std::strerror(errno));
    }
    file.path        = path.string();
    file.n_bytes     = static_cast<uint64_t>(info.st_size);
    file.mtime       = info.st_mtim.tv_sec * 1000000000ll + info.st_mtim.tv_nsec;
    std::string name = file.path;
    file.is_gz       = name.ends_with(".gz");
    name             = file.is_gz ? name.substr(0, name.size() - 3) : name;
    file.is_jsonl    = name.ends_with(".jsonl") || name.ends_with(".ndjson");
    return file;
}

static bool looks_binary(const TextFile & file) {
    if (file.is_gz) {
        return false;
    }
    std::ifstream in(file.path, std::ios::binary);
    char          begin[4096];
    in.read(begin, sizeof begin);
    return std::memchr(begin, 0, static_cast<size_t>(in.gcount())) != nullptr;
}

// A file that was named itself.
static void refuse_other_kinds(const TextFile & file) {
    std::ifstream in(file.path, std::ios::binary);
    char          magic[8] = {};
    if (in.read(magic, 8) && std::memcmp(magic, "GTTOKENS", 8) == 0) {
        throw Error(file.path + " is a token file; name it alone, without text files");
    }
    if (looks_binary(file)) {
        throw Error(file.path + " contains NUL bytes; it is no text in UTF-8");
    }
    if (file.path.ends_with(".json") && magic[0] == '[') {
        throw Error(
            file.path + " is a list of records; make one line of each: jq -c '.[]' " + file.path +
            " > " + file.path + "l"
        );
    }
}

std::vector<TextFile> list_text_files(const std::vector<std::string> & paths, int * n_skipped) {
    std::vector<TextFile> files;
    int                   skipped = 0;
    for (const std::string & path : paths) {
        if (!fs::is_directory(path)) {
            files.push_back(describe_file(path));
            refuse_other_kinds(files.back());
            continue;
        }
        std::vector<TextFile> found;
        std::error_code       error;
        const auto            options = fs::directory_options::follow_directory_symlink;
        for (fs::recursive_directory_iterator it(path, options, error), end; !error && it != end;
             it.increment(error)) {
            const bool hidden = it->path().filename().string()[0] == '.';
            if (it->is_directory()) {
                if (hidden) {
                    it.disable_recursion_pending();
                }
                continue;
            }
            if (!it->is_regular_file()) {
                continue;
            }
            TextFile   file = describe_file(it->path());
            const bool is_copy =
                file.is_gz && fs::exists(file.path.substr(0, file.path.size() - 3));
            if (hidden || is_copy || looks_binary(file)) {
                ++skipped;
            } else {
                found.push_back(std::move(file));
            }
        }
        if (error) {
            throw Error(path + ": cannot be read: " + error.message());
        }
        if (found.empty()) {
            throw Error(path + ": contains no text files");
        }
        std::sort(found.begin(), found.end(), [](const TextFile & a, const TextFile & b) {
            return a.path < b.path;
        });
        files.insert(files.end(), found.begin(), found.end());
    }
    if (n_skipped != nullptr) {
        *n_skipped = skipped;
    }
    return files;
}

// --- read ----------------------------------------------------------------------------------------

TextReader::TextReader(std::vector<TextFile> files, std::string field, double tail)
    : files_(std::move(files)), field_(std::move(field)), tail_(tail) {}

TextReader::~TextReader() {
    if (gz_ != nullptr) {
        gzclose(static_cast<gzFile>(gz_));
    }
}

uint64_t TextReader::n_total() const {
    uint64_t n = 0;
    for (const TextFile & file : files_) {
        n += file.n_bytes;
    }
    return n;
}

uint64_t TextReader::n_done() const {
    const auto offset = gz_ != nullptr ? gzoffset(static_cast<gzFile>(gz_)) : 0;
    return n_before_ + static_cast<uint64_t>(std::max<long>(0, offset));
}

bool TextReader::open_next() {
    if (gz_ != nullptr) {
        gzclose(static_cast<gzFile>(gz_));
        gz_ = nullptr;
        n_before_ += files_[file_++].n_bytes;
    }
    if (file_ == files_.size()) {
        return false;
    }
    const std::string & path = files_[file_].path;
    gz_                      = gzopen(path.c_str(), "rb");
    if (gz_ == nullptr) {
        throw Error(path + ": cannot be read: " + std::strerror(errno));
    }
    gzbuffer(static_cast<gzFile>(gz_), 1 << 18);
    buffer_.clear();
    begin_  = 0;
    at_end_ = false;
    begins_ = true;
    offset_ = line_ = 0;
    return true;
}

bool TextReader::fill() {
    if (at_end_) {
        return false;
    }
    buffer_.erase(0, begin_);  // drop what was returned
    begin_              = 0;
    const size_t before = buffer_.size();
    buffer_.resize(before + kPartBytes);
    const int    n    = gzread(static_cast<gzFile>(gz_), buffer_.data() + before, kPartBytes);
    int          code = Z_OK;
    const char * why  = gzerror(static_cast<gzFile>(gz_), &code);
    if (n < 0 || (code != Z_OK && code != Z_STREAM_END)) {
        const std::string text = code == Z_ERRNO       ? std::strerror(errno)
                                 : code == Z_BUF_ERROR ? "cut off"
                                                       : why;
        throw Error(files_[file_].path + ": cannot be read: " + text);
    }
    buffer_.resize(before + static_cast<size_t>(n));
    at_end_ = n == 0;
    return !at_end_;
}

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// Where to split a longer text, at `most` bytes or before: after the last newline that is followed by
// text; else before the last space; else between two characters. REQUIRES: most < text.size().
static size_t cut(std::string_view text, size_t most) {
    for (size_t n = most; n > most / 2; --n) {
        if (text[n - 1] == '\n' && !is_space(text[n])) {
            return n;
        }
    }
    for (size_t n = most; n > most / 2; --n) {
        if (text[n] == ' ' && !is_space(text[n - 1])) {
            return n;
        }
    }
    size_t n = most;
    while (n + 4 > most && n > 1 && (text[n] & 0xc0) == 0x80) {
        --n;
    }
    return n;
}

bool TextReader::next_text(TextPart & part) {
    while (buffer_.size() - begin_ <= kPartBytes && fill()) {
    }
    const std::string_view left = std::string_view(buffer_).substr(begin_);
    if (left.empty()) {
        return false;
    }
    const TextFile & file = files_[file_];
    const auto split  = static_cast<uint64_t>(static_cast<double>(file.n_bytes) * (1.0 - tail_));
    const bool tailed = tail_ > 0.0 && !file.is_gz && file.n_bytes > 1000;
    const bool before = tailed && offset_ < split;
    size_t     most   = std::min(left.size(), kPartBytes);
    if (before) {
        most = static_cast<size_t>(std::min<uint64_t>(most, split - offset_));
    }
    const bool   reached = before && offset_ + most == split;
    const size_t n       = most == left.size() ? most : cut(left, most);
    part.text            = left.substr(0, n);
    part.begins          = begins_;
    part.is_tail         = tailed && !before;
    begin_ += n;
    // The cut may lie just before the split; the rest still belongs to the tail.
    offset_   = reached ? split : offset_ + n;
    part.ends = reached || (begin_ == buffer_.size() && !fill());
    begins_   = part.ends;
    return true;
}

std::string TextReader::where() const {
    return files_[file_].path + ":" + std::to_string(line_);
}

std::string TextReader::field_of(const std::string & line) const {
    if (field_.empty()) {
        return line;
    }
    const auto json = Json::parse(line);
    if (!json || !json->is_object()) {
        throw Error(where() + ": is not a JSON object");
    }
    if (auto value = json->string(field_)) {
        return *std::move(value);
    }
    std::string fields;
    for (const std::string & name : json->keys()) {
        if (json->string(name)) {
            fields += (fields.empty() ? "" : ", ") + name;
        }
    }
    throw Error(
        where() + ": no text field \"" + field_ +
        "\"; fields with text: " + (fields.empty() ? "none" : fields) + "; choose one with --field"
    );
}

bool TextReader::next_line(TextPart & part) {
    part.begins = value_begin_ == value_.size();
    while (value_begin_ == value_.size()) {
        size_t n_seen = 0, end = std::string::npos;
        while ((end = buffer_.find('\n', begin_ + n_seen)) == std::string::npos) {
            n_seen = buffer_.size() - begin_;
            if (!fill()) {
                break;
            }
        }
        const bool last = end == std::string::npos;  // without a newline
        if (last && begin_ == buffer_.size()) {
            return false;
        }
        const std::string line = buffer_.substr(begin_, last ? end : end - begin_);
        begin_                 = last ? buffer_.size() : end + 1;
        ++line_;
        if (line.find_first_not_of(" \t\r") != std::string::npos) {
            value_       = field_of(line);
            value_begin_ = 0;
        }
    }
    const std::string_view left = std::string_view(value_).substr(value_begin_);
    const size_t           n    = left.size() <= kPartBytes ? left.size() : cut(left, kPartBytes);
    part.text                   = left.substr(0, n);
    part.is_tail                = false;
    value_begin_ += n;
    part.ends = value_begin_ == value_.size();
    return true;
}

bool TextReader::next(TextPart & part) {
    while (true) {
        if (gz_ != nullptr && (files_[file_].is_jsonl ? next_line(part) : next_text(part))) {
            return true;
        }
        if (!open_next()) {
            return false;
        }
    }
}

}  // namespace gt
