// selftest — checks this machine's devices against the CPU, before they are used in a run.
//
//   selftest --cuda                  every kernel on every GPU, then NCCL between them
//   selftest --cuda --only demo      only what hosts must agree on bit for bit
//   selftest --device vulkan:0       one training step on any device, with its time
//
// Run it once after installing a driver, and once under NVIDIA's
// `compute-sanitizer --tool memcheck selftest --cuda` (and racecheck, initcheck, synccheck) if a
// card misbehaves. Read next: tools/selftest/selftest-cuda.h.
#include "ggml-train/device/registry.h"
#include "tools/cli/flags.h"
#include "tools/selftest/selftest-cuda.h"
#include "tools/selftest/selftest-step.h"
#include "tools/verbs.h"

#include <algorithm>
#include <cstdio>

using namespace gt;

// Prints what is wrong, and one line for the device. Returns how many comparisons failed.
static int test_gpu(int device, const SelftestOptions & options) {
    cuda::set_device(device);
    int    n = 0, n_exact = 0, n_bad = 0;
    double worst = 0.0;
    for (const SelftestRow & row : selftest_cuda(options)) {
        ++n;
        n_exact += row.exact ? 1 : 0;
        worst = row.ok ? std::max(worst, row.error) : worst;
        if (!row.ok) {
            ++n_bad;
            std::printf("cuda:%d: WRONG: %s: error %g\n", device, row.name.c_str(), row.error);
        }
    }
    std::printf(
        "cuda:%d: %d comparisons, %d of them bit for bit, largest error of the others %.1e: %s\n",
        device, n, n_exact, worst, n_bad == 0 ? "all right" : "DO NOT USE"
    );
    return n_bad;
}

// One training step there; returns whether it equals the CPU's within rounding.
static bool test_step(const std::string & device) {
    const StepCheck check = selftest_step(device);
    std::printf(
        "%s: %s: a training step: loss %.6f (CPU %.6f), largest error of a gradient %.1e; %.2f s, "
        "then %.4f s (%.0f tokens/s): %s\n",
        device.c_str(), check.device.c_str(), check.loss, check.cpu_loss, check.error,
        check.first_s, check.step_s, check.tokens_per_s, check.ok() ? "all right" : "DO NOT USE"
    );
    return check.ok();
}

// Every kernel on every GPU, and NCCL. Returns how many comparisons failed.
static int test_cuda(const SelftestOptions & options) {
    const char * why = "";
    const int    n   = cuda::n_devices(&why);
    if (n == 0) {
        throw Error(format("no GPU to test: %s", why));
    }
    int n_bad = 0;
    for (int device = 0; device < n; ++device) {
        n_bad += test_gpu(device, options);
        if (find_backend("cuda")) {
            n_bad += test_step(format("cuda:%d", device)) ? 0 : 1;
        }
    }
    if (n_bad == 0) {
        std::printf("%s\n", selftest_nccl(n).c_str());
    }
    return n_bad;
}

int gt::selftest_main(Flags & flags, int argc, char ** argv) {
    bool            cuda = false;
    std::string     device;
    SelftestOptions options;
    flags("cuda", cuda, "test our kernels on every GPU, and NCCL between them");
    flags("only", options.only, "tests whose name contains this");
    flags("small", options.small, "few and small shapes");
    flags("device", device, "a training step on this device, such as vulkan:0");
    flags.parse(argc, argv);
    if (!cuda && device.empty()) {
        throw UsageError("nothing to test; give --cuda or --device");
    }
    int n_bad = cuda ? test_cuda(options) : 0;
    n_bad += device.empty() || test_step(device) ? 0 : 1;
    if (n_bad > 0) {
        throw Error(
            format("%d comparisons failed; update the driver, and report the lines above", n_bad)
        );
    }
    return 0;
}
