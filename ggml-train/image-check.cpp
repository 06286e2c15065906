// What kind of picture some bytes are, whether they are whole, and which way up: see image-decode.h.
#include "ggml-train/image-decode.h"

#include <algorithm>
#include <cstring>
#include <zlib.h>

namespace gt {

static bool has(std::span<const uint8_t> bytes, size_t at, const char * text, size_t n) {
    return bytes.size() >= at + n && std::memcmp(bytes.data() + at, text, n) == 0;
}

static bool ends_with_tga(const std::string & name) {
    std::string end = name.size() < 4 ? "" : name.substr(name.size() - 4);
    std::transform(end.begin(), end.end(), end.begin(), [](unsigned char c) { return tolower(c); });
    return end == ".tga";
}

std::string
picture_kind(std::span<const uint8_t> head, const std::string & name, std::string & why) {
    struct Magic {
        const char * text;
        size_t       n;
        const char * kind;
    };
    static constexpr Magic kReadable[] = {
        {"\xff\xd8\xff", 3, "jpeg"},
        {"\x89PNG\r\n\x1a\n", 8, "png"},
        {"BM", 2, "bmp"},
        {"GIF87a", 6, "gif"},
        {"GIF89a", 6, "gif"},
        {"P5", 2, "pnm"},
        {"P6", 2, "pnm"},
        {"8BPS", 4, "psd"},
    };
    for (const Magic & magic : kReadable) {
        if (has(head, 0, magic.text, magic.n)) {
            return magic.kind;
        }
    }
    if (ends_with_tga(name) && head.size() >= 18) {
        return "tga";
    }
    const char * known = nullptr;
    if (has(head, 0, "RIFF", 4) && has(head, 8, "WEBP", 4)) {
        known = "WebP";
    } else if (has(head, 4, "ftyp", 4)) {
        known = "HEIC, AVIF or video";
    } else if (has(head, 0, "II*\0", 4) || has(head, 0, "MM\0*", 4)) {
        known = "TIFF";
    }
    why = known ? std::string(known) + " is not read; convert it to JPEG or PNG"
                : std::string("not a picture");
    return "";
}

// Calls fn(marker, payload) for each segment before the pixels. Returns where the pixels start,
// 0 if the bytes end before them.
template <typename Fn>
static size_t walk_jpeg(std::span<const uint8_t> file, Fn && fn) {
    size_t at = 2;
    while (at + 4 <= file.size() && file[at] == 0xff) {
        const int marker = file[at + 1];
        if (marker == 0xff) {  // fill byte
            ++at;
            continue;
        }
        const size_t n = size_t(file[at + 2]) << 8 | file[at + 3];
        if (n < 2 || at + 2 + n > file.size()) {
            return 0;
        }
        fn(marker, file.subspan(at + 4, n - 2));
        at += 2 + n;
        if (marker == 0xda) {
            return at;
        }
    }
    return 0;
}

static uint32_t big32(const uint8_t * p) {
    return uint32_t(p[0]) << 24 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 8 | p[3];
}

static std::string png_damage(std::span<const uint8_t> file) {
    for (size_t at = 8; at + 12 <= file.size();) {
        const uint8_t * chunk = file.data() + at;
        const size_t    n     = big32(chunk);
        if (n > file.size() - at - 12) {
            break;
        }
        if (crc32(0, chunk + 4, uInt(n + 4)) != big32(chunk + 8 + n)) {
            return format("damaged: wrong checksum at byte %zu", at);
        }
        if (has(file, at + 4, "IEND", 4)) {
            return "";
        }
        at += 12 + n;
    }
    return "truncated: the end is missing";
}

std::string find_damage(const std::string & kind, std::span<const uint8_t> file) {
    if (kind == "png") {
        return png_damage(file);
    }
    if (kind == "jpeg") {
        const size_t pixels = walk_jpeg(file, [](int, std::span<const uint8_t>) {});
        for (size_t at = file.size(); pixels != 0 && at >= pixels + 2; --at) {
            if (file[at - 2] == 0xff && file[at - 1] == 0xd9) {
                return "";
            }
        }
        return "truncated: the end is missing";
    }
    return "";
}

// TIFF inside EXIF: byte order, 42, offset of the first directory; 12 bytes per entry.
static int exif_orientation(std::span<const uint8_t> tiff) {
    const bool little = has(tiff, 0, "II", 2);
    auto       number = [&](size_t at, int n) -> uint32_t {
        uint32_t value = 0;
        for (int i = 0; i < n; ++i) {
            const size_t k = at + size_t(little ? n - 1 - i : i);
            value          = value << 8 | (k < tiff.size() ? tiff[k] : 0u);
        }
        return value;
    };
    if (tiff.size() < 8 || number(2, 2) != 42) {
        return 1;
    }
    const size_t   directory = number(4, 4);
    const uint32_t n_entries = number(directory, 2);
    for (uint32_t i = 0; i < n_entries; ++i) {
        const size_t entry = directory + 2 + 12 * size_t(i);
        if (entry + 12 > tiff.size()) {
            break;
        }
        if (number(entry, 2) == 0x0112) {
            const uint32_t value = number(entry + 8, 2);
            return value >= 1 && value <= 8 ? int(value) : 1;
        }
    }
    return 1;
}

int jpeg_orientation(std::span<const uint8_t> file) {
    int orientation = 1;
    walk_jpeg(file, [&](int marker, std::span<const uint8_t> payload) {
        if (marker == 0xe1 && has(payload, 0, "Exif\0\0", 6)) {
            orientation = exif_orientation(payload.subspan(6));
        }
    });
    return orientation;
}

}  // namespace gt
