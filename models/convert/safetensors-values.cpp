#include "models/convert/safetensors.h"

#include <bit>
#include <cstring>
#include <ggml.h>

namespace gt {

std::vector<float> read_values(std::span<const uint8_t> file, const SafeTensor & tensor) {
    const int64_t      n    = tensor.n_elements();
    const uint8_t *    from = file.data() + tensor.begin;
    std::vector<float> values(static_cast<size_t>(n));
    if (n == 0) {
        return values;
    }
    if (tensor.type == "F32") {
        std::memcpy(values.data(), from, values.size() * sizeof(float));
        return values;
    }
    std::vector<uint16_t> halves(values.size());  // aligned
    std::memcpy(halves.data(), from, halves.size() * sizeof(uint16_t));
    if (tensor.type == "F16") {
        ggml_fp16_to_fp32_row(halves.data(), values.data(), n);
    } else {
        for (size_t i = 0; i < halves.size(); ++i) {
            values[i] = std::bit_cast<float>(static_cast<uint32_t>(halves[i]) << 16);
        }
    }
    return values;
}

}  // namespace gt
