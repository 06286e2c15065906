// Any bytes: parse_frame rejects them, or returns a frame that make_frame encodes to the same bytes.
#include "comm/wire/frame.h"

#include <cstring>
#include <sodium.h>

using namespace gt;

static void check(std::span<const uint8_t> value) {
    std::string why;
    const auto  frame = parse_frame(value, &why);
    if (!frame) {
        GT_CHECK(!why.empty(), "a refusal without a reason");
        return;
    }
    const Bytes again = make_frame(*frame);
    GT_CHECK(again.size() == value.size(), "another size");
    GT_CHECK(std::memcmp(again.data(), value.data(), value.size()) == 0, "other bytes");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    check({data, size});
    // the same with a valid checksum, so that the rest is parsed
    Bytes value(data, data + size);
    if (value.size() >= kFrameHeadBytes) {
        Bytes summed(value.begin(), value.begin() + 40);
        summed.insert(summed.end(), value.begin() + kFrameHeadBytes, value.end());
        uint8_t sum[32];
        crypto_generichash(sum, sizeof sum, summed.data(), summed.size(), nullptr, 0);
        std::memcpy(&value[40], sum, 16);
        check(value);
    }
    return 0;
}
