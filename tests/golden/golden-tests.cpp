// golden-tests [DEVICE] — compares our code with reference runs: every GGUF in a folder (GT_GOLDEN_DIR, by
// default tests/golden); with a DEVICE (vulkan), only the training steps of models, there. Prints the kind of each
// file and the largest error over its bound; fails if an error exceeds its bound or a kind is unknown.
#include "tests/golden/golden.h"
#include "tests/vulkan.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <gguf.h>

using namespace gt;

static std::string kind_of(const std::string & path) {
    gguf_context * gguf = gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr});
    if (!gguf) {
        throw Error("not a GGUF file");
    }
    const int64_t     key  = gguf_find_key(gguf, "golden.kind");
    const std::string kind = key >= 0 ? gguf_get_val_str(gguf, key) : "";
    gguf_free(gguf);
    return kind;
}

static std::vector<GoldenResult> check(const std::string & path, const std::string & device) {
    const std::string kind = kind_of(path);
    if (kind == "gpt2.train" || kind == "llama.train" || kind == "vit.train") {
        return golden_model(path, device);
    }
    if (kind == "demo.run" || kind == "repl.run" || kind == "diloco.run") {
        return device.empty() ? std::vector{golden_optim(path)} : std::vector<GoldenResult>();
    }
    throw Error("unknown kind '" + kind + "'");
}

int main(int argc, char ** argv) {
    const std::string device = argc > 1 ? argv[1] : "";
    if (device == "vulkan" && !has_vulkan()) {
        return 77;
    }
    const char *             given  = std::getenv("GT_GOLDEN_DIR");
    const std::string        folder = given ? given : GT_SOURCE_DIR "/tests/golden";
    std::vector<std::string> paths;
    for (const auto & entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() == ".gguf") {
            paths.push_back(entry.path().string());
        }
    }
    std::sort(paths.begin(), paths.end());
    int n_failed = 0, n_passed = 0;
    for (const std::string & path : paths) {
        const std::string name = std::filesystem::path(path).filename().string();
        try {
            for (const GoldenResult & r : check(path, device)) {
                std::printf(
                    "%-28s %-36s worst/bound %8.4f  %s %s\n", name.c_str(), r.kind.c_str(), r.worst,
                    r.ok ? "ok  " : "MISS", r.detail.c_str()
                );
                ++(r.ok ? n_passed : n_failed);
            }
        } catch (const std::exception & e) {
            std::printf("%-28s MISS: %s\n", name.c_str(), e.what());
            ++n_failed;
        }
    }
    std::printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed || n_passed == 0 ? 1 : 0;
}
