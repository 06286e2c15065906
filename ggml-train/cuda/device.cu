#include "ggml-train/cuda/device.cuh"
#include "ggml-train/cuda/kernels.h"

namespace gt::cuda {

int n_devices(const char ** why) {
    int               n      = 0;  // left untouched where there is no driver
    const cudaError_t result = cudaGetDeviceCount(&n);
    *why = result != cudaSuccess ? cudaGetErrorString(result) : n == 0 ? "no GPU" : "";
    return result == cudaSuccess ? n : 0;
}

void set_device(int device) {
    check(cudaSetDevice(device), "device");
}

int current_device() {
    int device = 0;
    check(cudaGetDevice(&device), "device");
    return device;
}

bool has_tensor_cores() {
    int major = 0;
    check(
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, current_device()),
        "compute capability"
    );
    return major >= 8;
}

void * alloc(size_t bytes) {
    void * p = nullptr;
    check(cudaMalloc(&p, bytes), "memory");
    return p;
}

void free(void * p) {
    check(cudaFree(p), "free");
}

void copy_in(Stream s, void * device, const void * host, size_t bytes) {
    check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, s), "copy to the device");
}

void copy_out(Stream s, void * host, const void * device, size_t bytes) {
    check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, s), "copy to the host");
}

void set_zero(Stream s, void * device, size_t bytes) {
    check(cudaMemsetAsync(device, 0, bytes, s), "clear");
}

void synchronize(Stream s) {
    check(cudaStreamSynchronize(s), "synchronize");
}

}  // namespace gt::cuda
