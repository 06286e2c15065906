#include "models/text/tokenizer.h"

#include "ggml-train/gguf/gguf-read.h"

#include <algorithm>
#include <llama.h>
#include <mutex>

namespace gt {

// --- libllama's log ------------------------------------------------------------------------------

static std::mutex  g_log_mutex;
static std::string g_log_error;

void quiet_llama() {
    static std::once_flag once;
    std::call_once(once, [] {
        llama_log_set(
            [](ggml_log_level level, const char * text, void *) {
                if (level == GGML_LOG_LEVEL_ERROR) {
                    const std::lock_guard lock(g_log_mutex);
                    // The first message of a chain names the cause; the later ones repeat it.
                    if (std::string(text).find("failed to load model") == std::string::npos) {
                        g_log_error = text;
                    }
                }
            },
            nullptr
        );
    });
}

std::string last_llama_error() {
    const std::lock_guard lock(g_log_mutex);
    std::string           text  = g_log_error.substr(0, g_log_error.find_last_not_of('\n') + 1);
    const size_t          colon = text.find(": ");
    return colon == std::string::npos ? text : text.substr(colon + 2);
}

// --- tokenizer -----------------------------------------------------------------------------------

Tokenizer::Tokenizer(const gguf_context * keys, const std::string & where)
    : model_(nullptr, llama_model_free) {
    if (gguf_find_key(keys, "tokenizer.ggml.tokens") < 0 ||
        gguf_find_key(keys, "tokenizer.ggml.model") < 0) {
        throw Error(where + ": has no tokenizer; create a model with new-model --vocab");
    }
    quiet_llama();
    const gguf_context_ptr metadata(gguf_init_empty());
    gguf_set_kv(metadata.get(), keys);
    keep_keys(metadata.get(), "tokenizer.");
    // libllama removes blanks after special tokens if the name is Phi-3's
    const std::string name = find_string(keys, "general.name", where).value_or("");
    gguf_set_val_str(metadata.get(), "general.name", name.c_str());
    gguf_set_val_str(metadata.get(), "general.architecture", "llama");  // any that libllama knows

    llama_model_params params = llama_model_default_params();
    params.vocab_only         = true;
    params.n_gpu_layers       = 0;
    model_.reset(llama_model_init_from_user(metadata.get(), nullptr, nullptr, params));
    if (!model_) {
        throw Error(where + ": libllama cannot load its tokenizer (" + last_llama_error() + ")");
    }
    vocab_    = llama_model_get_vocab(model_.get());
    n_tokens_ = llama_vocab_n_tokens(vocab_);
    bos_      = llama_vocab_bos(vocab_);
    eos_      = llama_vocab_eos(vocab_);
    add_bos_  = llama_vocab_get_add_bos(vocab_) && bos_ >= 0;
    digest_   = digest_keys(keys, "tokenizer.ggml.");
    is_bytes_ = digest_ == digest_keys(byte_vocabulary().get(), "tokenizer.ggml.");
    if (llama_vocab_type(vocab_) == LLAMA_VOCAB_TYPE_SPM) {
        newline_ = encode("\n");
    }
}

Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
    if (is_bytes_) {
        std::vector<int32_t> tokens(text.size());
        std::transform(text.begin(), text.end(), tokens.begin(), [](char c) {
            return static_cast<uint8_t>(c);
        });
        return tokens;
    }
    return tokenize(text, false);
}

std::vector<int32_t> Tokenizer::encode_special(std::string_view text) const {
    return tokenize(text, true);
}

std::vector<int32_t> Tokenizer::tokenize(std::string_view text, bool special) const {
    std::vector<int32_t> tokens(text.size() + 16);
    const auto           tokenize = [&] {
        return llama_tokenize(
                      vocab_, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                      static_cast<int32_t>(tokens.size()), /*add_special*/ false, special
                  );
    };
    int32_t n = tokenize();
    if (n < 0) {
        tokens.resize(-n);
        n = tokenize();
    }
    GT_CHECK(n >= 0, "libllama asked for more room twice");
    tokens.resize(n);
    return tokens;
}

std::vector<int32_t> Tokenizer::encode_next(std::string_view text) const {
    if (newline_.empty()) {
        return encode(text);
    }
    // The extra space is prepended to the newline; both are dropped.
    std::string whole = "\n";
    whole += text;
    std::vector<int32_t> tokens = encode(whole);
    if (std::equal(
            newline_.begin(), newline_.end(), tokens.begin(),
            tokens.begin() + std::min(tokens.size(), newline_.size())
        )) {
        tokens.erase(tokens.begin(), tokens.begin() + static_cast<long>(newline_.size()));
        return tokens;
    }
    return encode(text);
}

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
    std::string text(tokens.size() * 8 + 64, '\0');
    const auto  detokenize = [&] {
        return llama_detokenize(
             vocab_, tokens.data(), static_cast<int32_t>(tokens.size()), text.data(),
             static_cast<int32_t>(text.size()), /*remove_special*/ false, /*unparse_special*/ false
         );
    };
    int32_t n = detokenize();
    if (n < 0) {
        text.resize(-n);
        n = detokenize();
    }
    GT_CHECK(n >= 0, "libllama asked for more room twice");
    text.resize(n);
    return text;
}

std::string Tokenizer::piece(int32_t token) const {
    std::string text(32, '\0');
    const auto  write = [&] {
        return llama_token_to_piece(
             vocab_, token, text.data(), static_cast<int32_t>(text.size()), /*lstrip*/ 0,
             /*special*/ true
         );
    };
    int32_t n = write();
    if (n < 0) {
        text.resize(-n);
        n = write();
    }
    text.resize(n);
    return text;
}

std::string Tokenizer::name(int32_t token) const {
    const std::string text = piece(token);
    return text.empty() ? llama_vocab_get_text(vocab_, token) : text;
}

int64_t Tokenizer::n_bytes(int32_t token) const {
    char          none[1];
    const int32_t n = llama_token_to_piece(vocab_, token, none, 0, /*lstrip*/ 0, /*special*/ false);
    return n < 0 ? -n : n;
}

bool Tokenizer::ends_turn(int32_t token) const {
    return llama_vocab_is_eog(vocab_, token);
}

}  // namespace gt
