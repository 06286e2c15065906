// tools/inspect/inspect-data.cpp — token files and image caches; see inspect.h.
#include "models/text/token-data.h"
#include "models/vision/image-cache.h"
#include "tools/inspect/inspect.h"

namespace gt {

static std::string split_text(uint64_t n_tokens, uint64_t n_all, uint64_t n_documents) {
    return format(
        "%llu tokens (%.2f %%), %llu documents", static_cast<unsigned long long>(n_tokens),
        n_all == 0 ? 0.0 : 100.0 * static_cast<double>(n_tokens) / static_cast<double>(n_all),
        static_cast<unsigned long long>(n_documents)
    );
}

void inspect_tokens(const std::string & path) {
    const TokenInfo info  = TokenData(path).info();
    const uint64_t  n_all = info.n_train + info.n_val;
    print_row("kind", "token file");
    print_row("tokens", std::to_string(n_all));
    print_row("training", split_text(info.n_train, n_all, info.n_train_doc));
    print_row("validation", split_text(info.n_val, n_all, info.n_val_doc));
    print_row("vocabulary", std::to_string(info.n_vocab));
    print_row("tokenizer", "digest " + digest_text(info.tokenizer));
    print_row("digest", digest_text(info.digest));
}

void inspect_image_cache(const std::string & path) {
    const ImageCacheInfo info = read_image_cache_info(path);
    print_row("kind", "cache of decoded images");
    print_row("images", std::to_string(info.n_pictures));
    print_row("unreadable", std::to_string(info.n_broken));
    print_row("width", format("%u to %u", info.min_width, info.max_width));
    print_row("height", format("%u to %u", info.min_height, info.max_height));
    print_row("key", digest_text(info.key));
}

}  // namespace gt
