#include "comm/run-model.h"

#include "comm/records.h"

namespace gt {

static std::string model_key(const RunKeys & keys) {
    return RunPaths(keys.run).root + "model";
}

void offer_model(Store & store, const RunKeys & keys, const std::string & host, std::span<const uint8_t> gguf) {
    if (!fetch_model(store, keys, std::chrono::milliseconds(0))) {
        store.put(model_key(keys), make_record(keys, {Kind::model, 0, host, 0}, gguf), true);
    }
}

std::optional<Bytes> fetch_model(Store & store, const RunKeys & keys, std::chrono::milliseconds wait) {
    const auto value = store.get(model_key(keys), wait);
    return value ? parse_record(keys, {Kind::model, 0, "", 0}, *value) : std::nullopt;
}

}  // namespace gt
