#include "optim/math/fold.h"

#include <cmath>

namespace gt {

void fold_elements(const Fold & fold, int64_t n, float * momentum) {
    if (fold.grad == nullptr) {
        return;
    }
    constexpr float kTiny = 1e-30f;
    for (int64_t i = 0; i < n; ++i) {
        const float x = fold.decay * momentum[i] + fold.alpha * fold.grad[i];
        momentum[i]   = std::fabs(x) < kTiny ? 0.0f : x;
    }
}

}  // namespace gt
