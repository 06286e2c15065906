// Any bytes: parse_safetensors throws an Error that names the file, or its tensors cover the values.
#include "models/convert/safetensors.h"

#include <cstring>

using namespace gt;

static void check(std::span<const uint8_t> file) {
    try {
        uint64_t n_header = 0, n_bytes = sizeof(n_header);
        for (const auto & [name, tensor] : parse_safetensors(file, "f").tensors) {
            int64_t n = tensor.type == "F32" ? 4 : 2;
            for (const int64_t side : tensor.shape) {
                n *= side;
            }
            GT_CHECK(tensor.end <= file.size(), "values outside of the file");
            GT_CHECK(tensor.end - tensor.begin == static_cast<uint64_t>(n), "another size");
            n_bytes += tensor.end - tensor.begin;
        }
        std::memcpy(&n_header, file.data(), sizeof(n_header));
        GT_CHECK(n_bytes + n_header == file.size(), "bytes of no tensor, or of two");
    } catch (const Error & error) {
        GT_CHECK(error.what()[0] == 'f', "a message that does not name the file");
    }
}

// A file with this header and n bytes of values.
static void check_header(const std::string & header, size_t n) {
    Bytes          file(sizeof(uint64_t));
    const uint64_t length = header.size();
    std::memcpy(file.data(), &length, sizeof(length));
    file.insert(file.end(), header.begin(), header.end());
    file.resize(file.size() + n, 0x7f);
    check(file);
}

// Entries that are valid but for a few numbers.
static std::string entries(const uint8_t * data, size_t size) {
    const char * types[] = {"F32", "F16", "BF16", "I8"};
    std::string  text;
    for (size_t i = 0; i + 5 <= size; i += 5) {
        const uint8_t * d = data + i;
        text += format(
            "%c\"%c\":{\"dtype\":\"%s\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]}",
            text.empty() ? '{' : ',', 'a' + static_cast<char>(i / 5 % 26), types[d[0] % 4],
            d[0] / 16, d[1], d[2] * 4, (d[2] + d[3] - d[4] % 2) * 4
        );
    }
    return text + "}";
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    check({data, size});
    check_header({data, data + size}, 64);
    check_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[" + std::string(data, data + size), 64);
    if (size > 0) {
        check_header(entries(data + 1, size - 1), data[0] * 4u);
    }
    return 0;
}
