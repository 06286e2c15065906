// Any bytes: rejected as a sealed text, a hub-key and base64, without reading past the end.
#include "comm/wire/seal.h"

using namespace gt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    static const RunKeys keys = keys_from_secret(Key32{});
    const SealContext    context{.run = 1, .kind = "message", .round = size, .host = "anna"};
    GT_CHECK(!open_sealed(keys, context, {data, size}), "opened what was not sealed");
    // a sealed text, changed in one place
    Bytes sealed = seal(keys, context, std::span(data, size));
    GT_CHECK(open_sealed(keys, context, sealed) == Bytes(data, data + size), "not the same");
    if (size >= 2) {
        sealed[(data[0] * 256u + data[1]) % sealed.size()] ^= uint8_t(1u << (data[1] % 8));
        GT_CHECK(!open_sealed(keys, context, sealed), "opened what was changed");
    }
    const std::string text(data, data + size);
    if (const auto bytes = from_base64(text)) {
        GT_CHECK(to_base64(*bytes) == text, "base64 has two forms");
    }
    return 0;
}
