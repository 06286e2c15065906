#include "tools/train/text-input.h"

#include "ggml-train/base/plural.h"
#include "ggml-train/base/text.h"
#include "models/text/chat-data.h"
#include "models/text/text-data.h"
#include "tools/cli/interrupt.h"

#include <algorithm>
#include <unistd.h>

namespace gt {

namespace {

CachedTokens prepare_text(const Tokenizer & tokenizer, PrepareOptions options) {
    bool            shown = false;
    const Interrupt interrupt("\nstopping\n");
    options.progress = [&](const PrepareProgress & p) {
        if (Interrupt::asked()) {
            throw Error("stopped while preparing the text; nothing was kept");
        }
        if (::isatty(STDERR_FILENO)) {
            shown = std::fprintf(stderr, "\r\033[Kpreparing data %s", progress_text(p).c_str()) > 0;
        }
    };
    CachedTokens tokens = cached_tokens(tokenizer, options);
    std::fputs(shown ? "\n" : "", stderr);
    if (tokens.is_new) {
        std::printf("tokens   kept in %s\n", tokens.path.c_str());
    }
    return tokens;
}

class PlainText : public TextInput {
public:
    PlainText(const PrepareOptions & options, const Tokenizer & tokenizer)
        : name_(options.inputs[0]), tokenizer_(tokenizer),
          cached_(prepare_text(tokenizer, options)), tokens_(cached_.path) {}

    void describe(RunInput & in) const override {
        tokens_.check(in.T, tokenizer_.digest(), name_);
        in.n_samples = static_cast<int64_t>(tokens_.info().n_train) / in.T;
        in.data_text = summary();
    }

    std::unique_ptr<Data> data(const RunPlan & plan, const std::string & host) const override {
        return std::make_unique<TextData>(
            tokens_, tokenizer_,
            TextDataOptions{
                .seed  = plan.seed,
                .host  = host,
                .T     = plan.T,
                .n_val = plan.eval_batches * plan.batch}
        );
    }

    std::string first_sample(bool) const override { return ""; }

    Prompt prompt(const std::string & text) const override {
        return {.shown = text.empty() ? "\n" : text, .full = text.empty() ? "\n" : text};
    }

private:
    // "1.02M tokens in 3 files, 52.1k to validate"
    std::string summary() const {
        const TokenInfo & info = tokens_.info();
        std::string       text = count_text(static_cast<double>(info.n_train)) + " tokens in ";
        text += cached_.n_files > 0 ? plural(cached_.n_files, "file")
                                    : plural(static_cast<int64_t>(info.n_train_doc), "document");
        text += ", " + count_text(static_cast<double>(info.n_val)) + " to validate";
        return text + (cached_.n_skipped > 0 ? "; skipped " + plural(cached_.n_skipped, "file") +
                                                   ", hidden, binary or a .gz of another"
                                             : "");
    }

    std::string       name_;
    const Tokenizer & tokenizer_;
    CachedTokens      cached_;
    TokenData         tokens_;
};

class Chats : public TextInput {
public:
    Chats(
        const std::vector<TextFile> & files,
        double                        val,
        const Tokenizer &             tokenizer,
        const gguf_context *          keys,
        const std::string &           name
    )
        : tokenizer_(tokenizer), template_(keys, tokenizer, name),
          chats_(read_chat_set(files, template_, tokenizer, val)) {
        if (!chats_.train[0].stops) {
            const int32_t eos = tokenizer.eos();
            std::fprintf(
                stderr,
                "WARNING: the chat template of %s ends what the assistant says with no token at "
                "which llama.cpp stops: the model will not learn to stop. Use a template that ends "
                "turns with %s\n",
                name.c_str(), eos < 0 ? "such a token" : tokenizer.name(eos).c_str()
            );
        }
    }

    void describe(RunInput & in) const override {
        // at least 16 steps a pass: few chats would teach nothing
        constexpr int64_t kStepTokens = 8192, kSteps = 16;
        const ChatSamples samples(chats_.train, in.T);
        in.n_samples = samples.size();
        in.batch =
            std::clamp<int64_t>(kStepTokens / in.T, 1, std::max<int64_t>(1, in.n_samples / kSteps));
        in.epochs    = 3.0;
        in.packed    = true;
        in.data_text = summary(samples, in.T);
    }

    std::unique_ptr<Data> data(const RunPlan & plan, const std::string & host) const override {
        return std::make_unique<ChatData>(
            chats_, tokenizer_,
            ChatDataOptions{
                .seed  = plan.seed,
                .host  = host,
                .T     = plan.T,
                .batch = plan.batch,
                .n_val = plan.eval_batches * plan.batch}
        );
    }

    std::string first_sample(bool terminal) const override {
        const char * begin = terminal ? "\033[1;32m" : "[[";
        const char * end   = terminal ? "\033[0m" : "]]";
        return "the first chat; the loss counts on " + (std::string(begin) + "this" + end) + ":\n" +
               marked_text(chats_.train[0], tokenizer_, begin, end) + "\n";
    }

    // The first question to train on, unless another one is given.
    Prompt prompt(const std::string & text) const override {
        Chat chat = chats_.first;
        if (!text.empty()) {
            chat.messages = {{"user", text}};
        }
        const auto reply =
            std::find_if(chat.messages.begin(), chat.messages.end(), [](const ChatMessage & m) {
                return m.role == "assistant";
            });
        chat.messages.erase(reply, chat.messages.end());
        if (chat.messages.empty()) {  // the assistant begins
            chat.messages = {{"user", "Hello"}};
        }
        return {
            .shown   = chat.messages.back().content + "\n",
            .full    = template_.prompt(chat),
            .special = true};
    }

private:
    // "240 chats in 31 samples, 12 to validate; 3 truncated to 512 tokens"
    std::string summary(const ChatSamples & samples, int64_t T) const {
        std::string text = plural(static_cast<int64_t>(chats_.train.size()), "chat") + " in " +
                           plural(samples.size(), "sample") + ", " +
                           std::to_string(chats_.val.size()) + " to validate";
        if (samples.n_truncated() > 0) {
            text += format(
                "; %lld truncated to %lld tokens (--context)",
                static_cast<long long>(samples.n_truncated()), static_cast<long long>(T)
            );
        }
        if (samples.n_left_out() > 0) {
            text += format(
                "; %lld left out: no reply begins before that",
                static_cast<long long>(samples.n_left_out())
            );
        }
        return text;
    }

    const Tokenizer & tokenizer_;
    ChatTemplate      template_;
    ChatSet           chats_;
};

}  // namespace

std::unique_ptr<TextInput> open_text(
    const PrepareOptions & options,
    const Tokenizer &      tokenizer,
    const gguf_context *   keys,
    const std::string &    name
) {
    if (!is_token_file(options.inputs[0])) {
        const std::vector<TextFile> files = list_text_files(options.inputs);
        if (are_chats(files, options.field)) {
            return std::make_unique<Chats>(files, options.val, tokenizer, keys, name);
        }
    }
    return std::make_unique<PlainText>(options, tokenizer);
}

}  // namespace gt
