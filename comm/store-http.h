// comm/store-http.h — what store-http.cpp and line.cpp share. Internal.
#pragma once

#include "comm/http-client.h"
#include "comm/store.h"

namespace gt {

HttpOptions http_options(const HttpStoreOptions & options);

// Throws StoreError: what could not be done, why, and the next move.
[[noreturn]] void
fail_request(const std::string & address, const std::string & what, const HttpResponse & response);

}  // namespace gt
