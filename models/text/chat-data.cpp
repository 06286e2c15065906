#include "models/text/chat-data.h"

#include "ggml-train/evaluator.h"
#include "models/text/measures.h"
#include "models/text/token-data.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace gt {

static uint64_t digest_of(const ChatTokens & chat, uint64_t seed) {
    std::vector<int32_t> all = chat.tokens;
    all.insert(all.end(), chat.counts.begin(), chat.counts.end());
    const auto * bytes = reinterpret_cast<const uint8_t *>(all.data());
    return digest64({bytes, all.size() * sizeof(all[0])}, seed);
}

ChatSet read_chat_set(
    const std::vector<TextFile> & files,
    const ChatTemplate &          chat_template,
    const Tokenizer &             tokenizer,
    double                        val
) {
    ChatSet set;
    for (const Chat & chat : read_chats(files)) {
        ChatTokens     tokens = encode_chat(chat, chat_template, tokenizer);
        const uint64_t digest = digest_of(tokens, 0);
        const bool     is_val = is_held_out(digest, val);
        if (!is_val) {
            set.first  = set.train.empty() ? chat : set.first;
            set.digest = random_bits(set.digest, digest);
        }
        (is_val ? set.val : set.train).push_back(std::move(tokens));
    }
    if (set.train.empty()) {
        throw Error(
            files[0].path + ": no chat is left to train on; add chats or lower --val-fraction"
        );
    }
    return set;
}

// --- samples -------------------------------------------------------------------------------------

ChatSamples::ChatSamples(const std::vector<ChatTokens> & chats, int64_t T) : T_(T) {
    std::vector<const ChatTokens *> sorted;
    for (const ChatTokens & chat : chats) {
        const auto n      = static_cast<int64_t>(chat.tokens.size());
        const auto end    = chat.counts.begin() + std::min(n, T + 1);
        const bool learns = std::find(chat.counts.begin() + 1, end, true) != end;
        n_truncated_ += n > T + 1;
        n_left_out_ += !learns;
        if (learns) {
            sorted.push_back(&chat);
        }
    }
    // long ones first: the short ones fill the gaps
    std::stable_sort(sorted.begin(), sorted.end(), [](const ChatTokens * a, const ChatTokens * b) {
        return a->tokens.size() > b->tokens.size();
    });
    std::multimap<int64_t, size_t> room;  // free tokens -> sample
    for (const ChatTokens * chat : sorted) {
        const int64_t n     = n_used(*chat);
        const auto    found = room.lower_bound(n);
        const int64_t left  = (found == room.end() ? T : found->first) - n;
        const size_t  at    = found == room.end() ? samples_.size() : found->second;
        if (found == room.end()) {
            samples_.emplace_back();
        } else {
            room.erase(found);
        }
        samples_[at].push_back(chat);
        room.insert({left, at});
    }
}

// Places that a chat takes in a sample: its last token is only a label.
int64_t ChatSamples::n_used(const ChatTokens & chat) const {
    return std::min<int64_t>(static_cast<int64_t>(chat.tokens.size()) - 1, T_);
}

void ChatSamples::add(int64_t i, Batch & batch) const {
    const size_t end = batch.tokens.size() + static_cast<size_t>(T_);
    for (const ChatTokens * chat : samples_[static_cast<size_t>(i)]) {
        for (int32_t t = 0; t < n_used(*chat); ++t) {
            const auto next = static_cast<size_t>(t) + 1;
            batch.tokens.push_back(chat->tokens[next - 1]);
            batch.labels.push_back(chat->counts[next] ? chat->tokens[next] : -1);
            batch.positions.push_back(t);
        }
    }
    pad(batch, end);
    ++batch.n_samples;
}

void ChatSamples::pad(Batch & batch, size_t end) const {
    for (int32_t t = 0; batch.tokens.size() < end; ++t) {
        batch.tokens.push_back(0);
        batch.labels.push_back(-1);
        batch.positions.push_back(t % static_cast<int32_t>(T_));
    }
}

// --- data ----------------------------------------------------------------------------------------

ChatData::ChatData(
    const ChatSet & chats, const Tokenizer & tokenizer, const ChatDataOptions & options
)
    : tokenizer_(tokenizer), options_(options), digest_(chats.digest),
      train_(chats.train, options.T), val_(chats.val, options.T) {
    if (train_.size() == 0) {
        throw Error(format(
            "no chat has a reply of the assistant in its first %lld tokens; use a longer --context",
            static_cast<long long>(options.T)
        ));
    }
}

// The samples of an epoch in their order: a function of seed, host and epoch.
const std::vector<int64_t> & ChatData::order(uint64_t epoch) {
    if (order_.empty() || epoch != epoch_) {
        const uint64_t        who = digest64(options_.host);
        std::vector<uint64_t> keys(static_cast<size_t>(train_.size()));
        for (size_t i = 0; i < keys.size(); ++i) {
            keys[i] = random_bits(options_.seed, epoch, who, i);
        }
        order_.resize(keys.size());
        std::iota(order_.begin(), order_.end(), 0);
        std::sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) {
            return std::pair(keys[static_cast<size_t>(a)], a) <
                   std::pair(keys[static_cast<size_t>(b)], b);
        });
        epoch_ = epoch;
    }
    return order_;
}

Batch ChatData::train(uint64_t step, int64_t n) {
    const auto n_all = static_cast<uint64_t>(train_.size());
    Batch      batch;
    for (int64_t i = 0; i < n; ++i) {
        const uint64_t at = step * static_cast<uint64_t>(options_.batch) + static_cast<uint64_t>(i);
        train_.add(order(at / n_all)[at % n_all], batch);
    }
    batch.add_dropout_keys(options_.seed, step, options_.host);
    return batch;
}

Score ChatData::validate(Evaluator & evaluator, bool) {
    const int64_t      B = evaluator.graph().options().B;
    std::vector<Batch> batches;
    const int64_t      n = std::min(val_.size(), options_.n_val);
    for (int64_t i = 0; i < n; ++i) {
        if (i % B == 0) {
            batches.emplace_back();
        }
        val_.add(i, batches.back());
    }
    if (n % B != 0) {  // as many as the graph takes
        batches.back().n_samples = B;
        val_.pad(batches.back(), static_cast<size_t>(B * options_.T));
    }
    if (batches.empty()) {
        return {};
    }
    const double loss = evaluator.mean_loss(batches);
    return {.loss = loss, .bits_per_byte = text_loss(loss, batches, tokenizer_).bits_per_byte()};
}

}  // namespace gt
