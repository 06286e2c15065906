// models/text/chat-source.h — reads chats from .jsonl files, one per line, in the forms that people have:
//
//   {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
//   {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}   ShareGPT
//   {"instruction": "Greet", "input": "Hi", "output": "Hello"}                                 Alpaca
//   {"prompt": "Hi", "completion": "Hello"}
//
// The last two may have a "system" field. Read next: chat-tokens.h.
#pragma once

#include "models/text/text-source.h"

namespace gt {

struct ChatMessage {
    std::string role;  // system, user or assistant
    std::string content;
};

struct Chat {
    std::vector<ChatMessage> messages;
    std::string              where;  // file:line, for errors
};

// One line. Throws an Error that begins with `where`.
Chat parse_chat(const std::string & line, const std::string & where);

// Whether the first line of the first file is a chat, and has no text in `field`.
bool are_chats(const std::vector<TextFile> & files, const std::string & field);

// All chats of .jsonl files. Throws an Error that names file and line.
std::vector<Chat> read_chats(const std::vector<TextFile> & files);

}  // namespace gt
