#include "tools/train/gpu-hint.h"

#include <filesystem>

namespace gt {

namespace fs = std::filesystem;

// The file that a driver has made; empty: there is none.
static std::string find_gpu(const std::string & root) {
    for (const char * path : {"/dev/nvidia0", "/proc/driver/nvidia/version"}) {
        if (fs::exists(root + path)) {
            return path;
        }
    }
    std::error_code none;
    for (const auto & entry : fs::directory_iterator(root + "/dev/dri", none)) {
        if (entry.path().filename().string().starts_with("renderD")) {
            return "/dev/dri/" + entry.path().filename().string();
        }
    }
    return "";
}

std::string gpu_hint(const std::string & device, const std::string & root) {
    const std::string found = device == "cpu" ? find_gpu(root) : "";
    if (found.empty()) {
        return "";
    }
    const bool nvidia = found.find("nvidia") != std::string::npos;
    return "note: this machine has " + std::string(nvidia ? "an NVIDIA GPU" : "a GPU") + " (" +
           found +
           ") that this program can't use; tools/README.md, \"Use GPUs\", names the build that "
           "can\n";
}

}  // namespace gt
