// comm/run/run-model.cpp — see run-model.h.
#include "comm/run/run-model.h"

#include "comm/wire/records.h"

namespace gt {

void offer_model(
    Store & store, const RunKeys & keys, const std::string & host, std::span<const uint8_t> gguf
) {
    if (!fetch_model(store, keys, std::chrono::milliseconds(0))) {
        store.put(
            RunPaths(keys.run).model(), make_record(keys, {Kind::model, 0, host, 0}, gguf), true
        );
    }
}

std::optional<Bytes>
fetch_model(Store & store, const RunKeys & keys, std::chrono::milliseconds wait) {
    const auto value = store.get(RunPaths(keys.run).model(), wait);
    return value ? parse_record(keys, {Kind::model, 0, "", 0}, *value) : std::nullopt;
}

}  // namespace gt
