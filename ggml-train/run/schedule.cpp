#include "ggml-train/run/schedule.h"

#include "ggml-train/base/fixed-math.h"

#include <algorithm>

namespace gt {

void Schedule::check() const {
    if (kind != "constant" && kind != "linear" && kind != "cosine" && kind != "wsd") {
        throw Error("schedule \"" + kind + "\" is none of cosine, linear, wsd, constant");
    }
    if (!(lr > 0.0f)) {
        throw Error(format("learning rate %g: it must be above 0", lr));
    }
    if (!(min_ratio >= 0.0f && min_ratio <= 1.0f)) {
        throw Error(format("last learning rate %g: expected a share between 0 and 1", min_ratio));
    }
    if (!(decay > 0.0f && decay <= 1.0f)) {
        throw Error(format("decay %g: expected a share above 0, at most 1", decay));
    }
    if (steps < 1) {
        throw Error(format("%lld steps: at least one is needed", static_cast<long long>(steps)));
    }
}

int64_t Schedule::warmup_steps() const {
    if (warmup >= 0) {
        return std::min(warmup, steps);
    }
    const int64_t least = std::min<int64_t>(10, steps / 2);  // else the loss of short runs jumps
    return std::clamp<int64_t>(steps / 50, least, 2000);
}

float Schedule::at(uint64_t step) const {
    const double top    = lr;
    const double bottom = top * min_ratio;
    const double s      = static_cast<double>(step);
    const double rise   = static_cast<double>(warmup_steps());
    const double end    = static_cast<double>(steps);
    if (s < rise) {
        return static_cast<float>(top * (s + 1.0) / rise);
    }
    if (kind == "constant") {
        return lr;
    }
    // wsd keeps the peak rate until the decay begins; the others decay right after the warmup.
    const double begin = kind == "wsd" ? std::max(rise, end - decay * end) : rise;
    const double x     = s <= begin ? 0.0 : s >= end ? 1.0 : (s - begin) / (end - begin);
    const double share = kind == "cosine" ? 0.5 * (1.0 + fixed_cos_pi(x)) : 1.0 - x;
    return static_cast<float>(bottom + (top - bottom) * share);
}

}  // namespace gt
