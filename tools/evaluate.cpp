// evaluate — loss, perplexity and bits per byte of a model on text or chats, computed by libllama.
//
//   evaluate -m small-trained.gguf held-out.txt
//   evaluate -m instruct.gguf --lora adapter.gguf chats.jsonl
//
// Text is cut into windows of --context tokens. Of chats only the assistant's tokens count, each chat by
// itself. Read next: models/text/measures.h.
#include "ggml-train/base/plural.h"
#include "ggml-train/base/text.h"
#include "ggml-train/gguf/gguf-read.h"
#include "models/text/chat-tokens.h"
#include "models/text/generate.h"
#include "models/text/measures.h"
#include "models/text/prepare.h"
#include "tools/cli/flags.h"
#include "tools/verbs.h"

#include <algorithm>

using namespace gt;

namespace {

struct EvaluateFlags {
    std::string    model, lora;
    int64_t        context = 512;
    int            threads = 0;
    PrepareOptions text;

    void visit(Flags & visit) {
        visit("model,m", model, "the model (GGUF of any kind that llama.cpp runs)");
        visit("lora", lora, "an adapter for the model (GGUF)");
        visit.positional("FILE...", text.inputs, "text, chats (.jsonl), or a token file");
        visit("field", text.field, "field of .jsonl objects that contains the text");
        visit("context,c", context, "tokens of a window, or of a chat, at most", {}, 2);
        visit("threads,t", threads, "CPU threads; 0: all cores", {}, 0, 4096);
    }
};

// Adds the losses of the tokens that count; the first never does.
void add_losses(
    const ChatTokens & window, Generator & generator, const Tokenizer & tokenizer, TextLoss & sum
) {
    const std::vector<double> losses = generator.losses(window.tokens);
    for (size_t i = 0; i < losses.size(); ++i) {
        if (window.counts[i + 1]) {
            sum.loss += losses[i];
            sum.n_bytes += tokenizer.n_bytes(window.tokens[i + 1]);
            ++sum.n_tokens;
        }
    }
}

// All of the text; of a token file with validation data, that.
TextLoss
of_text(PrepareOptions options, int64_t T, Generator & generator, const Tokenizer & tokenizer) {
    options.val = 0.0;
    const TokenData   tokens(cached_tokens(tokenizer, options).path);
    const TokenInfo & info = tokens.info();
    if (info.tokenizer != tokenizer.digest()) {
        throw Error(options.inputs[0] + ": was created with another tokenizer than the model's");
    }
    const uint64_t begin = info.n_val > 0 ? info.n_train : 0, end = info.n_train + info.n_val;
    TextLoss       sum;
    for (uint64_t at = begin; at + 1 < end; at += static_cast<uint64_t>(T)) {
        ChatTokens window;
        for (uint64_t i = at; i < std::min(end, at + static_cast<uint64_t>(T) + 1); ++i) {
            window.tokens.push_back(tokens.token(i));
        }
        window.counts.resize(window.tokens.size(), true);
        add_losses(window, generator, tokenizer, sum);
    }
    return sum;
}

TextLoss of_chats(
    const std::vector<TextFile> & files,
    const ChatTemplate &          chat_template,
    int64_t                       T,
    Generator &                   generator,
    const Tokenizer &             tokenizer
) {
    TextLoss sum;
    int64_t  n_truncated = 0;
    for (const Chat & chat : read_chats(files)) {
        ChatTokens tokens = encode_chat(chat, chat_template, tokenizer);
        const auto n      = std::min(tokens.tokens.size(), static_cast<size_t>(T) + 1);
        n_truncated += n < tokens.tokens.size();
        tokens.tokens.resize(n);
        tokens.counts.resize(n);
        add_losses(tokens, generator, tokenizer, sum);
    }
    if (n_truncated > 0) {
        std::printf(
            "%s truncated to %lld tokens (--context)\n", plural(n_truncated, "chat").c_str(),
            static_cast<long long>(T)
        );
    }
    return sum;
}

void evaluate(const EvaluateFlags & f) {
    Generator       generator(f.model, f.threads, f.lora, f.context);
    const auto      keys = open_gguf(f.model);
    const Tokenizer tokenizer(keys.get(), f.model);
    const int64_t   T = std::min(f.context, generator.context());
    TextLoss        sum;
    if (is_token_file(f.text.inputs[0])) {
        sum = of_text(f.text, T, generator, tokenizer);
    } else if (const auto files = list_text_files(f.text.inputs); are_chats(files, f.text.field)) {
        const ChatTemplate chat_template(keys.get(), tokenizer, f.model);
        sum = of_chats(files, chat_template, T, generator, tokenizer);
    } else {
        sum = of_text(f.text, T, generator, tokenizer);
    }
    if (sum.n_tokens == 0) {
        throw Error(f.text.inputs[0] + ": has no token that counts; use more text, or --context");
    }
    std::printf(
        "loss %.4f, perplexity %.4g, %.4f bits per byte (%s tokens, %s)\n", sum.mean(),
        sum.perplexity(), sum.bits_per_byte(),
        count_text(static_cast<double>(sum.n_tokens)).c_str(),
        bytes_text(static_cast<uint64_t>(sum.n_bytes)).c_str()
    );
}

}  // namespace

int gt::evaluate_main(Flags & flags, int argc, char ** argv) {
    EvaluateFlags f;
    f.visit(flags);
    flags.parse(argc, argv);
    flags.require("model");
    if (f.text.inputs.empty()) {
        throw UsageError("name the text to measure the model on");
    }
    f.text.threads = f.threads;
    evaluate(f);
    return 0;
}
