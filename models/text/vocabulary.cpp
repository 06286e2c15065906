// Finds tokenizer keys: the byte vocabulary, llama.cpp's files, any GGUF. See tokenizer.h.
#include "ggml-train/gguf/gguf-read.h"
#include "models/text/tokenizer.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace gt {

namespace fs = std::filesystem;

gguf_context_ptr byte_vocabulary() {
    gguf_context_ptr         keys(gguf_init_empty());
    std::vector<std::string> texts;
    std::vector<int32_t>     types(256, 1);  // normal
    for (int i = 0; i < 256; ++i) {
        texts.push_back(format("\\x%02x", i));
    }
    // an incomplete escape matches no byte, so this token never occurs in text
    texts.push_back("\\x~");
    types.push_back(3);  // control
    std::vector<const char *> pointers;
    for (const std::string & text : texts) {
        pointers.push_back(text.c_str());
    }
    gguf_set_val_str(keys.get(), "tokenizer.ggml.model", "rwkv");
    gguf_set_arr_str(keys.get(), "tokenizer.ggml.tokens", pointers.data(), pointers.size());
    gguf_set_arr_data(
        keys.get(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size()
    );
    gguf_set_val_u32(keys.get(), "tokenizer.ggml.bos_token_id", 256);
    gguf_set_val_u32(keys.get(), "tokenizer.ggml.eos_token_id", 256);
    gguf_set_val_bool(keys.get(), "tokenizer.ggml.add_bos_token", false);
    return keys;
}

// Folders to search for ggml-vocab-*.gguf: from the environment, next to the program, build tree.
static std::vector<fs::path> vocabulary_folders() {
    std::vector<fs::path> folders;
    if (const char * folder = std::getenv("GT_VOCAB_DIR")) {
        folders.emplace_back(folder);
    }
    std::error_code error;
    const fs::path  self = fs::read_symlink("/proc/self/exe", error);
    if (!error) {
        folders.push_back(self.parent_path().parent_path() / "share" / "ggml-train" / "vocab");
    }
    folders.emplace_back(GT_BUILD_VOCAB_DIR);
    return folders;
}

static const char kPrefix[] = "ggml-vocab-";

std::vector<std::string> vocabulary_names() {
    std::vector<std::string> names;
    for (const fs::path & folder : vocabulary_folders()) {
        std::error_code error;
        for (const auto & entry : fs::directory_iterator(folder, error)) {
            const std::string stem = entry.path().stem().string();
            if (entry.path().extension() == ".gguf" && stem.starts_with(kPrefix)) {
                names.push_back(stem.substr(sizeof kPrefix - 1));
            }
        }
        if (!names.empty()) {
            break;
        }
    }
    std::sort(names.begin(), names.end());
    names.insert(names.begin(), "bytes");
    return names;
}

static gguf_context_ptr keys_of(const std::string & path) {
    gguf_context_ptr keys = open_gguf(path);
    if (gguf_find_key(keys.get(), "tokenizer.ggml.tokens") < 0) {
        throw Error(path + ": has no tokenizer (no tokenizer.ggml.tokens)");
    }
    gguf_context_ptr only(gguf_init_empty());
    gguf_set_kv(only.get(), keys.get());
    keep_keys(only.get(), "tokenizer.");
    return only;
}

static std::string without_dashes(std::string name) {
    std::erase(name, '-');
    return name;
}

gguf_context_ptr find_vocabulary(const std::string & name) {
    if (name == "bytes") {
        return byte_vocabulary();
    }
    if (fs::is_regular_file(name)) {
        return keys_of(name);
    }
    for (const fs::path & folder : vocabulary_folders()) {
        const fs::path path = folder / (kPrefix + name + ".gguf");
        if (fs::is_regular_file(path)) {
            return keys_of(path.string());
        }
    }
    std::string names;
    for (const std::string & known : vocabulary_names()) {
        if (without_dashes(known) == without_dashes(name)) {
            return find_vocabulary(known);
        }
        names += (names.empty() ? "" : ", ") + known;
    }
    throw Error("no vocabulary \"" + name + "\"; expected a GGUF file or one of " + names);
}

}  // namespace gt
