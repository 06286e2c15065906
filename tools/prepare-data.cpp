// prepare-data — tokenizes text files into one token file, on all cores.
//
//   prepare-data -m small.gguf books/ -o books.tokens
//   prepare-data --vocab gpt-2 --field body a.jsonl.gz b.jsonl.gz -o news.tokens
//
// train-gpt also tokenizes text by itself; this tool does it once, ahead of many runs.
// Read next: models/text/prepare.cpp, models/text/token-data.h (the format).
#include "ggml-train/base/plural.h"
#include "models/text/prepare.h"
#include "tools/cli/interrupt.h"
#include "tools/cli/output.h"
#include "tools/verbs.h"

#include <filesystem>
#include <unistd.h>

using namespace gt;

int gt::prepare_data_main(Flags & flags, int argc, char ** argv) {
    std::string    model, vocab, out;
    PrepareOptions options;
    bool           force = false;
    flags.positional(
        "TEXT...", options.inputs, "text files, .jsonl files, both also as .gz, and folders"
    );
    flags("model,m", model, "the model (GGUF) whose tokenizer is used");
    flags("vocab", vocab, "tokenizer instead of --model: bytes, a name, or a GGUF with one");
    flags("out,o", out, "the file to write; default: the model's name with .tokens");
    options.visit(flags);
    flags("threads,t", options.threads, "CPU threads; 0: all cores", {}, 0, 4096);
    flags("force", force, "replace an existing file");
    flags.parse(argc, argv);
    if (model.empty() == vocab.empty()) {
        throw UsageError("name the tokenizer: either --model or --vocab");
    }
    if (options.inputs.empty()) {
        throw UsageError("name text files or folders");
    }
    if (out.empty()) {
        if (model.empty()) {
            throw UsageError("--out is missing: the file to write");
        }
        out = std::filesystem::path(model).replace_extension(".tokens").string();
    }
    std::vector<std::string> inputs = options.inputs;
    inputs.push_back(model);
    check_output(out, inputs, force);
    if (!model.empty() && !std::filesystem::exists(model)) {
        throw Error(model + ": no such file");
    }
    const std::string & source = model.empty() ? vocab : model;
    const Tokenizer     tokenizer(find_vocabulary(source).get(), source);
    const bool          terminal = ::isatty(STDOUT_FILENO) == 1;
    const Interrupt     interrupt("\nstopping\n");
    options.progress = [&](const PrepareProgress & p) {
        if (Interrupt::asked()) {
            throw Error("stopped; " + out + " was not written");
        }
        if (terminal || p.n_done == p.n_total) {
            std::printf(
                "%s%s%s", terminal ? "\r\033[K" : "", progress_text(p).c_str(),
                p.n_done == p.n_total ? "\n" : ""
            );
            std::fflush(stdout);
        }
    };
    const PrepareResult result = prepare_tokens(tokenizer, options, out);
    const auto documents = [](uint64_t n) { return plural(static_cast<int64_t>(n), "document"); };
    std::printf(
        "%s: %llu tokens in %s to train on, %llu in %s to validate, from %s\n", out.c_str(),
        static_cast<unsigned long long>(result.info.n_train),
        documents(result.info.n_train_doc).c_str(),
        static_cast<unsigned long long>(result.info.n_val),
        documents(result.info.n_val_doc).c_str(), plural(result.n_files, "file").c_str()
    );
    if (result.n_skipped > 0) {
        std::printf(
            "skipped: %s, hidden, binary or a .gz of another\n",
            plural(result.n_skipped, "file").c_str()
        );
    }
    return 0;
}
