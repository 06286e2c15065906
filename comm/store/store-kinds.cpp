// comm/store/store-kinds.cpp — see store-kinds.h.
#include "comm/store/store-kinds.h"

#include "comm/store/store-cache.h"
#include "comm/wire/keys.h"

namespace gt {

constexpr size_t kCacheBytes = 64 << 20;  // messages that trainer and sequencer both read

static std::unique_ptr<Store> open_file(const StorePlace & place) {
    return make_file_store(place.url.substr(std::string("file://").size()));
}

static std::unique_ptr<Store> open_s3(const StorePlace & place) {
    S3StoreOptions options;
    options.url        = place.url;
    options.up_limit   = place.up_limit;
    options.congestion = place.congestion;
    return make_cached_store(make_s3_store(options), RunPaths(place.run).messages(), kCacheBytes);
}

static const StoreKind kKinds[] = {
    {"file:///", "file:///path", Millis(20), 0, open_file},
    {"s3://", "s3://bucket/prefix", Millis(300), 0.8, open_s3},
};

std::span<const StoreKind> store_kinds() {
    return kKinds;
}

const StoreKind * find_store_kind(const std::string & url) {
    for (const StoreKind & kind : kKinds) {
        if (url.starts_with(kind.scheme) && url != kind.scheme) {
            return &kind;
        }
    }
    return nullptr;
}

std::string store_examples() {
    std::string out;
    for (const StoreKind & kind : kKinds) {
        out += (out.empty() ? "store " : " or store ") + std::string(kind.example);
    }
    return out;
}

}  // namespace gt
