// Which GPUs of a machine are told to a user of the CPU.
#include "tests/catch.h"
#include "tests/scratch.h"
#include "tools/train/gpu-hint.h"

using namespace gt;

TEST_CASE("a_gpu_without_support_is_told_once_and_only_on_the_cpu") {
    const Scratch     root;
    const std::string path = root.path();
    CHECK(gpu_hint("cpu", path).empty());
    write_text(path + "/dev/dri/card0", "");
    CHECK(gpu_hint("cpu", path).empty());  // a screen without a GPU
    write_text(path + "/dev/dri/renderD128", "");
    CHECK_THAT(gpu_hint("cpu", path), ContainsSubstring("has a GPU (/dev/dri/renderD128)"));
    write_text(path + "/dev/nvidia0", "");
    CHECK_THAT(gpu_hint("cpu", path), ContainsSubstring("has an NVIDIA GPU (/dev/nvidia0)"));
    CHECK(gpu_hint("cuda:0", path).empty());
}
