// Any bytes: decode_picture tells why not, or gives a picture with all its pixels.
#include "models/vision/image-decode.h"
#include "tests/models/picture-files.h"

using namespace gt;

constexpr int64_t kMaxPixels = 1 << 14;

static void check(const Bytes & file, const std::string & name = "x") {
    for (const int channels : {1, 3}) {
        Picture     out;
        std::string why;
        if (decode_picture(file, name, channels, kMaxPixels, out, why)) {
            GT_CHECK(out.channels == channels, "another number of channels");
            GT_CHECK(out.view().n_bytes() == out.pixels.size(), "another number of pixels");
            GT_CHECK(int64_t(out.width) * out.height <= kMaxPixels, "a picture that is too large");
        } else {
            GT_CHECK(!why.empty(), "no reason");
        }
    }
}

// A valid file with some bytes changed: two bytes of the input say where, one to what.
static void check_changed(Bytes file, std::span<const uint8_t> data) {
    for (size_t i = 0; i + 3 <= data.size(); i += 3) {
        file[(data[i] * 256u + data[i + 1]) % file.size()] = data[i + 2];
    }
    check(file);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t * data, size_t size) {
    const Bytes bytes(data, data + size);
    check(bytes);
    check(bytes, "x.tga");
    for (const char * magic : {"GIF89a", "8BPS", "P6 ", "BM"}) {
        Bytes file = text_bytes(magic);
        file.insert(file.end(), bytes.begin(), bytes.end());
        check(file);
    }
    if (size > 4) {  // valid checksums around any rows
        const Bytes rows(data + 4, data + size);
        check(raw_png(
            data[0], data[1], data[2] % 17, data[3] % 8, rows, Bytes(data[3] % 8 == 3 ? 12 : 0)
        ));
    }
    static const Bytes files[] = {
        encode(pattern(9, 13, 3, 1), "jpg"), encode(pattern(9, 13, 4, 1), "png"),
        encode(pattern(9, 13, 3, 1), "bmp"), cmyk_jpeg(1, 2, 3, 4)};
    for (const Bytes & file : files) {
        check_changed(file, bytes);
    }
    return 0;
}
