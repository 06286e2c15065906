// ggml-train/base/curve.h — a curve of at most 512 points, for a page: when it is full, every second point
// is dropped, and from then on half as many are taken.
#pragma once

#include "ggml-train/base/json.h"

#include <utility>

namespace gt {

class Curve {
public:
    void add(uint64_t x, double y) {
        if (n_seen_++ % every_ != 0) {
            return;
        }
        points_.emplace_back(x, y);
        if (points_.size() == kMaxPoints) {
            for (size_t i = 0; i < kMaxPoints / 2; ++i) {
                points_[i] = points_[2 * i];
            }
            points_.resize(kMaxPoints / 2);
            every_ *= 2;
        }
    }

    const std::vector<std::pair<uint64_t, double>> & points() const { return points_; }

    Json json() const {
        Json out = Json::array();
        for (const auto & [x, y] : points_) {
            out.push(Json::array().push(x).push(static_cast<float>(y)));
        }
        return out;
    }

private:
    static constexpr size_t kMaxPoints = 512;

    std::vector<std::pair<uint64_t, double>> points_;
    uint64_t                                 every_ = 1, n_seen_ = 0;
};

}  // namespace gt
