// tools/train/text-input.h — what train-gpt trains on: text, or chats if the first line of its .jsonl is one.
#pragma once

#include "ggml-train/data.h"
#include "models/text/prepare.h"
#include "tools/train/settle.h"

namespace gt {

class TextInput {
public:
    virtual ~TextInput() = default;

    // Sets the facts about the data. REQUIRES: in.T.
    virtual void describe(RunInput & in) const = 0;

    // REQUIRES: this outlives it.
    virtual std::unique_ptr<Data> data(const RunPlan & plan, const std::string & host) const = 0;

    // Shown before the first step: a sample with what counts highlighted. Empty: all of it counts.
    virtual std::string first_sample(bool terminal) const = 0;

    // A prompt for samples of the model's text. text: from the command line, or empty.
    struct Prompt {
        std::string shown, full;  // full: through the chat template
        bool        special = false;
    };
    virtual Prompt prompt(const std::string & text) const = 0;
};

// Opens text or chats. options.inputs names them; name: the model's file. Shows progress on a terminal.
// REQUIRES: the tokenizer outlives it.
std::unique_ptr<TextInput> open_text(
    const PrepareOptions & options,
    const Tokenizer &      tokenizer,
    const gguf_context *   keys,
    const std::string &    name
);

}  // namespace gt
