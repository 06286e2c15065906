// tests/cuda/cuda-emu.h — CUDA's language and runtime for g++: kernels run on the CPU, one fiber per thread.
//
// A thread runs until it waits at a barrier or warp operation; the order in which threads and
// blocks run is up, down or random. Detects barriers that not all threads reach (or in different lines),
// warp operations whose lanes disagree, deadlocks, too much shared memory, reads of uninitialized
// memory (NaN), overruns of device memory (guard pages), host access to device memory (no access
// outside kernels and copies), results used before a stream was synchronized (streams run late). Under
// ASan also overruns of shared arrays, under TSan every race, between blocks too. Does not detect what
// depends on ptxas, on warps in lockstep, on speed.
// cuda-emu.cpp and cuda-emu-runtime.cpp have the machinery; ptx-run.h runs nvcc's PTX in the same
// memory.
#pragma once

#include "ggml-train/base/base.h"
#include "matrix-unit.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

namespace cuda_emu {

enum class Order { up, down, random };

struct Config {
    Order    order        = Order::up;
    unsigned seed         = 1;
    size_t   shared_limit = 99 * 1024;  // sm_86, 89, 120; 48 KB of it without asking
};
extern Config config;

// A launch: the kernel's address and the bytes of its arguments, for the PTX interpreter.
struct Launch {
    const void *                            kernel = nullptr;
    dim3                                    grid, block;
    size_t                                  dynamic_bytes = 0;
    std::vector<std::vector<unsigned char>> args;
    std::function<void()>                   body;  // one thread, for the emulator
};

// Runs a launch on this thread. REQUIRES: device memory is accessible (streams do that).
void run(const Launch & launch);

// If set, runs launches instead of the emulator.
extern std::function<void(const Launch &)> launch_hook;

// A piece of device memory, for bounds checks outside the emulator.
struct Region {
    char * begin = nullptr;  // what cudaMalloc returned
    size_t bytes = 0;
};
std::vector<Region> regions();

// ---- called by kernels, through the macros below --------------------------------------------------

// matrices, transposed, product: `value` is the address of the lane's MatrixLane or ProductLane.
enum class WarpOp { sync, shuffle, ballot, matrices, transposed, product };

uint3    thread_index();
uint3    block_index();
dim3     block_size();
dim3     grid_size();
int      lane();
void     barrier(int line);
uint64_t warp(WarpOp op, unsigned mask, uint64_t value, int source, int line);
void *   shared(const void * key, size_t bytes, bool dynamic);

template <class T>
T shuffle(unsigned mask, T value, int source, int line) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = warp(WarpOp::shuffle, mask, bits, source, line);
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T>
T shuffle_down(unsigned mask, T value, unsigned by, int line) {
    const int to = lane() + static_cast<int>(by);
    return shuffle(mask, value, to < 32 ? to : lane(), line);
}
template <class T>
T shuffle_up(unsigned mask, T value, unsigned by, int line) {
    const int to = lane() - static_cast<int>(by);
    return shuffle(mask, value, to >= 0 ? to : lane(), line);
}

template <class T>
std::vector<unsigned char> bytes_of(const T & value) {
    std::vector<unsigned char> bytes(sizeof value);
    memcpy(bytes.data(), &value, sizeof value);
    return bytes;
}

}  // namespace cuda_emu

#define threadIdx (cuda_emu::thread_index())
#define blockIdx (cuda_emu::block_index())
#define blockDim (cuda_emu::block_size())
#define gridDim (cuda_emu::grid_size())
#define __syncthreads() cuda_emu::barrier(__LINE__)
#define __syncwarp() ((void) cuda_emu::warp(cuda_emu::WarpOp::sync, 0xffffffffu, 0, 0, __LINE__))
#define __shfl_sync(m, v, s) cuda_emu::shuffle(m, v, s, __LINE__)
#define __shfl_down_sync(m, v, d) cuda_emu::shuffle_down(m, v, d, __LINE__)
#define __shfl_up_sync(m, v, d) cuda_emu::shuffle_up(m, v, d, __LINE__)
#define __shfl_xor_sync(m, v, x) cuda_emu::shuffle(m, v, cuda_emu::lane() ^ (x), __LINE__)
#define __ballot_sync(m, p)                                                                        \
    static_cast<unsigned>(cuda_emu::warp(cuda_emu::WarpOp::ballot, m, (p) ? 1 : 0, 0, __LINE__))
#define GT_SHARED(T, name, n)                                                                      \
    static char name##_key;                                                                        \
    T *         name = static_cast<T *>(cuda_emu::shared(&name##_key, sizeof(T) * (n), false))
#define GT_DYNAMIC_SHARED(T, name)                                                                 \
    static char name##_key;                                                                        \
    T *         name = static_cast<T *>(cuda_emu::shared(&name##_key, 0, true))

// ---- device functions -----------------------------------------------------------------------------

inline float __fmaf_rn(float a, float b, float c) {
    return std::fmaf(a, b, c);
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fsub_rn(float a, float b) {
    return a - b;
}
inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline float __fsqrt_rn(float a) {
    return std::sqrt(a);
}
inline double __dmul_rn(double a, double b) {
    return a * b;
}
inline double __dadd_rn(double a, double b) {
    return a + b;
}
inline double __ddiv_rn(double a, double b) {
    return a / b;
}
inline double __dsqrt_rn(double a) {
    return std::sqrt(a);
}
inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline unsigned __float_as_uint(float f) {
    unsigned u;
    memcpy(&u, &f, sizeof u);
    return u;
}
inline float __uint_as_float(unsigned u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
inline float rsqrtf(float x) {
    return 1.0f / std::sqrt(x);
}

// Relaxed, as on the GPU: does not order other accesses.
template <class T>
T atomicAdd(T * p, T v) {
    T old;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    for (T next = old + v;
         !__atomic_compare_exchange(p, &old, &next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
         next = old + v) {
    }
    return old;
}

inline unsigned atomicOr(unsigned * p, unsigned v) {
    return __atomic_fetch_or(p, v, __ATOMIC_RELAXED);
}

// ---- the runtime ----------------------------------------------------------------------------------

struct CUstream_st;
using cudaStream_t = CUstream_st *;
using cudaEvent_t  = std::function<void()> *;  // made by the fake device (tests/fake)
using cudaError_t  = int;
enum { cudaSuccess = 0, cudaErrorMemoryAllocation = 2 };
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor = 75 };
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice
};

cudaError_t  cudaMalloc(void ** p, size_t bytes);
cudaError_t  cudaFree(void * p);
cudaError_t  cudaStreamCreate(cudaStream_t * stream);
cudaError_t  cudaStreamDestroy(cudaStream_t stream);
cudaError_t  cudaStreamSynchronize(cudaStream_t stream);
cudaError_t  cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t  cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event);
cudaError_t  cudaDeviceSynchronize();
cudaError_t  cudaMemcpyAsync(void * to, const void * from, size_t n, cudaMemcpyKind, cudaStream_t);
cudaError_t  cudaMemsetAsync(void * to, int value, size_t n, cudaStream_t);
cudaError_t  cudaGetDeviceCount(int * n);
cudaError_t  cudaGetDevice(int * device);
cudaError_t  cudaSetDevice(int device);
cudaError_t  cudaDeviceGetAttribute(int * value, cudaDeviceAttr, int device);  // of an sm_86
const char * cudaGetErrorString(cudaError_t error);

namespace cuda_emu {
void enqueue(cudaStream_t stream, Launch launch);
void enqueue(cudaStream_t stream, std::function<void()> work);  // of a library of NVIDIA's
}  // namespace cuda_emu

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
    const std::tuple<P...> values{static_cast<P>(args)...};
    cuda_emu::Launch       l;
    l.kernel        = reinterpret_cast<const void *>(kernel);
    l.grid          = grid;
    l.block         = block;
    l.dynamic_bytes = shared_bytes;
    std::apply([&](const auto &... v) { (l.args.push_back(cuda_emu::bytes_of(v)), ...); }, values);
    l.body = [kernel, values] { std::apply(kernel, values); };
    cuda_emu::enqueue(stream, std::move(l));
}

}  // namespace gt::cuda
