#include "models/text/chat-tokens.h"

#include "ggml-train/base/text.h"

#include <algorithm>
#include <optional>

namespace gt {

// As llama.cpp tokenizes a prompt.
static std::vector<int32_t> encode_text(const std::string & text, const Tokenizer & tokenizer) {
    std::vector<int32_t> tokens = tokenizer.encode_special(text);
    if (tokenizer.add_bos()) {
        tokens.insert(tokens.begin(), tokenizer.bos());
    }
    return tokens;
}

// Where each token ends in the text. Llama's vocabularies put a space of their own before some words.
static std::vector<size_t> ends_of(
    const std::vector<int32_t> & tokens,
    const std::string &          text,
    const Tokenizer &            tokenizer,
    const std::string &          where
) {
    std::vector<size_t> ends;
    size_t              at = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
        const bool       is_added = i == 0 && tokenizer.add_bos();
        std::string      piece    = is_added ? "" : tokenizer.name(tokens[i]);
        std::string_view left     = std::string_view(text).substr(at);
        if (!left.starts_with(piece) && piece.starts_with(' ')) {
            piece.erase(0, 1);
        }
        if (!left.starts_with(piece)) {  // Phi-3's has no blanks after special tokens
            at += std::min(left.find_first_not_of(" \t\r\n"), left.size());
            left = std::string_view(text).substr(at);
        }
        if (!left.starts_with(piece)) {
            throw Error(
                where + ": the model's tokenizer changes the text at \"" +
                std::string(left.substr(0, 20)) + "\"; remove what is unusual there"
            );
        }
        ends.push_back(at += piece.size());
    }
    return ends;
}

static bool is_space(const std::string & text) {
    return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

// Marks the tokens of text [begin, end), and the token behind them that ends the turn, if there is one;
// blanks may come before it. Returns whether there is one.
static bool count_turn(
    ChatTokens &                chat,
    const std::vector<size_t> & ends,
    const Tokenizer &           tokenizer,
    size_t                      begin,
    size_t                      end
) {
    size_t i = 0;
    for (; i < ends.size() && (i == 0 ? 0 : ends[i - 1]) < end; ++i) {
        chat.counts[i] = chat.counts[i] || ends[i] > begin;
    }
    size_t last = i;
    while (last < ends.size() && !tokenizer.ends_turn(chat.tokens[last]) &&
           is_space(tokenizer.piece(chat.tokens[last]))) {
        ++last;
    }
    if (last == ends.size() || !tokenizer.ends_turn(chat.tokens[last])) {
        return false;
    }
    const auto at = [&](size_t n) { return chat.counts.begin() + static_cast<long>(n); };
    std::fill(at(i), at(last + 1), true);
    return true;
}

// Where the next token that ends a turn begins in the text, from `begin` on; `begin` if there is none.
static size_t next_end(
    const ChatTokens &          chat,
    const std::vector<size_t> & ends,
    const Tokenizer &           tokenizer,
    size_t                      begin
) {
    for (size_t i = 1; i < ends.size(); ++i) {
        if (ends[i] > begin && tokenizer.ends_turn(chat.tokens[i])) {
            return ends[i - 1];
        }
    }
    return begin;
}

// How much of the text is the prompt of message k; nothing if the template writes another prompt.
static std::optional<size_t>
prompt_size(const Chat & chat, size_t k, const std::string & text, const ChatTemplate & templ) {
    Chat before = chat;
    before.messages.resize(k);
    try {
        const std::string prompt = templ.prompt(before);
        return text.starts_with(prompt) ? std::optional(prompt.size()) : std::nullopt;
    } catch (const Error &) {  // a chat that begins with the assistant
        return std::nullopt;
    }
}

ChatTokens
encode_chat(const Chat & chat, const ChatTemplate & chat_template, const Tokenizer & tokenizer) {
    ChatTokens          result;
    std::vector<size_t> ends;
    std::string         text;
    for (size_t k = 0; k < chat.messages.size(); ++k) {
        if (chat.messages[k].role != "assistant") {
            continue;
        }
        const ChatTemplate::Text turn = chat_template.render(chat, static_cast<int>(k));
        if (ends.empty()) {
            text          = turn.text;
            result.tokens = encode_text(text, tokenizer);
            result.counts.resize(result.tokens.size());
            ends = ends_of(result.tokens, text, tokenizer, chat.where);
        }
        const auto prompt = prompt_size(chat, k, text, chat_template);
        if (!prompt && turn.begin == turn.end) {
            continue;  // the template leaves this turn out
        }
        const size_t begin =
            prompt && (*prompt <= turn.begin || turn.begin == turn.end) ? *prompt : turn.begin;
        // a template that cuts thoughts out of earlier turns does not say where the rest is
        const size_t end =
            turn.begin < turn.end ? turn.end : next_end(result, ends, tokenizer, begin);
        result.stops = count_turn(result, ends, tokenizer, begin, end);
        // a template that ends no turn: the model learns to stop by the end of the text
        if (!result.stops && is_space(text.substr(end)) && tokenizer.eos() >= 0) {
            result.tokens.push_back(tokenizer.eos());
            result.counts.push_back(true);
            ends.push_back(text.size());
            result.stops = true;
        }
    }
    const auto last = std::find(result.counts.rbegin(), result.counts.rend(), true).base();
    result.tokens.resize(static_cast<size_t>(last - result.counts.begin()));
    result.counts.resize(result.tokens.size());
    if (result.tokens.empty()) {
        throw Error(
            chat.where + ": the model's chat template shows nothing of the assistant; remove the "
                         "line, or use another model"
        );
    }
    return result;
}

std::string marked_text(
    const ChatTokens &  chat,
    const Tokenizer &   tokenizer,
    const std::string & begin,
    const std::string & end
) {
    std::string text, part;  // a character may be divided between tokens
    bool        counts = false;
    for (size_t i = 0; i < chat.tokens.size(); ++i) {
        if (chat.counts[i] != counts) {
            counts = chat.counts[i];
            text += printable(part) + (counts ? begin : end);
            part.clear();
        }
        part += tokenizer.name(chat.tokens[i]);
    }
    return text + printable(part) + (counts ? end : "");
}

}  // namespace gt
