// comm/store/store-kinds.h — the table of stores that hosts.txt may name: one row adds one.
#pragma once

#include "comm/store/store.h"

#include <span>

namespace gt {

struct StorePlace {
    std::string                  url;
    uint64_t                     run = 0;
    std::shared_ptr<UploadLimit> up_limit;  // null: none
    std::string                  congestion = "bbr";
};

struct StoreKind {
    const char * scheme;   // how its URLs begin
    const char * example;  // for messages
    Millis       poll;     // between two looks of a sequencer
    double       early;    // the part of a round's usual time after which it looks
    std::unique_ptr<Store> (*open)(const StorePlace & place);
};

std::span<const StoreKind> store_kinds();

// The kind of a URL; null: none, or there is nothing behind the scheme.
const StoreKind * find_store_kind(const std::string & url);

// "store file:///path or store s3://bucket/prefix"
std::string store_examples();

}  // namespace gt
