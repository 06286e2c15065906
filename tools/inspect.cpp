// inspect — prints what a file holds: a checkpoint, a model, tokens, images, a value of a store.
//
//   inspect small-run/checkpoint-0000000100.gguf
//   inspect small.tokens
//   inspect --nodes hosts.txt hub-store/r0123456789abcdef/commit/000000000007
//
// The first bytes of the file decide its kind, not its name.
// Read next: tools/inspect/inspect.h.
#include "tools/inspect/inspect.h"

#include "ggml-train/base/file.h"
#include "tools/cli/flags.h"
#include "tools/verbs.h"

#include <algorithm>

using namespace gt;

namespace gt {

void print_row(const std::string & name, const std::string & value) {
    std::string text;
    for (const char c : value) {
        const bool control = static_cast<unsigned char>(c) < 32 || c == 127;
        text += c == '\n' ? "\\n" : std::string(1, control ? '?' : c);
    }
    std::printf("%-12s  %s\n", name.c_str(), text.c_str());
}

std::string size_text(uint64_t n_bytes) {
    return n_bytes < 1000 ? bytes_text(n_bytes)
                          : std::to_string(n_bytes) + " bytes (" + bytes_text(n_bytes) + ")";
}

std::string digest_text(uint64_t digest) {
    return format("%016llx", static_cast<unsigned long long>(digest));
}

}  // namespace gt

namespace {

void inspect(const std::string & path, const std::string & hosts_txt) {
    const MappedFile file(path);
    const auto       begins_with = [&](std::string_view magic) {
        return file.bytes().size() >= magic.size() &&
               std::equal(magic.begin(), magic.end(), file.bytes().begin());
    };
    print_row("file", path);
    print_row("size", size_text(file.bytes().size()));
    if (begins_with("GGUF")) {
        inspect_gguf(path);
    } else if (begins_with("GTTOKENS")) {
        inspect_tokens(path);
    } else if (begins_with("GTPICS01")) {
        inspect_image_cache(path);
    } else if (begins_with("GTF1")) {
        inspect_frame(path, hosts_txt);
    } else {
        throw Error(
            path + ": of no known kind, or its first bytes are damaged; known are checkpoints, "
                   "models and vocabularies (GGUF), token files, image caches, and values of a "
                   "store (commits, messages, records)"
        );
    }
}

}  // namespace

int gt::inspect_main(Flags & flags, int argc, char ** argv) {
    std::string              nodes;
    std::vector<std::string> paths;
    flags("nodes,n", nodes, "hosts.txt: its key opens commits, messages and records");
    flags.positional("FILE", paths, "checkpoint, model, token file, image cache, store value");
    flags.parse(argc, argv);
    if (paths.empty()) {
        throw UsageError("name a file");
    }
    for (size_t i = 0; i < paths.size(); ++i) {
        std::printf("%s", i == 0 ? "" : "\n");
        inspect(paths[i], nodes);
    }
    return 0;
}
