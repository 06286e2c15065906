// generate — samples text from a model, through libllama.
//
//   generate -m small-trained.gguf -p "Once upon a time"
//
// Read next: models/text/generate.cpp.
#include "models/text/generate.h"

#include "tools/cli/flags.h"

using namespace gt;

int main(int argc, char ** argv) {
    return run_tool("generate", [&] {
        std::string     model, prompt;
        int             threads = 0;
        bool            echo    = true;
        GenerateOptions options;
        Flags           flags("generate", "samples text from a model", "-m MODEL -p TEXT [flags]");
        flags("model,m", model, "the model (GGUF)");
        flags("prompt,p", prompt, "the text to continue");
        flags("echo", echo, "print the prompt first");
        options.visit(flags);
        flags("threads,t", threads, "CPU threads; 0: all cores");
        flags.parse(argc, argv);
        flags.require("model");
        Generator generator(model, threads);
        if (echo) {
            std::fwrite(prompt.data(), 1, prompt.size(), stdout);
        }
        generator.run(prompt, options, [](const std::string & piece) {
            std::fwrite(piece.data(), 1, piece.size(), stdout);
            return std::fflush(stdout) == 0;  // stop if the reader is gone
        });
        std::printf("\n");
    });
}
