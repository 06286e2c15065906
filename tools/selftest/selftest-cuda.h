// tools/selftest/selftest-cuda.h — tables of cases that compare every CUDA kernel with its CPU form.
//
// The same tables run on a GPU (selftest --cuda), under the emulator (plain, asan, tsan) and on nvcc's PTX
// (tests/cuda/test-cuda-kernels.cpp). Shapes are not multiples of blocks, tiles or warps.
// selftest-cuda.cpp, selftest-attention.cpp, selftest-gemm.cpp: forward and backward, within rounding.
// selftest-cuda-demo.cpp, -muon.cpp and -optim.cpp: the optimizer, bit for bit, because hosts must agree.
#pragma once

#include "ggml-train/base/base.h"
#include "ggml-train/cuda/kernels.h"

namespace gt {

// One kernel on one shape.
struct SelftestRow {
    std::string name;
    bool        exact = false;  // bits must be equal
    double      error = 0.0;    // largest difference, relative to the largest value
    bool        ok    = false;
};

struct SelftestOptions {
    bool        small = false;  // few and small shapes, for slow machines such as TSan
    std::string only;           // only cases whose name contains this
};

// Throws Error if the device cannot be used at all.
std::vector<SelftestRow> selftest_cuda(const SelftestOptions & options);

// Tests NCCL between the first n_devices GPUs; returns the result in one line (check-ranks.h).
std::string selftest_nccl(int n_devices);

// ---- used by the tables -------------------------------------------------------------------------------

// An array in device memory.
template <class T>
class DeviceArray {
public:
    explicit DeviceArray(size_t n) : n_(n), data_(static_cast<T *>(cuda::alloc(n * sizeof(T)))) {}
    explicit DeviceArray(const std::vector<T> & host) : DeviceArray(host.size()) {
        cuda::copy_in(nullptr, data_, host.data(), n_ * sizeof(T));
        cuda::synchronize(nullptr);
    }
    ~DeviceArray() { cuda::free(data_); }
    DeviceArray(const DeviceArray &)             = delete;
    DeviceArray & operator=(const DeviceArray &) = delete;

    operator T *() const { return data_; }        // NOLINT: as an argument of a kernel
    operator cuda::Out() const { return data_; }  // NOLINT
    operator cuda::In() const { return data_; }   // NOLINT

    std::vector<T> get() const {
        std::vector<T> host(n_);
        cuda::copy_out(nullptr, host.data(), data_, n_ * sizeof(T));
        cuda::synchronize(nullptr);
        return host;
    }

private:
    size_t n_;
    T *    data_;
};

// Values that bf16 has, in device memory in both types.
struct BothTypes {
    explicit BothTypes(const std::vector<float> & x);
    cuda::In as(bool half) const { return half ? cuda::In(bf16) : cuda::In(f32); }

    std::vector<float>    values;
    DeviceArray<float>    f32;
    DeviceArray<uint16_t> bf16;
};

// Results of n values in both types.
struct BothResults {
    explicit BothResults(size_t n) : f32(n), bf16(n) {}
    cuda::Out as(bool half) const { return half ? cuda::Out(bf16) : cuda::Out(f32); }

    DeviceArray<float>    f32;
    DeviceArray<uint16_t> bf16;
};

class SelftestTable {
public:
    explicit SelftestTable(const SelftestOptions & options) : options_(options) {}

    // False if this case is not selected.
    bool wants(const std::string & name) const {
        return name.find(options_.only) != std::string::npos;
    }
    bool small() const { return options_.small; }

    // Each difference may be more[i], and `limit` times the largest value beyond that.
    void within(
        const std::string &         name,
        const std::vector<float> &  got,
        const std::vector<float> &  want,
        double                      limit,
        const std::vector<double> & more
    );
    void close(
        const std::string &        name,
        const std::vector<float> & got,
        const std::vector<float> & want,
        double                     limit
    ) {
        within(name, got, want, limit, {});
    }
    template <class T>
    void same(const std::string & name, const std::vector<T> & got, const std::vector<T> & want) {
        add_same(name, got.size() == want.size(), got.data(), want.data(), want.size() * sizeof(T));
    }

    // A kernel gave the same results as floats and as bf16.
    void rounds(const std::string & name, const BothResults & results);

    std::vector<SelftestRow> rows;

private:
    void
    add_same(const std::string & name, bool sizes, const void * got, const void * want, size_t n);

    SelftestOptions options_;
};

// Values that look like activations: about normal, a few large ones; a pure function of seed and i.
std::vector<float> selftest_values(int64_t n, uint64_t seed, float scale = 1.0f);

// To the nearest bf16, ties to even.
std::vector<uint16_t> selftest_rounded(const std::vector<float> & x);
std::vector<float>    selftest_widened(const std::vector<uint16_t> & x);

void selftest_cuda_layers(SelftestTable & table);
void selftest_cuda_attention(SelftestTable & table);
void selftest_cuda_gemm(SelftestTable & table);
void selftest_cuda_demo(SelftestTable & table);
void selftest_cuda_muon(SelftestTable & table);
void selftest_cuda_optim(SelftestTable & table);

}  // namespace gt
