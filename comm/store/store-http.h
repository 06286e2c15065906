// comm/store/store-http.h — what store-http.cpp and link-check.cpp share. Internal.
#pragma once

#include "comm/http/http-client.h"
#include "comm/store/store.h"

namespace gt {

HttpOptions http_options(const HttpStoreOptions & options);

// Throws StoreError or KeyError: what failed, why, and what to do.
[[noreturn]] void
fail_request(const std::string & address, const std::string & what, const HttpResponse & response);

}  // namespace gt
