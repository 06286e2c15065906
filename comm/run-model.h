// comm/run-model.h — the model's description in the store: a GGUF without tensor data (sizes and
// tokenizer), so that a newcomer needs nothing but hosts.txt. Weights come from the shared checkpoint.
#pragma once

#include "comm/seal.h"
#include "comm/store.h"

namespace gt {

// Puts it there unless it is there already.
void offer_model(Store & store, const RunKeys & keys, const std::string & host, std::span<const uint8_t> gguf);

// Waits for it for so long; nothing: the run has none yet.
[[nodiscard]] std::optional<Bytes> fetch_model(Store & store, const RunKeys & keys, std::chrono::milliseconds wait);

}  // namespace gt
