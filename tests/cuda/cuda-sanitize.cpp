// cuda-sanitize [once] — the small tables of every kernel under the emulator, in three orders of threads
// or in a random one, for builds whose kernels are instrumented by a sanitizer. Exit 1 if a result is
// wrong; the sanitizer has its own exit code.
#include "cuda-emu.h"
#include "ggml-train/base/base.h"
#include "tools/selftest/selftest-cuda.h"

#include <cstdio>

int main(int argc, char **) {
    int n_bad = 0;
    for (const auto order : {cuda_emu::Order::random, cuda_emu::Order::up, cuda_emu::Order::down}) {
        cuda_emu::config.order = order;
        for (const gt::SelftestRow & row : gt::selftest_cuda({.small = true})) {
            if (!row.ok) {
                std::printf("%s: error %g\n", row.name.c_str(), row.error);
                ++n_bad;
            }
        }
        if (argc > 1) {
            break;  // TSan is slow, and finds races in any order
        }
    }
    return n_bad == 0 ? 0 : 1;
}
