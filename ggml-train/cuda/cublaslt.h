// ggml-train/cuda/cublaslt.h — the functions of cuBLASLt that gemm.cpp calls, loaded at run time: no header or
// library of NVIDIA's is needed to build or to start.
//
// The types repeat cuBLASLt's ABI of CUDA 12 and 13; tests/cuda/test-cublaslt.cpp compares them with cublasLt.h if it
// is installed. cuBLASLt's matrices are column-major.
#pragma once

#include "ggml-train/cuda/kernels.h"

namespace gt::cuda {

struct LtHandle;      // opaque, cublasLtHandle_t points to it
struct LtProduct;     // opaque, cublasLtMatmulDesc_t
struct LtLayout;      // opaque, cublasLtMatrixLayout_t
struct LtPreference;  // opaque, cublasLtMatmulPreference_t
enum LtStatus : int { kLtSuccess = 0, kLtInvalidValue = 7, kLtNotSupported = 15 };
enum LtType : int { kLtF32 = 0, kLtBf16 = 14 };
enum LtCompute : int { kLtSumF32 = 68, kLtSumF32FromTf32 = 77 };
enum LtProductAttribute : int {
    kLtTransposeA  = 3,  // int32_t
    kLtTransposeB  = 4,
    kLtEpilogue    = 7,  // LtEpilogue
    kLtBiasPointer = 8,  // of the sums of B, too
    kLtAuxPointer  = 11,
    kLtAuxLd       = 12  // int64_t, a multiple of kLtAuxStep
};
constexpr int64_t kLtAuxStep = 8;
enum LtEpilogue : uint32_t {
    kLtPlain       = 1,
    kLtBias        = 4,
    kLtGelu        = 32 | 128,  // of the sum, which goes to Aux
    kLtGeluAndBias = kLtGelu | kLtBias,
    kLtGeluBack    = 64 | 128,  // times the slope at Aux
    kLtSumsOfB     = 512        // over K, to the bias
};
enum LtPreferenceAttribute : int {
    kLtMostWorkspace = 1,  // uint64_t
    kLtAlignmentA    = 5,  // uint32_t, bytes; of B, C and D: the next three
};
struct LtAlgorithm {
    uint64_t data[8];
};
struct LtChoice {
    LtAlgorithm algorithm;
    size_t      workspace_bytes;
    LtStatus    status;
    float       waves;
    int         reserved[4];
};

// X(result, name, arguments)
#define GT_CUBLASLT_CALLS(X)                                                                       \
    X(const char *, cublasLtGetStatusString, (LtStatus))                                           \
    X(LtStatus, cublasLtCreate, (LtHandle **) )                                                    \
    X(LtStatus, cublasLtMatmulDescCreate, (LtProduct **, LtCompute, LtType scale))                 \
    X(LtStatus, cublasLtMatmulDescDestroy, (LtProduct *) )                                         \
    X(LtStatus, cublasLtMatmulDescSetAttribute,                                                    \
      (LtProduct *, LtProductAttribute, const void *, size_t bytes))                               \
    X(LtStatus, cublasLtMatrixLayoutCreate,                                                        \
      (LtLayout **, LtType, uint64_t rows, uint64_t columns, int64_t ld))                          \
    X(LtStatus, cublasLtMatrixLayoutDestroy, (LtLayout *) )                                        \
    X(LtStatus, cublasLtMatmulPreferenceCreate, (LtPreference **) )                                \
    X(LtStatus, cublasLtMatmulPreferenceDestroy, (LtPreference *) )                                \
    X(LtStatus, cublasLtMatmulPreferenceSetAttribute,                                              \
      (LtPreference *, LtPreferenceAttribute, const void *, size_t bytes))                         \
    X(LtStatus, cublasLtMatmulAlgoGetHeuristic,                                                    \
      (LtHandle *, LtProduct *, LtLayout * A, LtLayout * B, LtLayout * C, LtLayout * D,            \
       LtPreference *, int n_asked, LtChoice *, int * n))                                          \
    X(LtStatus, cublasLtMatmul,                                                                    \
      (LtHandle *, LtProduct *, const void * alpha, const void * A, LtLayout *, const void * B,    \
       LtLayout *, const void * beta, const void * C, LtLayout *, void * D, LtLayout *,            \
       const LtAlgorithm *, void * workspace, size_t workspace_bytes, Stream))

struct CublasLt {
#define GT_POINTER(result, name, arguments) result(*name) arguments = nullptr;
    GT_CUBLASLT_CALLS(GT_POINTER)
#undef GT_POINTER

    // Throws Error with the library's own message unless `result` is a success.
    void check(LtStatus result, const char * what) const;
};

// Loads GT_CUBLASLT_LIB, else libcublasLt.so of CUDA 13 or 12. Throws Error with what is missing and what to do.
// The library is never unloaded. The emulator has a stand-in (tests/cuda/emu-cublaslt.cpp).
CublasLt load_cublaslt();

}  // namespace gt::cuda
