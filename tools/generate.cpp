// generate — lets a model write, through libllama.
//
//   generate -m small-trained.gguf -p "Once upon a time"
//
// Read next: models/generate.cpp.
#include "models/generate.h"

#include "tools/flags.h"

using namespace gt;

int main(int argc, char ** argv) {
    return run_tool("generate", [&] {
        std::string     model, prompt;
        int             threads = 0;
        bool            echo    = true;
        GenerateOptions options;
        Flags flags("generate", "continues a text with a model", "-m MODEL -p TEXT [flags]");
        flags("model,m", model, "the model (GGUF)");
        flags("prompt,p", prompt, "the text to continue");
        flags("echo", echo, "show the prompt too");
        options.visit(flags);
        flags("threads,t", threads, "0: all cores");
        flags.parse(argc, argv);
        flags.require("model");
        Generator generator(model, threads);
        if (echo) {
            std::fwrite(prompt.data(), 1, prompt.size(), stdout);
        }
        generator.run(prompt, options, [](const std::string & piece) {
            std::fwrite(piece.data(), 1, piece.size(), stdout);
            return std::fflush(stdout) == 0;  // nobody reads on: stop
        });
        std::printf("\n");
    });
}
