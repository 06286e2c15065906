#include "models/text/token-data.h"

#include <algorithm>
#include <cstring>

namespace gt {

static constexpr char     kMagic[9]    = "GTTOKENS";
static constexpr uint32_t kVersion1    = 1;
static constexpr size_t   kHeadBytes   = 128;
static constexpr uint64_t kCheckedMost = 4ull << 30;

bool is_held_out(uint64_t digest, double val) {
    constexpr uint64_t kSplitSeed = 0x5eed;
    return random_uniform(random_bits(kSplitSeed, digest)) < val;
}

namespace {

// Bytes 0 to 80 of the file.
struct Head {
    char     magic[8];
    uint32_t version;
    uint32_t token_bytes;
    uint64_t tokenizer, n_vocab, n_train, n_val, n_train_doc, n_val_doc;
    uint64_t digest;
    uint64_t head_digest;
};
static_assert(sizeof(Head) == 80);

uint64_t digest_of(const Head & head) {
    return digest64({reinterpret_cast<const uint8_t *>(&head), sizeof head - 8});
}

}  // namespace

TokenData::TokenData(const std::string & path) : path_(path), file_(path) {
    const auto bytes = file_.bytes();
    Head       head  = {};
    if (bytes.size() < 8 || std::memcmp(bytes.data(), kMagic, 8) != 0) {
        throw Error(path + ": not a token file; create one from text with prepare-data");
    }
    if (bytes.size() < kHeadBytes) {
        throw Error(path + ": cut off within its header; create it again with prepare-data");
    }
    std::memcpy(&head, bytes.data(), sizeof head);
    if (head.version != kVersion1) {
        throw Error(format(
            "%s: format version %u, this program reads %u; create it again with prepare-data",
            path.c_str(), head.version, kVersion1
        ));
    }
    if (digest_of(head) != head.head_digest || (head.token_bytes != 2 && head.token_bytes != 4)) {
        throw Error(path + ": its header is damaged; create it again with prepare-data");
    }
    const uint64_t n_tokens = head.n_train + head.n_val;
    const uint64_t expected = kHeadBytes + n_tokens * head.token_bytes;
    if (bytes.size() != expected) {
        throw Error(format(
            "%s: has %zu bytes, %llu were written: cut off or half-copied; copy or create it again",
            path.c_str(), bytes.size(), static_cast<unsigned long long>(expected)
        ));
    }
    if (bytes.size() <= kCheckedMost) {
        StreamDigest digest;
        digest.add(bytes.data() + kHeadBytes, bytes.size() - kHeadBytes);
        if (digest.value() != head.digest) {
            throw Error(path + ": checksum mismatch; copy or create it again");
        }
    }
    info_        = {head.tokenizer,   head.n_vocab,   head.n_train,    head.n_val,
                    head.n_train_doc, head.n_val_doc, head.head_digest};
    token_bytes_ = head.token_bytes;
    tokens_      = bytes.data() + kHeadBytes;
}

void TokenData::check(int64_t T, uint64_t tokenizer, const std::string & name) const {
    const std::string & called = name.empty() ? path_ : name;
    if (tokenizer != info_.tokenizer) {
        throw Error(
            called + ": was created with another tokenizer than the model's; create it again with "
                     "prepare-data -m MODEL"
        );
    }
    if (info_.n_train < static_cast<uint64_t>(T) + 1) {
        throw Error(format(
            "%s: has %llu training tokens, a context of %lld needs at least %lld; use more text or "
            "a "
            "smaller --context",
            called.c_str(), static_cast<unsigned long long>(info_.n_train),
            static_cast<long long>(T), static_cast<long long>(T + 1)
        ));
    }
}

int32_t TokenData::token(uint64_t index) const {
    if (token_bytes_ == 2) {
        uint16_t token = 0;
        std::memcpy(&token, tokens_ + 2 * index, 2);
        return token;
    }
    int32_t token = 0;
    std::memcpy(&token, tokens_ + 4 * index, 4);
    return token;
}

void TokenData::cut(uint64_t offset, int64_t T, Batch & batch) const {
    for (int64_t t = 0; t < T; ++t) {
        batch.tokens.push_back(token(offset + t));
        batch.labels.push_back(token(offset + t + 1));
    }
    ++batch.n_samples;
}

Batch TokenData::train(
    uint64_t seed, uint64_t step, const std::string & host, int64_t begin, int64_t end, int64_t T
) const {
    GT_CHECK(info_.n_train > static_cast<uint64_t>(T), "TokenData::check must pass first");
    const uint64_t n_offsets = info_.n_train - T;  // the last window's labels end at the last token
    const uint64_t who       = digest64(host);
    Batch          batch;
    batch.tokens.reserve((end - begin) * T);
    batch.labels.reserve((end - begin) * T);
    for (int64_t i = begin; i < end; ++i) {
        // The high half of a 128-bit product is uniform without a division.
        const unsigned __int128 bits = random_bits(seed, step, who, i);
        cut(static_cast<uint64_t>(bits * n_offsets >> 64), T, batch);
    }
    return batch;
}

int64_t TokenData::n_val_windows(int64_t T, int64_t most) const {
    const int64_t n = info_.n_val > 0 ? static_cast<int64_t>(info_.n_val - 1) / T : 0;
    return std::min(n, most);
}

Batch TokenData::val(int64_t begin, int64_t end, int64_t T, int64_t most) const {
    const int64_t n_all = static_cast<int64_t>(info_.n_val - 1) / T;
    const int64_t n     = n_val_windows(T, most);
    GT_CHECK(begin >= 0 && end <= n, "validation window out of range");
    Batch batch;
    for (int64_t i = begin; i < end; ++i) {
        const int64_t window = i * n_all / n;
        cut(info_.n_train + window * T, T, batch);
    }
    return batch;
}

// --- write ---------------------------------------------------------------------------------------

TokenWriter::TokenWriter(const std::string & path, uint64_t tokenizer, uint64_t n_vocab)
    : file_(path), token_bytes_(n_vocab <= 65536 ? 2 : 4) {
    info_.tokenizer                 = tokenizer;
    info_.n_vocab                   = n_vocab;
    const uint8_t zeros[kHeadBytes] = {};
    file_.write(zeros, sizeof zeros);
}

void TokenWriter::pack(std::span<const int32_t> tokens, Bytes & out) const {
    const size_t begin = out.size();
    out.resize(begin + tokens.size() * token_bytes_);
    uint8_t * to = out.data() + begin;
    for (const int32_t token : tokens) {
        GT_CHECK(
            token >= 0 && static_cast<uint64_t>(token) < info_.n_vocab,
            "token outside the vocabulary"
        );
        const auto small = static_cast<uint16_t>(token);
        std::memcpy(
            to, token_bytes_ == 2 ? static_cast<const void *>(&small) : &token, token_bytes_
        );
        to += token_bytes_;
    }
}

void TokenWriter::add(std::span<const int32_t> tokens, bool validation, bool ends) {
    if (validation) {
        pack(tokens, val_);
        info_.n_val += tokens.size();
        info_.n_val_doc += ends;
        return;
    }
    packed_.clear();
    pack(tokens, packed_);
    file_.write(packed_.data(), packed_.size());
    digest_.add(packed_.data(), packed_.size());
    info_.n_train += tokens.size();
    info_.n_train_doc += ends;
}

TokenInfo TokenWriter::commit(double least) {
    file_.write(val_.data(), val_.size());
    digest_.add(val_.data(), val_.size());

    // Validation follows training in the file, so moving the boundary enlarges it.
    const uint64_t n_all  = info_.n_train + info_.n_val;
    const auto     n_wish = static_cast<uint64_t>(static_cast<double>(n_all) * least);
    if (info_.n_val < n_wish) {
        info_.n_val   = n_wish;
        info_.n_train = n_all - n_wish;
    }
    Head head = {};
    std::memcpy(head.magic, kMagic, 8);
    head.version     = kVersion1;
    head.token_bytes = token_bytes_;
    head.tokenizer   = info_.tokenizer;
    head.n_vocab     = info_.n_vocab;
    head.n_train     = info_.n_train;
    head.n_val       = info_.n_val;
    head.n_train_doc = info_.n_train_doc;
    head.n_val_doc   = info_.n_val_doc;
    head.digest      = digest_.value();
    head.head_digest = digest_of(head);
    info_.digest     = head.head_digest;
    file_.rewrite(0, &head, sizeof head);
    file_.commit();
    return info_;
}

}  // namespace gt
