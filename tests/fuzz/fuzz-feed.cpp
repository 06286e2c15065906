// Any bytes on a lane of the feed: ranges are rejected, or taken and written back as the same bytes; the
// host's end keeps them within its bounds.
#include "comm/http/feed.h"
#include "comm/wire/keys.h"

#include <cstring>

using namespace gt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    const RunPaths           paths(1);
    Feed                     feed(1, 4);
    std::span<const uint8_t> in(data, size);
    try {
        while (true) {
            const auto before = in;
            auto       range  = take_range(in);
            if (!range) {
                break;
            }
            Bytes again;
            append_range(again, *range);
            GT_CHECK(again.size() == before.size() - in.size(), "another size");
            GT_CHECK(std::memcmp(again.data(), before.data(), again.size()) == 0, "other bytes");
            if (!range->key.empty()) {
                feed.add(*range);
                range->key = paths.message({range->key.size() % 3, "anna", 1});
                feed.add(*range);
                (void) feed.missing(range->key);
                const auto value = feed.find(range->key, {}, {});
                GT_CHECK(!value || value->size() == range->size, "a value of another size");
            }
        }
    } catch (const Error &) {
        // invalid: the lane is opened again
    }
    return 0;
}
