// ggml-train/graph/fused-args.h — the arguments of our nodes (fused.h) in the form kernels take, for the two
// tables of kernels: fused.cpp for the CPU, fused-device.cpp for devices.
#pragma once

#include "ggml-train/cpu/kernels.h"
#include "ggml-train/graph/fused.h"

namespace gt {

inline float * data(const ggml_tensor * t) {
    return t ? static_cast<float *>(t->data) : nullptr;
}

inline const int32_t * ints(const ggml_tensor * t) {
    return t ? static_cast<const int32_t *>(t->data) : nullptr;
}

inline int64_t rows(const ggml_tensor * t) {
    return ggml_nelements(t) / t->ne[0];
}

// i: T, H, Hkv, D, causal.
inline cpu::Attention
attention_of(const FusedParams & p, int64_t n_rows, const ggml_tensor * positions) {
    return {
        .B         = n_rows / p.i[0],
        .T         = p.i[0],
        .H         = p.i[1],
        .Hkv       = p.i[2],
        .D         = p.i[3],
        .causal    = p.i[4] != 0,
        .positions = ints(positions)};
}

}  // namespace gt
