// ggml-train/cuda/device.cuh — lets one kernel source run in three ways: compiled by nvcc on a GPU,
// as nvcc's PTX in tests/cuda/ptx-run.h, and g++ under the emulator of tests/cuda/cuda-emu.h.
//
// Kernels use plain CUDA, with three exceptions: GT_SHARED and GT_DYNAMIC_SHARED instead of
// __shared__ (the emulator gives each block fresh memory full of NaN), and launch() instead of
// <<< >>>. Rules: no spin-waits on other threads, no float atomics, no cub, size_t for indices.
#pragma once

#include "ggml-train/base/base.h"

#ifdef __CUDACC__

#include <cuda_runtime.h>

#define GT_SHARED(T, name, n) __shared__ T name[n]
#define GT_DYNAMIC_SHARED(T, name)                                                                 \
    extern __shared__ __align__(16) unsigned char gt_dynamic_shared[];                             \
    T *                                           name = reinterpret_cast<T *>(gt_dynamic_shared)

namespace gt::cuda {

inline void check(cudaError_t result, const char * what) {
    if (result != cudaSuccess) {
        throw Error(format("CUDA: %s: %s", what, cudaGetErrorString(result)));
    }
}

template <class... P, class... A>
void launch(
    void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, A... args
) {
    if (shared_bytes > 48 * 1024) {  // more must be requested
        check(
            cudaFuncSetAttribute(
                kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)
            ),
            "shared memory"
        );
    }
    kernel<<<grid, block, shared_bytes, stream>>>(static_cast<P>(args)...);
    check(cudaGetLastError(), "launch");
}

}  // namespace gt::cuda

#else

#include "cuda-emu.h"  // tests/, on the include path of emulated builds only

#endif

namespace gt::cuda {

constexpr unsigned kWarp    = 32;
constexpr unsigned kAll     = 0xffffffffu;  // every lane of a warp
constexpr unsigned kThreads = 256;          // of most kernels' blocks

// As many blocks as n elements ask for, but no more than a GPU keeps busy: kernels loop.
inline dim3 blocks_for(int64_t n, int64_t per_block) {
    const int64_t blocks = (n + per_block - 1) / per_block;
    return dim3(static_cast<unsigned>(blocks < 1 ? 1 : blocks > 65535 ? 65535 : blocks));
}

// The sum over the lanes of a warp, in every lane; its order is fixed.
__device__ inline float warp_sum(float v) {
    for (int d = kWarp / 2; d > 0; d /= 2) {
        v += __shfl_xor_sync(kAll, v, d);
    }
    return v;
}

__device__ inline float warp_max(float v) {
    for (int d = kWarp / 2; d > 0; d /= 2) {
        const float o = __shfl_xor_sync(kAll, v, d);
        v             = o > v ? o : v;
    }
    return v;
}

}  // namespace gt::cuda
