#include "models/text/prepare.h"

#include "ggml-train/base/text.h"
#include "models/text/text-source.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <unistd.h>

namespace gt {

namespace fs = std::filesystem;

static constexpr size_t   kFewFiles      = 20;        // below: validate on the tail of each file
static constexpr uint64_t kMostValTokens = 10000000;  // more would not improve an evaluation

std::string progress_text(const PrepareProgress & p) {
    const double share =
        p.n_total > 0 ? static_cast<double>(p.n_done) / static_cast<double>(p.n_total) : 1.0;
    return format("%3.0f%% | ", std::min(100.0, 100.0 * share)) + bytes_text(p.n_done) + " of " +
           bytes_text(p.n_total) + " | " + count_text(static_cast<double>(p.n_tokens)) +
           " tokens | " +
           (p.n_done < p.n_total ? time_text(p.seconds_left) + " left" : time_text(p.seconds));
}

namespace {

// Reads parts, tokenizes them on all cores, writes them in order.
class Preparation {
public:
    // by_content: split by a hash of the document; else only tails are for validation.
    Preparation(
        const Tokenizer &      tokenizer,
        const PrepareOptions & options,
        bool                   by_content,
        TextReader &           reader,
        TokenWriter &          writer
    )
        : tokenizer_(tokenizer), options_(options), by_content_(by_content), reader_(reader),
          writer_(writer),
          workers_(
              options.threads > 0
                  ? options.threads
                  : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))
          ) {}

    void run() {
        const size_t          n_batch = 4 * static_cast<size_t>(workers_.size());
        std::vector<TextPart> parts;
        for (bool more = true; more;) {
            parts.clear();
            size_t   n_bytes = 0;
            TextPart part;
            while (n_bytes < n_batch << 20 && (more = reader_.next(part))) {
                n_bytes += part.text.size();
                parts.push_back(std::move(part));
            }
            write(parts, tokenize(parts));
            report(!more);
        }
    }

    uint64_t n_tokens() const { return n_train_ + n_val_; }

private:
    std::vector<std::vector<int32_t>> tokenize(const std::vector<TextPart> & parts) {
        std::vector<std::vector<int32_t>> tokens(parts.size());
        std::atomic<size_t>               next = 0;
        workers_.run([&](int, int) {
            for (size_t i; (i = next++) < parts.size();) {
                tokens[i] = parts[i].begins ? tokenizer_.encode(parts[i].text)
                                            : tokenizer_.encode_next(parts[i].text);
            }
        });
        return tokens;
    }

    bool is_validation(const TextPart & part) const {
        if (part.is_tail) {
            return true;
        }
        if (part.text.empty() || n_val_ > kMostValTokens) {
            return false;
        }
        return by_content_ && is_held_out(digest64(part.text), options_.val);
    }

    void write(const std::vector<TextPart> & parts, std::vector<std::vector<int32_t>> tokens) {
        for (size_t i = 0; i < parts.size(); ++i) {
            if (parts[i].begins) {
                is_val_ = is_validation(parts[i]);
                if (tokenizer_.add_bos()) {
                    tokens[i].insert(tokens[i].begin(), tokenizer_.bos());
                }
            }
            if (parts[i].ends && tokenizer_.eos() >= 0) {
                tokens[i].push_back(tokenizer_.eos());
            }
            writer_.add(tokens[i], is_val_, parts[i].ends);
            (is_val_ ? n_val_ : n_train_) += tokens[i].size();
            n_documents_ += parts[i].ends;
        }
    }

    void report(bool last) {
        const double time = steady_seconds();
        if (!options_.progress || (!last && time - reported_ < 0.2)) {
            return;
        }
        reported_ = time;
        PrepareProgress p;
        p.n_total      = reader_.n_total();
        p.n_done       = last ? p.n_total : std::min(reader_.n_done(), p.n_total);
        p.n_tokens     = n_tokens();
        p.n_documents  = n_documents_;
        p.seconds      = time - start_;
        p.seconds_left = p.n_done > 0 ? p.seconds * static_cast<double>(p.n_total - p.n_done) /
                                            static_cast<double>(p.n_done)
                                      : 0.0;
        options_.progress(p);
    }

    const Tokenizer &      tokenizer_;
    const PrepareOptions & options_;
    const bool             by_content_;
    TextReader &           reader_;
    TokenWriter &          writer_;
    Workers                workers_;
    uint64_t               n_train_ = 0, n_val_ = 0, n_documents_ = 0;
    bool                   is_val_ = false;
    double                 start_ = steady_seconds(), reported_ = 0.0;
};

}  // namespace

PrepareResult prepare_tokens(
    const Tokenizer & tokenizer, const PrepareOptions & options, const std::string & output
) {
    if (!(options.val >= 0.0 && options.val < 1.0)) {
        throw Error(
            format("validation fraction is %g; it must be at least 0 and below 1", options.val)
        );
    }
    PrepareResult               result;
    const std::vector<TextFile> files = list_text_files(options.inputs, &result.n_skipped);
    if (files.empty()) {
        throw Error("no input; name text files or folders");
    }
    result.n_files = static_cast<int>(files.size());
    const bool few =
        files.size() < kFewFiles &&
        std::none_of(files.begin(), files.end(), [](const TextFile & f) { return f.is_jsonl; });
    TextReader  reader(files, options.field, few ? options.val : 0.0);
    TokenWriter writer(output, tokenizer.digest(), static_cast<uint64_t>(tokenizer.n_tokens()));
    Preparation preparation(tokenizer, options, !few, reader, writer);
    preparation.run();
    if (preparation.n_tokens() == 0) {
        throw Error(options.inputs[0] + ": contains no text");
    }

    // The hash may select far too few documents; then validation takes the end of the training tokens.
    const auto   n_all = static_cast<double>(preparation.n_tokens());
    const double least = std::min(options.val / 2.0, static_cast<double>(kMostValTokens) / n_all);
    result.info        = writer.commit(least);
    return result;
}

// --- cache ---------------------------------------------------------------------------------------

bool is_token_file(const std::string & path) {
    std::ifstream in(path, std::ios::binary);
    char          magic[8] = {};
    return fs::is_regular_file(path) && in.read(magic, 8) && std::memcmp(magic, "GTTOKENS", 8) == 0;
}

static fs::path cache_folder() {
    const char * cache = std::getenv("XDG_CACHE_HOME");
    const char * home  = std::getenv("HOME");
    if (cache != nullptr && *cache != '\0') {
        return fs::path(cache) / "ggml-train";
    }
    if (home != nullptr && *home != '\0') {
        return fs::path(home) / ".cache" / "ggml-train";
    }
    return fs::temp_directory_path() / format("ggml-train-%u", static_cast<unsigned>(::getuid()));
}

// Removes earlier states of the data whose files begin with `begin`, then the files used longest ago.
static void clean_cache(
    const fs::path & folder, const std::string & begin, const fs::path & keep, uint64_t max_bytes
) {
    struct Entry {
        fs::file_time_type used;
        fs::path           path;
        uint64_t           n_bytes;
    };
    std::vector<Entry> files;
    uint64_t           n_bytes = fs::file_size(keep);
    std::error_code    ignored;  // another process may clean, too
    for (const auto & entry : fs::directory_iterator(folder)) {
        const fs::path & path = entry.path();
        if (path.extension() != ".tokens" || path == keep) {
            continue;
        }
        if (path.filename().string().starts_with(begin)) {
            fs::remove(path, ignored);
            continue;
        }
        const auto     used = entry.last_write_time(ignored);
        const uint64_t size = entry.file_size(ignored);
        if (!ignored) {
            files.push_back({used, path, size});
            n_bytes += size;
        }
    }
    std::sort(files.begin(), files.end(), [](const Entry & a, const Entry & b) {
        return a.used < b.used;
    });
    for (size_t i = 0; i < files.size() && n_bytes > max_bytes; ++i) {
        fs::remove(files[i].path, ignored);
        n_bytes -= files[i].n_bytes;
    }
}

CachedTokens
cached_tokens(const Tokenizer & tokenizer, const PrepareOptions & options, uint64_t max_bytes) {
    if (options.inputs.size() == 1 && is_token_file(options.inputs[0])) {
        return {.path = options.inputs[0]};
    }
    uint64_t which = tokenizer.digest(), state = 0;  // of the paths; of their current state
    for (const std::string & path : options.inputs) {
        which = digest64(fs::absolute(path).lexically_normal().string(), which);
    }
    state = digest64(options.field + format("|%.17g", options.val), which);
    CachedTokens cached;
    for (const TextFile & file : list_text_files(options.inputs, &cached.n_skipped)) {
        state = random_bits(
            digest64(file.path, state), file.n_bytes, static_cast<uint64_t>(file.mtime)
        );
        ++cached.n_files;
    }
    const fs::path folder = cache_folder();
    make_folder(folder.string());
    const std::string begin = format("%016llx-", static_cast<unsigned long long>(which));
    const fs::path    path =
        folder / (begin + format("%016llx.tokens", static_cast<unsigned long long>(state)));
    const FileLock lock((folder / (begin + "lock")).string()
    );  // one process writes it, others wait
    if (fs::exists(path)) {
        try {
            const TokenData whole(path.string());
            std::error_code ignored;
            fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);  // used now
            cached.path = path.string();
            return cached;
        } catch (const Error &) {  // damaged: rewritten below
        }
    }
    prepare_tokens(tokenizer, options, path.string());
    clean_cache(folder, begin, path, max_bytes);
    cached.is_new = true;
    cached.path   = path.string();
    return cached;
}

}  // namespace gt
