// comm/run/run-model.h — the model's description in the store: a GGUF without tensor data.
//
// It has sizes and tokenizer, so that a joining host needs only hosts.txt. Weights come from the
// shared checkpoint.
#pragma once

#include "comm/store/store.h"
#include "comm/wire/seal.h"

namespace gt {

// Puts the description unless the run has one.
void offer_model(
    Store & store, const RunKeys & keys, const std::string & host, std::span<const uint8_t> gguf
);

// The description; nothing if the run has none within `wait`.
[[nodiscard]] std::optional<Bytes>
fetch_model(Store & store, const RunKeys & keys, std::chrono::milliseconds wait);

}  // namespace gt
