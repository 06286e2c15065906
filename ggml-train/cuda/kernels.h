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

// Where results go: floats, or the same rounded to bf16.
struct Out {
    Out(float * p) : at(p) {}
    Out(uint16_t * p) : at(p), bf16(true) {}
    void * at;
    bool   bf16 = false;
};

// The same for what is read.
struct In {
    In(const float * p) : at(p) {}
    In(const uint16_t * p) : at(p), bf16(true) {}
    In(const Out & out) : at(out.at), bf16(out.bf16) {}
    const void * at;
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

// Order streams by a cudaEvent_t: what is on s now; what comes to s later waits for that.
void record(Stream s, void * event);
void wait_for(Stream s, void * event);

// ---- gemm.cpp: products by cuBLASLt ---------------------------------------------------------------------

// As cpu::Gemm: C = op(A) op(B), plus bias, plus a residual laid out as C, which may be the old C. Factors are F32
// or both bf16, and then C may be bf16 with bias and residual; sums are F32. All products of a device must be on the
// same stream.
struct Gemm {
    bool         ta = false, tb = false;
    int64_t      M = 0, N = 0, K = 0;
    bool         bf16     = false;
    const void * A        = nullptr;
    int64_t      lda      = 0;
    const void * B        = nullptr;
    int64_t      ldb      = 0;
    Out          C        = static_cast<float *>(nullptr);
    int64_t      ldc      = 0;
    const void * bias     = nullptr;  // of C's type, as the residual
    const void * residual = nullptr;

    // C becomes GELU of that (by tanh), which itself goes to `inner`; or that times GELU's slope at `inner`.
    // REQUIRES: C is bf16, ldc is N. inner is laid out as C.
    enum class Then { nothing, gelu, gelu_back };
    Then       then  = Then::nothing;
    uint16_t * inner = nullptr;

    // If not null: the sums of A's columns go here. REQUIRES: ta, a sum of F32 and nothing else.
    float * a_sums = nullptr;
};
void gemm(Stream s, const Gemm & g);

// Whether gemm may round F32 factors to TF32 from now on; not unless it is called.
void use_tf32(bool on);

// ---- norm.cu: x and y of one type, or x F32 and y bf16; dy as y, dx and add as x -------------------------

void layer_norm(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    float         eps,
    In            x,
    const float * w,
    const float * b,
    Out           y,
    float *       stats
);
void rms_norm(
    Stream s, int64_t rows, int64_t C, float eps, In x, const float * w, Out y, float * stats
);
void layer_norm_back(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    In            dy,
    In            x,
    const float * w,
    const float * stats,
    In            add,  // may be dx, or null
    Out           dx
);
void rms_norm_back(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    In            dy,
    In            x,
    const float * w,
    const float * stats,
    In            add,  // may be dx, or null
    Out           dx
);
void norm_back_params(
    Stream        s,
    int64_t       rows,
    int64_t       C,
    In            dy,
    In            x,
    const float * stats,
    float         beta,
    float *       dw,
    float *       db
);
void sum_rows(Stream s, int64_t rows, int64_t C, In x, int64_t ld, float beta, float * out);

// ---- bf16.cu --------------------------------------------------------------------------------------------

void convert(Stream s, int64_t n, In x, Out y);  // REQUIRES: one of them is bf16

// ---- activation.cu: all of one type ---------------------------------------------------------------------

void gelu(Stream s, int64_t n, Gelu kind, In x, Out y);
void gelu_back(Stream s, int64_t n, Gelu kind, In x, In dy, Out dx);
void swiglu(Stream s, int64_t n, In gate, In up, Out y);
void swiglu_back(Stream s, int64_t n, In gate, In up, In dy, Out dgate, Out dup);

// ---- embedding.cu ---------------------------------------------------------------------------------------

void embedding(
    Stream          s,
    int64_t         n,
    int64_t         T,
    int64_t         C,
    const int32_t * ids,
    const float *   table,
    const float *   position,
    Out             x
);
void embedding_back(
    Stream s, int64_t n, int64_t V, int64_t C, const int32_t * ids, In dx, float beta, float * table
);
void position_back(Stream s, int64_t B, int64_t T, int64_t C, In dx, float beta, float * position);

// ---- loss.cu --------------------------------------------------------------------------------------------

// scale: one float in device memory. grad: null, or the logits' place; of their type.
void cross_entropy(
    Stream          s,
    int64_t         rows,
    int64_t         V,
    int64_t         ld,
    In              logits,
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

// The same of bf16 on tensor cores: weights and their gradients are rounded, too; sums and the softmax are F32.
// REQUIRES: the device has them, D is a multiple of kHeadStep.
constexpr int64_t kHeadStep = 8;

void attention_bf16(Stream s, const Attention & a, const uint16_t * qkv, uint16_t * o, float * lse);
void attention_bf16_back(
    Stream            s,
    const Attention & a,
    const uint16_t *  qkv,
    const uint16_t *  o,
    const float *     lse,
    const uint16_t *  d_o,
    float *           delta,
    uint16_t *        dqkv
);

}  // namespace gt::cuda
