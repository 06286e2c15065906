// selftest with our CUDA kernels and without ggml's backend: starts on machines without driver or GPU.
#include "tools/cli/flags.h"
#include "tools/verbs.h"

int main(int argc, char ** argv) {
    return gt::run_tool("selftest", [&] {
        gt::Flags flags("selftest", "checks GPU results against the CPU", "--cuda [flags]");
        return gt::selftest_main(flags, argc, argv);
    });
}
