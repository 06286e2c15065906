// comm/hub/hub-uploads.h — large values that arrive at the hub in ranges, on several connections.
//
// Ranges are written to their places in one file aside, which gets its name when all are there.
// Thread-safe.
#pragma once

#include "comm/hub/hub-disk.h"

#include <functional>

namespace gt {

class HubUploads {
public:
    // All ranges but the last have the same size.
    struct Range {
        std::string upload;                                // random name, chosen by the sender
        uint64_t    index = 0, range_bytes = 0, size = 0;  // `size`: of the whole value
    };

    explicit HubUploads(HubDisk & disk) : disk_(disk) {}

    // `check` throws if the whole value must not be stored.
    using Check = std::function<void(std::span<const uint8_t> value)>;
    HubDisk::Outcome write(
        const std::string &      key,
        const Range &            range,
        std::span<const uint8_t> data,
        const Check &            check
    );

    // The ranges that have not arrived: a restart of the hub forgets an unfinished upload.
    std::vector<uint64_t> missing(const std::string & key, const Range & range);

    // Drops uploads that got no range for some time.
    void drop_old();

private:
    struct Upload;

    void                    require_limits(const Range & range) const;
    std::shared_ptr<Upload> open(const std::string & key, const Range & range);
    void                    fail(Upload & upload, const std::string & name);

    HubDisk &                                      disk_;
    std::mutex                                     mutex_;
    std::map<std::string, std::shared_ptr<Upload>> uploads_;
};

}  // namespace gt
