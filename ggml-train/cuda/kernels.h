// ggml-train/cuda/kernels.h — functions that launch our CUDA kernels: device arrays in, device arrays
// out; no CUDA header, no ggml.
//
// The same functions as in cpu/kernels.h, which documents them; here every call is queued on a stream and
// returns at once. Two libraries implement this header: gt-cuda (nvcc) and gt-cuda-emu
// (the same sources on the CPU, tests/cuda/cuda-emu.h). A failed CUDA call throws Error.
// Forward and backward agree with the CPU within rounding; sums have a fixed order, so that a
// device reproduces its results bit for bit. Functions on whose bits hosts must agree are in demo.h;
// they give the bits of the CPU.
#pragma once

#include "ggml-train/cpu/kernels.h"

#include <cstddef>

struct CUstream_st;  // cudaStream_t points to it

namespace gt::cuda {

using Stream = CUstream_st *;  // null: the default stream

// Where results go: floats, or the same rounded to bf16, as products take them.
struct Out {
    Out(float * p) : to(p) {}
    Out(uint16_t * p) : to(p), bf16(true) {}
    void * to;
    bool   bf16 = false;
};

// The same for what is read.
struct In {
    In(const float * p) : from(p) {}
    In(const uint16_t * p) : from(p), bf16(true) {}
    const void * from;
    bool         bf16 = false;
};
using cpu::Attention;
using cpu::Gelu;

// ---- device.cu: memory and streams, without ggml ------------------------------------------------

// The number of GPUs; without driver or GPU 0, and the reason in one line.
int n_devices(const char ** why);

// Selects the device for the calling thread.
void set_device(int device);
int  current_device();

// Whether the selected device multiplies bf16 on tensor cores (sm_80 and later).
bool has_tensor_cores();

void * alloc(size_t bytes);  // never null
void   free(void * p);
void   copy_in(Stream s, void * device, const void * host, size_t bytes);
void   copy_out(Stream s, void * host, const void * device, size_t bytes);
void   set_zero(Stream s, void * device, size_t bytes);
void   synchronize(Stream s);

// ---- gemm.cpp: products by cuBLASLt ---------------------------------------------------------------------

// As cpu::Gemm: C = op(A) op(B), plus bias, plus a residual laid out as C, which may be the old C. Factors are F32
// or both bf16; sums are F32. All products of a device must be on the same stream.
struct Gemm {
    bool          ta = false, tb = false;
    int64_t       M = 0, N = 0, K = 0;
    bool          bf16     = false;
    const void *  A        = nullptr;
    int64_t       lda      = 0;
    const void *  B        = nullptr;
    int64_t       ldb      = 0;
    float *       C        = nullptr;
    int64_t       ldc      = 0;
    const float * bias     = nullptr;
    const float * residual = nullptr;
};
void gemm(Stream s, const Gemm & g);

// Whether gemm may round F32 factors to TF32 from now on; not unless it is called.
void use_tf32(bool on);

// ---- norm.cu ------------------------------------------------------------------------------------------

void layer_norm(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    float         eps,
    const float * x,
    const float * w,
    const float * b,
    Out           y,
    float *       stats
);
void rms_norm(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    float         eps,
    const float * x,
    const float * w,
    Out           y,
    float *       stats
);
void layer_norm_back(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    const float * dy,
    const float * x,
    const float * w,
    const float * stats,
    const float * add,
    float *       dx
);
void rms_norm_back(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    const float * dy,
    const float * x,
    const float * w,
    const float * stats,
    const float * add,
    float *       dx
);
void norm_back_params(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    const float * dy,
    const float * x,
    const float * stats,
    float         beta,
    float *       dw,
    float *       db
);
void sum_rows(Stream s, int64_t rows, int64_t C, In x, int64_t ld, float beta, float * out);

// ---- bf16.cu --------------------------------------------------------------------------------------------

void round_bf16(Stream s, int64_t n, const float * x, uint16_t * y);

// ---- activation.cu --------------------------------------------------------------------------------------

void gelu(Stream s, int64_t n, Gelu kind, const float * x, Out y);
void gelu_back(Stream s, int64_t n, Gelu kind, const float * x, const float * dy, Out dx);
void swiglu(Stream s, int64_t n, const float * gate, const float * up, Out y);
void swiglu_back(
    Stream        s,
    int64_t       n,
    const float * gate,
    const float * up,
    const float * dy,
    float *       dgate,
    float *       dup
);

// ---- embedding.cu ---------------------------------------------------------------------------------------

void embedding(
    Stream          s,
    int64_t         n,
    int64_t         T,
    int64_t         C,
    const int32_t * ids,
    const float *   table,
    const float *   position,
    float *         x
);
void embedding_back(
    Stream          s,
    int64_t         n,
    int64_t         V,
    int64_t         C,
    const int32_t * ids,
    const float *   dx,
    float           beta,
    float *         table
);
void position_back(
    Stream s, int64_t B, int64_t T, int64_t C, const float * dx, float beta, float * position
);

// ---- loss.cu --------------------------------------------------------------------------------------------

// scale: one float in device memory. grad: null, the logits' place, or laid out as they are.
void cross_entropy(
    Stream          s,
    int64_t         rows,
    int64_t         V,
    int64_t         ld,
    const float *   logits,
    const int32_t * labels,
    float           smoothing,
    const float *   scale,
    Out             grad,
    float *         loss
);

// ---- attention.cu: head sizes up to kMaxHead -------------------------------------------------------------

constexpr int64_t kMaxHead = 128;

void attention(Stream s, const Attention & a, const float * qkv, float * o, float * lse);
// delta [B x H x T] is scratch.
void attention_back(
    Stream            s,
    const Attention & a,
    const float *     qkv,
    const float *     o,
    const float *     lse,
    const float *     d_o,
    float *           delta,
    float *           dqkv
);

// The same with products of bf16 on tensor cores, where the device has them and D is a multiple of four:
// q, k, v, d_o, the weights and their gradients are rounded, sums and the softmax are F32. dqkv may be bf16
// under the same conditions.
void attention_bf16(Stream s, const Attention & a, const float * qkv, float * o, float * lse);
void attention_bf16_back(
    Stream            s,
    const Attention & a,
    const float *     qkv,
    const float *     o,
    const float *     lse,
    const float *     d_o,
    float *           delta,
    Out               dqkv
);

}  // namespace gt::cuda
