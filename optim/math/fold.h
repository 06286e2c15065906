// optim/math/fold.h — momentum accumulation: m = decay·m + alpha·g, element by element.
#pragma once

#include <cstdint>

namespace gt {

// A gradient to be accumulated into the momentum. Results below 1e-30 are flushed to zero: denormals
// are slow and carry no information.
struct Fold {
    const float * grad  = nullptr;  // null: no gradient this step, the momentum does not change
    float         decay = 1.0f, alpha = 1.0f;
};

void fold_elements(const Fold & fold, int64_t n, float * momentum);

}  // namespace gt
