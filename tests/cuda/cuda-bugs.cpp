// cuda-bugs BUG up|down|random [FILE.ptx] — runs cuda-bugs.cuh with one of its bugs, under the
// emulator or in the PTX interpreter. Exit 0: the result is right and no error was reported; 3: it is
// wrong. Run by test-cuda-bugs.cpp, in a plain, an asan and a tsan build.
#include "tests/cuda/cuda-bugs.cuh"

#include "ggml-train/cuda/kernels.h"
#include "ptx-run.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

using namespace gt;

static int run(int bug) {
    constexpr int      kBlocks = 3, kN = kBlocks * cuda::kBugThreads;
    constexpr int      kZeros = 20'000;  // more than a thread may read
    std::vector<float> x(kN), out(kN, -1.0f), want(kN);
    for (int i = 0; i < kN; ++i) {
        x[i] = static_cast<float>(random_bits(1, i) % 1000);
    }
    for (int i = 0; i < kN; ++i) {
        const float * tile = x.data() + i / cuda::kBugThreads * cuda::kBugThreads;
        want[i]            = tile[cuda::kBugThreads - 1 - i % cuda::kBugThreads] +
                  *std::max_element(tile, tile + cuda::kBugThreads) + 1024.0f;
    }
    auto * dev_x   = static_cast<float *>(cuda::alloc(kN * sizeof(float)));
    auto * dev_out = static_cast<float *>(cuda::alloc(kN * sizeof(float)));
    auto * count   = static_cast<int *>(cuda::alloc(sizeof(int)));
    auto * zeros   = static_cast<float *>(cuda::alloc(kZeros * sizeof(float)));
    cuda::set_zero(nullptr, zeros, kZeros * sizeof(float));
    int n = 0;
    cuda::copy_in(nullptr, dev_x, x.data(), kN * sizeof(float));
    cuda::copy_in(nullptr, count, &n, sizeof n);
    cuda::synchronize(nullptr);
    cuda::launch(
        cuda::bugs_kernel, kBlocks, cuda::kBugThreads, 0, nullptr, bug, dev_x, dev_out, count
    );
    cuda::launch(cuda::matrix_bugs_kernel, kBlocks, cuda::kBugThreads, 0, nullptr, bug, dev_out);
    cuda::launch(
        cuda::sum_bugs_kernel, kBlocks, cuda::kBugThreads, 0, nullptr, bug, kZeros, zeros, dev_out
    );
    cuda::copy_out(nullptr, out.data(), dev_out, kN * sizeof(float));
    cuda::copy_out(nullptr, &n, count, sizeof n);
    if (bug != 5) {
        cuda::synchronize(nullptr);
    }
    if (bug == 4) {
        out[0] = dev_out[0];  // the host dereferences a device pointer
    }
    const bool right = out == want && n == kBlocks;
    cuda::synchronize(nullptr);
    cuda::free(dev_x);
    cuda::free(dev_out);
    cuda::free(count);
    cuda::free(zeros);
    return right ? 0 : 3;
}

int main(int argc, char ** argv) {
    if (argc < 3) {
        return 2;
    }
    const std::string order = argv[2];
    cuda_emu::config.order  = order == "up"     ? cuda_emu::Order::up
                              : order == "down" ? cuda_emu::Order::down
                                                : cuda_emu::Order::random;
    try {
        std::unique_ptr<ptx::Scope> scope;
        if (argc > 3) {
            scope = std::make_unique<ptx::Scope>(std::vector<std::string>{argv[3]});
        }
        return run(std::atoi(argv[1]));
    } catch (const std::exception & e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 4;
    }
}
