// optim/device/room.h — device memory that grows on demand.
#pragma once

#include "ggml-train/base/device.h"

#include <algorithm>

namespace gt {

class Room {
public:
    Room(Device & device, const char * what) : device_(device), what_(what) {}

    uint8_t * of(size_t bytes) {
        if (bytes > bytes_) {
            bytes_ = std::max(bytes, 2 * bytes_);
            data_  = static_cast<uint8_t *>(device_.alloc(bytes_, what_));
        }
        return data_;
    }

    uint8_t * put(const void * from, size_t bytes) {
        uint8_t * to = of(bytes);
        device_.write(to, from, bytes);
        return to;
    }

    // A table of structures.
    template <class Row>
    const Row * put(const std::vector<Row> & rows) {
        return reinterpret_cast<const Row *>(put(rows.data(), rows.size() * sizeof(Row)));
    }

private:
    Device &     device_;
    const char * what_;
    uint8_t *    data_  = nullptr;
    size_t       bytes_ = 0;
};

}  // namespace gt
