#include "ggml-train/base/text.h"
#include "tools/hf/hf.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

namespace gt {

static bool is_hex(const std::string & text, size_t n) {
    return text.size() == n && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// Stays inside its folder.
static bool is_plain_path(const std::string & path) {
    return !path.empty() && path[0] != '/' && ("/" + path + "/").find("/../") == path.npos;
}

static std::string lower(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) {
        return static_cast<char>(std::tolower(c));
    });
    return text;
}

HfRepo parse_hf_repo(const std::string & repo, const std::string & answer) {
    HfRepo result{.name = repo, .commit = {}, .files = {}};
    try {
        const auto json = nlohmann::json::parse(answer);
        result.commit   = json.at("sha").get<std::string>();
        for (const auto & item : json.at("siblings")) {
            const auto name = item.at("rfilename").get<std::string>();
            if (!lower(name).ends_with(".gguf") || !is_plain_path(name) || !item.contains("lfs")) {
                continue;
            }
            const auto & lfs    = item.at("lfs");
            const auto   sha256 = lfs.at("sha256").get<std::string>();
            if (is_hex(sha256, 64)) {
                result.files.push_back({name, sha256, lfs.at("size").get<uint64_t>()});
            }
        }
    } catch (const nlohmann::json::exception & error) {
        throw Error(
            repo + ": the server's answer is not the description of a repository: " + error.what()
        );
    }
    if (!is_hex(result.commit, 40)) {
        throw Error(repo + ": the server's answer has no valid commit");
    }
    return result;
}

const HfFile & choose_hf_file(const HfRepo & repo, const std::string & wanted) {
    std::vector<const HfFile *> found;
    std::string                 list;
    for (const HfFile & file : repo.files) {
        if (file.name == wanted) {
            return file;
        }
        if (lower(file.name).find(lower(wanted)) != std::string::npos) {
            found.push_back(&file);
        }
        list += "\n    " + repo.name + ":" + file.name + "  (" + bytes_text(file.n_bytes) + ")";
    }
    if (found.size() == 1) {
        return *found[0];
    }
    if (repo.files.empty()) {
        throw Error(repo.name + " has no GGUF file; look for a repository that has one");
    }
    throw Error(
        repo.name + " has " + (found.empty() ? "no file " + wanted : "several files") +
        "; name one:" + list
    );
}

}  // namespace gt
