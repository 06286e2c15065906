// models/text/chat-data.h — Data over chats: labels count where the assistant's tokens come next. Short chats
// share a sample, each a segment that sees no other.
//
// All samples are used once before one is used again, in an order that depends on seed, epoch and host.
#pragma once

#include "ggml-train/data.h"
#include "models/text/chat-tokens.h"

namespace gt {

struct ChatSet {
    std::vector<ChatTokens> train, val;
    Chat                    first;       // to train on
    uint64_t                digest = 0;  // of the tokens to train on, and which of them count
};

// Reads and tokenizes chats. val: fraction for validation; a hash of its content assigns a chat.
ChatSet read_chat_set(
    const std::vector<TextFile> & files,
    const ChatTemplate &          chat_template,
    const Tokenizer &             tokenizer,
    double                        val
);

// Chats as samples of T tokens: a chat goes to the fullest sample that has room for it.
class ChatSamples {
public:
    // REQUIRES: chats outlive it.
    ChatSamples(const std::vector<ChatTokens> & chats, int64_t T);

    int64_t size() const { return static_cast<int64_t>(samples_.size()); }
    int64_t n_truncated() const { return n_truncated_; }  // chats longer than a sample
    int64_t n_left_out() const { return n_left_out_; }    // nothing of the rest counts

    // Appends a sample to a batch.
    void add(int64_t i, Batch & batch) const;

    // Fills a batch up to `end` tokens; nothing of it counts.
    void pad(Batch & batch, size_t end) const;

private:
    int64_t n_used(const ChatTokens & chat) const;

    int64_t                                      T_;
    std::vector<std::vector<const ChatTokens *>> samples_;
    int64_t                                      n_truncated_ = 0, n_left_out_ = 0;
};

struct ChatDataOptions {
    uint64_t    seed = 1;
    std::string host;       // its name decides the order of its samples
    int64_t     T     = 0;  // tokens per sample
    int64_t     batch = 0;  // samples per step
    int64_t     n_val = 0;  // samples per validation, at most
};

class ChatData : public Data {
public:
    // REQUIRES: chats and tokenizer outlive it.
    ChatData(const ChatSet & chats, const Tokenizer & tokenizer, const ChatDataOptions & options);

    Batch    train(uint64_t step, int64_t n) override;
    Score    validate(Evaluator & evaluator, bool last) override;
    uint64_t digest() const override { return digest_; }

private:
    const std::vector<int64_t> & order(uint64_t epoch);

    const Tokenizer &    tokenizer_;
    ChatDataOptions      options_;
    uint64_t             digest_;
    ChatSamples          train_, val_;
    uint64_t             epoch_ = 0;  // of order_
    std::vector<int64_t> order_;
};

}  // namespace gt
