// generate — samples text from a model, through libllama.
//
//   generate -m small-trained.gguf -p "Once upon a time"
//   generate -m instruct.gguf --chat -p "Who wrote Faust?"
//
// Read next: models/text/generate.cpp.
#include "models/text/generate.h"

#include "ggml-train/gguf/gguf-read.h"
#include "models/text/chat-template.h"
#include "tools/cli/flags.h"
#include "tools/hf/hf.h"
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

// A question as the model's chat template puts it.
static std::string through_template(const std::string & model, const std::string & question) {
    const auto      keys = open_gguf(model);
    const Tokenizer tokenizer(keys.get(), model);
    return ChatTemplate(keys.get(), tokenizer, model).prompt({{{"user", question}}, "--prompt"});
}

int gt::generate_main(Flags & flags, int argc, char ** argv) {
    std::string     model, hf, lora, prompt, file;
    int             threads = 0;
    bool            echo = true, chat = false;
    GenerateOptions options;
    flags("model,m", model, "the model (GGUF)");
    flags("hf-repo,hf", hf, "model from Hugging Face instead of --model: USER/REPO[:FILE]");
    flags("lora", lora, "an adapter for the model (GGUF)");
    flags("prompt,p", prompt, "the text to continue");
    flags("file,f", file, "a file with the text to continue");
    flags("echo", echo, "print the prompt first");
    flags("chat", chat, "answer the prompt: put it through the model's chat template");
    options.visit(flags);
    flags("threads,t", threads, "CPU threads; 0: all cores", {}, 0, 4096);
    flags.parse(argc, argv);
    model = model_or_hf(model, hf);
    if (model.empty()) {
        flags.require("model");
    }
    if (!file.empty() && !prompt.empty()) {
        throw UsageError("give the text with --prompt or with --file, not with both");
    }
    if (!file.empty()) {
        prompt = read_prompt(file);
    }
    Generator generator(model, threads, lora);
    if (echo) {
        std::fwrite(prompt.data(), 1, prompt.size(), stdout);
        std::fputs(chat ? "\n" : "", stdout);
    }
    options.special = chat;
    prompt          = chat ? through_template(model, prompt) : prompt;
    generator.run(prompt, options, [](const std::string & piece) {
        std::fwrite(piece.data(), 1, piece.size(), stdout);
        return std::fflush(stdout) == 0;  // stop if the reader is gone
    });
    std::printf("\n");
    return 0;
}
