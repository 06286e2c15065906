#include "ggml-train/base/device.h"

#include <algorithm>

namespace gt {

std::vector<float> Floats::read() const {
    if (!memory) {
        return {values.begin(), values.end()};
    }
    std::vector<float> copy(values.size());
    memory->read(copy.data(), values.data(), values.size_bytes());
    return copy;
}

void Floats::write(std::span<const float> from) const {
    GT_CHECK(from.size() == values.size(), "sizes must be equal");
    if (memory) {
        memory->write(values.data(), from.data(), from.size_bytes());
    } else {
        std::copy(from.begin(), from.end(), values.begin());
    }
}

void Floats::zero() const {
    write(std::vector<float>(values.size(), 0.0f));
}

HostView::HostView(const Floats & floats) : values_(floats.values) {
    if (floats.memory) {
        copy_   = floats.read();
        values_ = copy_;
    }
}

}  // namespace gt
