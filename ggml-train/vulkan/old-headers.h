// ggml-train/vulkan/old-headers.h — force-included into ggml-vulkan where Vulkan's headers are older than
// 1.3.272: they lack VK_EXT_layer_settings, which ggml names but only uses with the validation layer.
#pragma once

#include <cstdint>
#include <vector>

namespace vk {

enum class LayerSettingTypeEXT : int { eBool32 = 0 };

struct LayerSettingEXT {
    const char *        layer;
    const char *        name;
    LayerSettingTypeEXT type;
    uint32_t            count;
    const void *        values;
};

struct LayerSettingsCreateInfoEXT {
    explicit LayerSettingsCreateInfoEXT(const std::vector<LayerSettingEXT> & from)
        : count(static_cast<uint32_t>(from.size())), settings(from.data()) {}
    int                     type = 1000496000;  // VK_STRUCTURE_TYPE_LAYER_SETTINGS_CREATE_INFO_EXT
    const void *            next = nullptr;
    uint32_t                count;
    const LayerSettingEXT * settings;
};

}  // namespace vk
