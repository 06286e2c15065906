// models/text/chat-tokens.h — a chat as tokens, and which of them count: those that the model is to write.
//
// The tokens are those of llama.cpp: the text of the template, tokenized as a whole. A turn of the assistant
// counts from the end of the prompt that llama.cpp would complete (or from the turn's content, if the
// template rewrites earlier turns) to the token that ends the turn, included.
#pragma once

#include "models/text/chat-template.h"

namespace gt {

struct ChatTokens {
    std::vector<int32_t> tokens;
    std::vector<bool>    counts;
    bool                 stops = false;  // llama.cpp stops at the last token that counts
};

// Tokens after the last one that counts are dropped. Throws an Error that names the chat's place if none
// counts.
ChatTokens
encode_chat(const Chat & chat, const ChatTemplate & chat_template, const Tokenizer & tokenizer);

// The text of the tokens, with `begin` and `end` around what counts and dots for control characters.
std::string marked_text(
    const ChatTokens &  chat,
    const Tokenizer &   tokenizer,
    const std::string & begin,
    const std::string & end
);

}  // namespace gt
