// tests/fake/store-memory.h — a store in the memory of this process.
#pragma once

#include "comm/store/store.h"

namespace gt {

std::unique_ptr<Store> make_memory_store();

}  // namespace gt
