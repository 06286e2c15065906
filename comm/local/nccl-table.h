// comm/local/nccl-table.h — the functions of NCCL and the CUDA runtime that local-nccl.cpp calls, loaded
// at run time: no header or library of NVIDIA is needed to build or to start.
//
// The types repeat NCCL's ABI (stable since 2.0); tests/comm/test-local.cpp compares them with nccl.h
// if it is installed.
#pragma once

#include "ggml-train/base/base.h"

namespace gt {

struct NcclComm;    // opaque, ncclComm_t
struct CudaStream;  // opaque, cudaStream_t
struct NcclId {
    char bytes[128];
};
enum NcclResult : int { kNcclSuccess = 0, kNcclInProgress = 7 };
enum NcclType : int { kNcclUint8 = 1, kNcclFloat32 = 7 };
enum NcclOp : int { kNcclSum = 0 };
enum CudaResult : int { kCudaSuccess = 0, kCudaNotReady = 600 };

// X(result, name, arguments)
#define GT_NCCL_CALLS(X)                                                                           \
    X(const char *, ncclGetErrorString, (NcclResult))                                              \
    X(NcclResult, ncclGetUniqueId, (NcclId *) )                                                    \
    X(NcclResult, ncclCommInitRank, (NcclComm **, int n_ranks, NcclId, int rank))                  \
    X(NcclResult, ncclCommDestroy, (NcclComm *) )                                                  \
    X(NcclResult, ncclCommAbort, (NcclComm *) )                                                    \
    X(NcclResult, ncclCommGetAsyncError, (NcclComm *, NcclResult *) )                              \
    X(NcclResult, ncclGroupStart, ())                                                              \
    X(NcclResult, ncclGroupEnd, ())                                                                \
    X(NcclResult, ncclReduceScatter,                                                               \
      (const void *, void *, size_t, NcclType, NcclOp, NcclComm *, CudaStream *) )                 \
    X(NcclResult, ncclAllReduce,                                                                   \
      (const void *, void *, size_t, NcclType, NcclOp, NcclComm *, CudaStream *) )                 \
    X(NcclResult, ncclAllGather,                                                                   \
      (const void *, void *, size_t, NcclType, NcclComm *, CudaStream *) )                         \
    X(NcclResult, ncclReduce,                                                                      \
      (const void *, void *, size_t, NcclType, NcclOp, int root, NcclComm *, CudaStream *) )       \
    X(NcclResult, ncclBroadcast,                                                                   \
      (const void *, void *, size_t, NcclType, int root, NcclComm *, CudaStream *) )
#define GT_CUDART_CALLS(X)                                                                         \
    X(const char *, cudaGetErrorString, (CudaResult))                                              \
    X(CudaResult, cudaGetDeviceCount, (int *) )                                                    \
    X(CudaResult, cudaSetDevice, (int) )                                                           \
    X(CudaResult, cudaStreamCreateWithFlags, (CudaStream **, unsigned flags))                      \
    X(CudaResult, cudaStreamDestroy, (CudaStream *) )                                              \
    X(CudaResult, cudaStreamQuery, (CudaStream *) )

struct NcclTable {
#define GT_POINTER(result, name, arguments) result(*name) arguments = nullptr;
    GT_NCCL_CALLS(GT_POINTER)
    GT_CUDART_CALLS(GT_POINTER)
#undef GT_POINTER

    // Throw Error with the library's own message unless `result` is a success.
    void check(NcclResult result, const char * what) const;
    void check(CudaResult result, const char * what) const;
};

// Loads NCCL (`library`, else GT_NCCL_LIB, else libnccl.so.2) and the CUDA runtime (GT_CUDART_LIB, else
// the one inside NCCL, else libcudart.so). Throws Error with what is missing and what to do. The
// libraries are never unloaded.
NcclTable load_nccl(const std::string & library = {});

}  // namespace gt
