// Any bytes: parse_frame refuses or gives a frame that make_frame writes in the same bytes.
// SOURCES: comm/frame.cpp ggml-train/base.cpp
// LIBS: -lsodium
#include "comm/frame.h"

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
    // the same with a right checksum, so that what lies behind it is reached
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
