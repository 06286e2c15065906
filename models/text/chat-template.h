// models/text/chat-template.h — chats as text: the Jinja template in a model's file, rendered by llama.cpp's own
// engine.
#pragma once

#include "models/text/chat-source.h"
#include "models/text/tokenizer.h"

namespace gt {

class ChatTemplate {
public:
    // The template in `keys`. Throws an Error that begins with `where`, the file, if there is none or
    // llama.cpp cannot parse it. REQUIRES: the tokenizer outlives it.
    ChatTemplate(const gguf_context * keys, const Tokenizer & tokenizer, const std::string & where);
    ~ChatTemplate();
    ChatTemplate(const ChatTemplate &)             = delete;
    ChatTemplate & operator=(const ChatTemplate &) = delete;

    struct Text {
        std::string text;
        // Where the content of the marked message is in the text; begin == end: it is not there.
        size_t begin = 0, end = 0;
    };

    // The text of a chat, without the token that llama.cpp puts in front of every prompt. marked: the
    // index of a message; -1: none. Throws an Error if the template refuses the chat.
    Text render(const Chat & chat, int marked) const;

    // The prompt that llama.cpp completes with the next message of the assistant.
    std::string prompt(const Chat & chat) const;

private:
    struct Impl;
    Text run(const Chat & chat, int marked, bool prompt) const;

    const Tokenizer &     tokenizer_;
    std::unique_ptr<Impl> impl_;
};

// Whether the file has a chat template.
bool has_chat_template(const gguf_context * keys);

}  // namespace gt
