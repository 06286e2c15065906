// generate — samples text from a model, through libllama.
//
//   generate -m small-trained.gguf -p "Once upon a time"
//
// Read next: models/text/generate.cpp.
#include "models/text/generate.h"

#include "tools/cli/flags.h"
#include "tools/verbs.h"

#include <cerrno>
#include <cstring>
#include <fstream>

using namespace gt;

// As llama.cpp reads it: without the last line break.
static std::string read_prompt(const std::string & path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) {
        throw Error(path + ": " + std::strerror(errno));
    }
    std::string text((std::istreambuf_iterator<char>(in)), {});
    if (text.ends_with('\n')) {
        text.pop_back();
    }
    return text;
}

int gt::generate_main(Flags & flags, int argc, char ** argv) {
    std::string     model, lora, prompt, file;
    int             threads = 0;
    bool            echo    = true;
    GenerateOptions options;
    flags("model,m", model, "the model (GGUF)");
    flags("lora", lora, "an adapter for the model (GGUF)");
    flags("prompt,p", prompt, "the text to continue");
    flags("file,f", file, "a file with the text to continue");
    flags("echo", echo, "print the prompt first");
    options.visit(flags);
    flags("threads,t", threads, "CPU threads; 0: all cores", {}, 0, 4096);
    flags.parse(argc, argv);
    flags.require("model");
    if (!file.empty() && !prompt.empty()) {
        throw UsageError("give the text with --prompt or with --file, not with both");
    }
    if (!file.empty()) {
        prompt = read_prompt(file);
    }
    Generator generator(model, threads, lora);
    if (echo) {
        std::fwrite(prompt.data(), 1, prompt.size(), stdout);
    }
    generator.run(prompt, options, [](const std::string & piece) {
        std::fwrite(piece.data(), 1, piece.size(), stdout);
        return std::fflush(stdout) == 0;  // stop if the reader is gone
    });
    std::printf("\n");
    return 0;
}
