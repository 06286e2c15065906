// tests/cuda/cuda-bugs.cuh — three kernels with thirteen bugs to choose from; each must be detected.
//
// Every block adds to each element of its tile the largest of the tile, mirrored: shared memory, a
// barrier, warp operations, a counter shared by blocks. Then a product of matrices is added, and a sum of zeros.
// bug 0: none. 4 and 5 are in host code, 10 to 12 in the second kernel, 13 in the third.
#pragma once

#include "ggml-train/cuda/mma.cuh"

namespace gt::cuda {

constexpr int kBugThreads = 64;

__global__ void __launch_bounds__(kBugThreads)
    bugs_kernel(int bug, const float * x, float * out, int * count) {
    GT_SHARED(float, tile, kBugThreads);
    GT_SHARED(float, top, 2);
    const int    i  = threadIdx.x;
    const size_t at = size_t(blockIdx.x) * kBugThreads + i;
    if (bug == 3 && i == kBugThreads - 1) {
        return;  // before a barrier
    }
    tile[i] = x[at];
    if (bug != 1) {
        __syncthreads();
    }
    const float v = tile[kBugThreads - 1 - i];
    float       m = warp_max(v);
    if (bug == 8 && i < 16) {
        m = fmaxf(m, __shfl_down_sync(kAll, m, 1));  // all lanes named, half of them here
    }
    if (i % 32 == 0) {
        top[i / 32 + (bug == 9 ? 1 : 0)] = m;  // one too far
    }
    if (bug == 6) {
        if (i < 32) {
            __syncthreads();  // half the threads
        }
    } else {
        __syncthreads();
    }
    out[at] = v + fmaxf(top[0], top[1]);
    if (bug == 2 && i == 0) {
        out[size_t(gridDim.x) * kBugThreads] = 1.0f;  // past the end
    }
    if (i == 0) {
        if (bug == 7) {
            *count += 1;  // blocks race
        } else {
            atomicAdd(count, 1);
        }
    }
}

// Adds the sum over a product of ones, 16 x 16 with 16 x 8, halved: 16 in every element, 1024.
__global__ void __launch_bounds__(kBugThreads) matrix_bugs_kernel(int bug, float * out) {
    GT_SHARED(Floats4, tile, 33);  // a row of eight ones each; one more than the matrices have
    unsigned * const words = reinterpret_cast<unsigned *>(tile);
    const int        i     = threadIdx.x;
    for (int w = i; w < 33 * 4; w += kBugThreads) {
        words[w] = pack_bf16(1.0f, 1.0f);
    }
    if (bug != 10) {
        __syncthreads();  // before the tile is read
    }
    float          c[4] = {};
    unsigned       a[4];
    const unsigned one = pack_bf16(1.0f, 1.0f);
    load_matrices(a, words + (31 - i % 32) * 4 + (bug == 12 ? 1 : 0));
    if (bug != 11 || i % 32 < 16) {  // half the lanes
        multiply_add(c, a, one, one);
    }
    out[size_t(blockIdx.x) * kBugThreads + i] += warp_sum(c[0] + c[1] + c[2] + c[3]) / 2.0f;
}

// Adds the sum of n zeros. With the bug one thread reads all of them, a chain of memory accesses that no other
// thread shortens.
__global__ void __launch_bounds__(kBugThreads)
    sum_bugs_kernel(int bug, int n, const float * zeros, float * out) {
    const int i    = threadIdx.x;
    const int step = bug == 13 ? 1 : kBugThreads;
    float     sum  = 0.0f;
    for (int z = bug == 13 && i > 0 ? n : i; z < n; z += step) {
        sum += zeros[z];
    }
    out[size_t(blockIdx.x) * kBugThreads + i] += sum;
}

}  // namespace gt::cuda
