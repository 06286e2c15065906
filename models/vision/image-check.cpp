// Kind, completeness and orientation of a picture file; see image-decode.h.
#include "models/vision/image-decode.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <zlib.h>

namespace gt {

constexpr char kTruncated[] = "truncated: the end is missing";

static bool has(std::span<const uint8_t> bytes, size_t at, const char * text, size_t n) {
    return bytes.size() >= at + n && std::memcmp(bytes.data() + at, text, n) == 0;
}

static bool ends_with_tga(const std::string & name) {
    std::string end = name.size() < 4 ? "" : name.substr(name.size() - 4);
    std::transform(end.begin(), end.end(), end.begin(), [](unsigned char c) { return tolower(c); });
    return end == ".tga";
}

// Width, height and depth of a PNM are decimal text; stb_image overflows on long numbers.
static bool pnm_numbers_fit(std::span<const uint8_t> head) {
    size_t at = 2;
    for (int i = 0; i < 3; ++i) {
        while (at < head.size() && (std::isspace(head[at]) || head[at] == '#')) {
            const bool comment = head[at++] == '#';
            while (comment && at < head.size() && head[at] != '\n' && head[at] != '\r') {
                ++at;
            }
        }
        const size_t begin = at;
        while (at < head.size() && std::isdigit(head[at])) {
            ++at;
        }
        if (at == begin || at - begin > 7) {
            return false;
        }
    }
    return true;
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
            if (magic.kind == std::string("pnm") && !pnm_numbers_fit(head)) {
                why = "not a picture";
                return "";
            }
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
    why = known ? std::string(known) + " is not supported; convert it to JPEG or PNG"
                : std::string("not a picture");
    return "";
}

// Calls fn(marker, payload) for each segment up to the end marker and skips the pixels between them.
// False if the end marker is missing. Visits every segment that stb_image would.
template <typename Fn>
static bool walk_jpeg(std::span<const uint8_t> file, Fn && fn) {
    bool in_pixels = false;
    for (size_t at = 2; at + 2 <= file.size();) {
        const int marker = file[at + 1];
        if (file[at] != 0xff || marker == 0xff) {  // pixels, padding or a fill byte
            ++at;
            continue;
        }
        if (in_pixels && (marker == 0 || (marker >= 0xd0 && marker <= 0xd7))) {
            at += 2;  // a 255 among the pixels, or a restart marker
            continue;
        }
        if (marker == 0xd9) {
            return true;
        }
        if (at + 4 > file.size()) {
            return false;
        }
        const size_t n = size_t(file[at + 2]) << 8 | file[at + 3];
        if (n < 2 || at + 2 + n > file.size()) {
            return false;
        }
        fn(marker, file.subspan(at + 4, n - 2));
        in_pixels = marker == 0xda;
        at += 2 + n;
    }
    return false;
}

// stb_image 2.27 overruns its tables if a Huffman table has more than 256 codes.
static bool huffman_tables_fit(std::span<const uint8_t> payload) {
    while (!payload.empty()) {
        if (payload.size() < 17) {
            return false;
        }
        size_t n = 0;
        for (size_t i = 1; i <= 16; ++i) {
            n += payload[i];
        }
        if (n > 256 || payload.size() < 17 + n) {
            return false;
        }
        payload = payload.subspan(17 + n);
    }
    return true;
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
    return kTruncated;
}

std::string find_damage(const std::string & kind, std::span<const uint8_t> file, size_t n_raw) {
    if (kind == "png") {
        return png_damage(file);
    }
    if (kind == "jpeg") {
        return walk_jpeg(file, [](int, std::span<const uint8_t>) {}) ? "" : kTruncated;
    }
    // the others: at least as many bytes as the header implies
    size_t n_bytes = 0;
    if (kind == "bmp" && file.size() >= 6) {
        n_bytes = size_t(file[5]) << 24 | size_t(file[4]) << 16 | size_t(file[3]) << 8 | file[2];
    } else if (kind == "pnm") {
        n_bytes = n_raw;
    } else if (kind == "gif") {
        // the end marker, or the end of the last block: some encoders stop there
        n_bytes = file.back() != ';' && file.back() != 0 ? file.size() + 1 : 0;
    }
    return n_bytes > file.size() ? kTruncated : "";
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

std::string jpeg_size(std::span<const uint8_t> file, int & width, int & height) {
    bool fits = true;
    width = height = 0;
    walk_jpeg(file, [&](int marker, std::span<const uint8_t> payload) {
        fits = fits && (marker != 0xc4 || huffman_tables_fit(payload));
        const bool frame =
            marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
        if (frame && width == 0 && payload.size() >= 6) {
            height = payload[1] << 8 | payload[2];
            width  = payload[3] << 8 | payload[4];
        }
    });
    return !fits ? "damaged: invalid Huffman table" : "";
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
