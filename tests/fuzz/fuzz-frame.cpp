// Any bytes: parse_frame rejects them, or returns a frame that make_frame encodes to the same bytes.
#include "comm/wire/frame.h"

#include <algorithm>
#include <cstring>

using namespace gt;

constexpr Key32 kSeed{1};

static void check(std::span<const uint8_t> value) {
    std::string why;
    const auto  frame = parse_frame(value, &why);
    if (!frame) {
        GT_CHECK(!why.empty(), "a refusal without a reason");
        return;
    }
    if (frame->signer != public_key(kSeed)) {
        return;
    }
    const Bytes again = make_frame(kSeed, *frame);
    GT_CHECK(again.size() == value.size(), "another size");
    GT_CHECK(std::memcmp(again.data(), value.data(), value.size()) == 0, "other bytes");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    check({data, size});
    // the same with a valid signature, so that the rest is parsed
    Bytes value(data, data + size);
    if (value.size() >= kFrameHeadBytes) {
        const Key32 key = public_key(kSeed);
        std::copy(key.begin(), key.end(), value.begin() + 44);
        Bytes summed(value.begin(), value.begin() + 76);
        summed.insert(summed.end(), value.begin() + kFrameHeadBytes, value.end());
        const Signature signature = sign(kSeed, digest256(summed));
        std::copy(signature.begin(), signature.end(), value.begin() + 76);
        check(value);
    }
    return 0;
}
