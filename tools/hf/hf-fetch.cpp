#include "ggml-train/base/file.h"
#include "tools/cli/flags.h"
#include "tools/hf/hf.h"

#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <curl/curl.h>
#include <filesystem>
#include <fstream>
#include <sodium.h>
#include <thread>
#include <unistd.h>

namespace gt {

namespace fs = std::filesystem;

static std::string env(const char * name) {
    const char * value = std::getenv(name);
    return value ? value : "";
}

static fs::path cache_folder() {
    static constexpr std::pair<const char *, const char *> kPlaces[] = {
        {"LLAMA_CACHE", ""},
        {"HF_HUB_CACHE", ""},
        {"HUGGINGFACE_HUB_CACHE", ""},
        {"HF_HOME", "hub"},
        {"XDG_CACHE_HOME", "huggingface/hub"},
        {"HOME", ".cache/huggingface/hub"},
    };
    for (const auto & [variable, below] : kPlaces) {
        if (const std::string base = env(variable); !base.empty()) {
            return fs::path(base) / below;
        }
    }
    throw Error("no folder for downloads: set HF_HUB_CACHE");
}

static std::string endpoint() {
    std::string url = env("HF_ENDPOINT").empty() ? "https://huggingface.co" : env("HF_ENDPOINT");
    while (url.ends_with('/')) {
        url.pop_back();
    }
    return url;
}

// --- one request ---------------------------------------------------------------------------------------

// The server could not be reached, or the connection broke: worth another attempt.
class BrokenOff : public Error {
public:
    using Error::Error;
};

namespace {

class Request {
public:
    explicit Request(const std::string & url) : url_(url), handle_(curl_easy_init()) {
        GT_CHECK(handle_ != nullptr, "curl_easy_init");
        set(CURLOPT_URL, url_.c_str());
        set(CURLOPT_PROTOCOLS_STR, "http,https");
        set(CURLOPT_FOLLOWLOCATION, 1L);
        set(CURLOPT_FAILONERROR, 1L);
        set(CURLOPT_CONNECTTIMEOUT, 20L);
        set(CURLOPT_LOW_SPEED_LIMIT, 1L);  // no byte for a minute
        set(CURLOPT_LOW_SPEED_TIME, 60L);
        set(CURLOPT_NOSIGNAL, 1L);
        set(CURLOPT_ERRORBUFFER, why_);
        if (const std::string token = env("HF_TOKEN"); !token.empty()) {
            set(CURLOPT_HTTPAUTH, CURLAUTH_BEARER);  // not sent to the hosts of redirections
            set(CURLOPT_XOAUTH2_BEARER, token.c_str());
        }
    }
    ~Request() { curl_easy_cleanup(handle_); }
    Request(const Request &)             = delete;
    Request & operator=(const Request &) = delete;

    template <class T>
    void set(CURLoption option, T value) {
        curl_easy_setopt(handle_, option, value);
    }

    // Returns false if the server can't send a part of a file.
    bool perform() {
        const CURLcode code = curl_easy_perform(handle_);
        if (code == CURLE_OK || code == CURLE_RANGE_ERROR) {
            return code == CURLE_OK;
        }
        if (code == CURLE_WRITE_ERROR) {
            throw Error(url_ + ": can't be written to disk: " + std::strerror(errno));
        }
        long status = 0;
        curl_easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status);
        const bool        refused = status == 401 || status == 403;
        const std::string reason  = *why_ ? why_ : curl_easy_strerror(code);
        if (status == 416) {
            return false;
        }
        if (status >= 400 && status < 500 && status != 408 && status != 429) {
            throw Error(
                url_ + ": " + reason +
                (refused         ? "; set HF_TOKEN to a token that may read it"
                 : status == 404 ? "; check the name of the repository"
                                 : "")
            );
        }
        throw BrokenOff(url_ + ": " + reason);
    }

private:
    std::string url_;
    CURL *      handle_;
    char        why_[CURL_ERROR_SIZE] = {};
};

}  // namespace

// A path for a URL.
static std::string encoded(const std::string & path) {
    std::string text;
    for (const unsigned char c : path) {
        const bool plain = std::isalnum(c) || std::strchr("-._~/", c) != nullptr;
        text += plain ? std::string(1, static_cast<char>(c)) : format("%%%02X", c);
    }
    return text;
}

static std::string get_text(const std::string & url) {
    constexpr size_t kMost = 16 << 20;
    std::string      text;
    Request          request(url);
    request.set(CURLOPT_WRITEDATA, &text);
    request.set(
        CURLOPT_WRITEFUNCTION,
        +[](char * from, size_t, size_t n, void * to) -> size_t {
            auto & all = *static_cast<std::string *>(to);
            if (all.size() + n > kMost) {
                errno = EFBIG;
                return 0;
            }
            all.append(from, n);
            return n;
        }
    );
    request.perform();
    return text;
}

// --- a file --------------------------------------------------------------------------------------------

namespace {

// Shown on a terminal: "model.gguf 1.2 GB of 4.0 GB, 12.1 MB/s".
struct Progress {
    const HfFile &                        file;
    uint64_t                              begin   = 0;  // received before
    std::chrono::steady_clock::time_point from    = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point shown   = {};
    bool                                  visible = ::isatty(STDERR_FILENO) == 1;

    void show(uint64_t n) {
        const auto now = std::chrono::steady_clock::now();
        if (!visible || now - shown < std::chrono::milliseconds(200)) {
            return;
        }
        shown            = now;
        const double s   = std::chrono::duration<double>(now - from).count();
        const auto   per = static_cast<uint64_t>(s > 0 ? static_cast<double>(n) / s : 0);
        std::fprintf(
            stderr, "\r\033[K%s %s of %s, %s/s", file.name.c_str(), bytes_text(begin + n).c_str(),
            bytes_text(file.n_bytes).c_str(), bytes_text(per).c_str()
        );
    }
};

}  // namespace

// Appends what is missing to the file. Returns false if the server can't send only that.
static bool append(const std::string & url, const HfFile & file, const fs::path & part) {
    std::error_code none;
    const uint64_t  have = fs::exists(part, none) ? fs::file_size(part) : 0;
    if (have >= file.n_bytes) {
        return true;
    }
    const std::unique_ptr<std::FILE, int (*)(std::FILE *)> out(
        std::fopen(part.c_str(), "ab"), std::fclose
    );
    if (!out) {
        throw Error(part.string() + ": " + std::strerror(errno));
    }
    Progress progress{.file = file, .begin = have};
    Request  request(url);
    request.set(CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(have));
    request.set(CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(file.n_bytes));
    request.set(CURLOPT_WRITEDATA, out.get());
    request.set(CURLOPT_NOPROGRESS, 0L);
    request.set(CURLOPT_XFERINFODATA, &progress);
    request.set(
        CURLOPT_XFERINFOFUNCTION,
        +[](void * to, curl_off_t, curl_off_t n, curl_off_t, curl_off_t) {
            static_cast<Progress *>(to)->show(static_cast<uint64_t>(n));
            return 0;
        }
    );
    const bool done = request.perform();
    std::fputs(progress.visible ? "\n" : "", stderr);
    return done;
}

static std::string sha256_of(const fs::path & path) {
    const MappedFile                                    file(path.string());
    std::array<unsigned char, crypto_hash_sha256_BYTES> digest{};
    crypto_hash_sha256(digest.data(), file.bytes().data(), file.bytes().size());
    std::string text;
    for (const unsigned char byte : digest) {
        text += format("%02x", byte);
    }
    return text;
}

// Downloads to `blob`, in as many parts as it takes.
static void download(const std::string & url, const HfFile & file, const fs::path & blob) {
    constexpr int  kAttempts = 5;  // without a byte received
    const fs::path part      = blob.string() + ".incomplete";
    const auto     size      = [&] {
        std::error_code none;
        return fs::exists(part, none) ? fs::file_size(part, none) : 0;
    };
    for (int n_failed = 0;;) {
        const uint64_t before = size();
        try {
            if (append(url, file, part)) {
                break;
            }
            fs::remove(part);
            throw BrokenOff(url + ": the server does not send the rest of a file");
        } catch (const BrokenOff &) {
            n_failed = size() > before ? 0 : n_failed + 1;
            if (n_failed == kAttempts) {
                throw;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(200 << n_failed));
        }
    }
    if (size() != file.n_bytes || sha256_of(part) != file.sha256) {
        fs::remove(part);
        throw Error(
            url + ": what was received is not the file that the repository describes (its "
                  "SHA-256 differs), and was deleted; try again"
        );
    }
    fs::rename(part, blob);
}

// --- the cache -----------------------------------------------------------------------------------------

static std::string read_line(const fs::path & path) {
    std::ifstream in(path);
    std::string   line;
    std::getline(in, line);
    return line;
}

// The files of the commit that was fetched last. REQUIRES: there is one.
static HfRepo cached_repo(const std::string & name, const fs::path & folder) {
    HfRepo         repo{.name = name, .commit = read_line(folder / "refs/main"), .files = {}};
    const fs::path snapshot = folder / "snapshots" / repo.commit;
    for (const auto & entry : fs::recursive_directory_iterator(snapshot)) {
        const fs::path & path = entry.path();
        if (path.extension() == ".gguf" && fs::exists(path)) {
            repo.files.push_back(
                {path.lexically_relative(snapshot).string(), "", fs::file_size(path)}
            );
        }
    }
    return repo;
}

static void check_name(const std::string & repo) {
    const size_t slash = repo.find('/');
    const bool   plain =
        repo.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/"
        ) == std::string::npos;
    if (!plain || slash == std::string::npos || slash == 0 || slash + 1 == repo.size() ||
        repo.find('/', slash + 1) != std::string::npos || repo.find("..") != std::string::npos) {
        throw Error("-hf " + repo + ": expected USER/REPO or USER/REPO:FILE");
    }
}

std::string fetch_hf(const std::string & repo_and_file) {
    const size_t      colon  = repo_and_file.find(':');
    const std::string name   = repo_and_file.substr(0, colon);
    const std::string wanted = colon == std::string::npos ? "" : repo_and_file.substr(colon + 1);
    check_name(name);
    std::string folder_name = "models--" + name;
    folder_name.replace(folder_name.find('/'), 1, "--");
    const fs::path folder = cache_folder() / folder_name;

    HfRepo repo;
    try {
        repo = parse_hf_repo(name, get_text(endpoint() + "/api/models/" + name + "?blobs=true"));
    } catch (const BrokenOff & error) {
        if (!fs::is_directory(folder / "snapshots" / read_line(folder / "refs/main"))) {
            throw;
        }
        repo = cached_repo(name, folder);
        std::fprintf(stderr, "%s; taking the file that was downloaded before\n", error.what());
    }
    const HfFile & file = choose_hf_file(repo, wanted);
    const fs::path path = folder / "snapshots" / repo.commit / file.name;
    if (fs::exists(path)) {
        return path.string();
    }
    make_folder((folder / "blobs").string());
    make_folder((folder / "refs").string());
    make_folder(path.parent_path().string());
    const fs::path blob = folder / "blobs" / file.sha256;
    const FileLock lock(blob.string() + ".lock");  // another process downloads it, too
    if (!fs::exists(blob)) {
        std::fprintf(
            stderr, "downloading %s of %s, %s, to %s\n", file.name.c_str(), name.c_str(),
            bytes_text(file.n_bytes).c_str(), folder.c_str()
        );
        const std::string where = name + "/resolve/" + repo.commit + "/" + encoded(file.name);
        download(endpoint() + "/" + where, file, blob);
    }
    fs::remove(path);
    fs::create_symlink(fs::relative(blob, path.parent_path()), path);
    AsideFile ref((folder / "refs/main").string());
    ref.write(repo.commit.data(), repo.commit.size());
    ref.commit();
    return path.string();
}

std::string model_or_hf(const std::string & model, const std::string & repo_and_file) {
    if (!model.empty() && !repo_and_file.empty()) {
        throw UsageError("give the model as a file or with -hf, not both");
    }
    return repo_and_file.empty() ? model : fetch_hf(repo_and_file);
}

}  // namespace gt
