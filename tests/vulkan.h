// tests/vulkan.h — whether tests can use a Vulkan device, be it one that computes on the CPU (lavapipe).
#pragma once

#include "ggml-train/device/registry.h"

#include <cstdio>
#include <cstdlib>

namespace gt {

// If there is none, says why. With GT_REQUIRE_VULKAN that is an Error.
inline bool has_vulkan() {
    ::setenv("GGML_VK_VISIBLE_DEVICES", "0", 0);  // ggml leaves out devices that are CPUs
    ::setenv("MESA_SHADER_CACHE_DIR", GT_SHADER_CACHE, 0);
    try {
        find_device({.backend = "vulkan"});
        return true;
    } catch (const Error & error) {
        if (std::getenv("GT_REQUIRE_VULKAN")) {
            throw;
        }
        std::printf("not tested on Vulkan: %s\n", error.what());
        return false;
    }
}

}  // namespace gt
