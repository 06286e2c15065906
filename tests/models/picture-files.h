// tests/models/picture-files.h — builds valid and damaged picture files for tests.
#pragma once

#include "models/vision/image-data.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stb_image_write.h>
#include <unistd.h>
#include <zlib.h>

namespace gt {

// A folder that is removed at the end of the test.
struct TempFolder {
    std::filesystem::path path;

    TempFolder() {
        static int n = 0;
        path = std::filesystem::temp_directory_path() / format("gt-images-%d-%d", getpid(), n++);
        std::filesystem::create_directories(path);
    }
    ~TempFolder() { std::filesystem::remove_all(path); }

    std::string write(const std::string & name, const Bytes & bytes) const {
        const auto file = path / name;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file, std::ios::binary)
            .write(reinterpret_cast<const char *>(bytes.data()), std::streamsize(bytes.size()));
        return file.string();
    }
    std::string str() const { return path.string(); }
};

inline bool has_text(const std::string & text, const std::string & part) {
    return text.find(part) != std::string::npos;
}

// True if fn() throws an Error whose text contains `part`.
template <typename Fn>
bool error_has(Fn && fn, const std::string & part) {
    try {
        fn();
    } catch (const Error & error) {
        if (!has_text(error.what(), part)) {
            std::fprintf(stderr, "said instead: %s\n", error.what());
        }
        return has_text(error.what(), part);
    }
    return false;
}

inline Bytes text_bytes(const std::string & text) {
    return Bytes(text.begin(), text.end());
}

inline Picture flat(int width, int height, std::vector<uint8_t> pixel) {
    Picture picture{width, height, int(pixel.size()), {}};
    for (int i = 0; i < width * height; ++i) {
        picture.pixels.insert(picture.pixels.end(), pixel.begin(), pixel.end());
    }
    return picture;
}

// A smooth pattern that depends on `seed`.
inline Picture pattern(int width, int height, int channels, int seed) {
    Picture picture{width, height, channels, {}};
    for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
            for (int c = 0; c < channels; ++c) {
                const int value = (x * (3 + seed % 5) + y * (5 + c) + seed * 37) % 511;
                picture.pixels.push_back(uint8_t(value > 255 ? 510 - value : value));
            }
        }
    }
    return picture;
}

// Encodes as "png", "bmp", "jpg" or "tga" with stb_image_write.
inline Bytes encode(const Picture & p, const std::string & kind) {
    Bytes bytes;
    auto  add = [](void * to, void * data, int n) {
        const auto * from = static_cast<const uint8_t *>(data);
        static_cast<Bytes *>(to)->insert(static_cast<Bytes *>(to)->end(), from, from + n);
    };
    const void * d = p.pixels.data();
    if (kind == "png") {
        stbi_write_png_to_func(add, &bytes, p.width, p.height, p.channels, d, 0);
    } else if (kind == "bmp") {
        stbi_write_bmp_to_func(add, &bytes, p.width, p.height, p.channels, d);
    } else if (kind == "tga") {
        stbi_write_tga_to_func(add, &bytes, p.width, p.height, p.channels, d);
    } else {
        stbi_write_jpg_to_func(add, &bytes, p.width, p.height, p.channels, d, 95);
    }
    return bytes;
}

inline void add32(Bytes & to, uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) {
        to.push_back(uint8_t(value >> shift));
    }
}

inline void add_chunk(Bytes & png, const char * type, const Bytes & data) {
    Bytes body(type, type + 4);
    body.insert(body.end(), data.begin(), data.end());
    add32(png, uint32_t(data.size()));
    png.insert(png.end(), body.begin(), body.end());
    add32(png, uint32_t(crc32(0, body.data(), uInt(body.size()))));
}

// A PNG of any form: compresses the filtered rows (each preceded by a 0).
inline Bytes raw_png(
    uint32_t w, uint32_t h, int depth, int colour, const Bytes & rows, const Bytes & palette = {}
) {
    Bytes png = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    Bytes head;
    add32(head, w);
    add32(head, h);
    for (const int byte : {depth, colour, 0, 0, 0}) {
        head.push_back(uint8_t(byte));
    }
    add_chunk(png, "IHDR", head);
    if (!palette.empty()) {
        add_chunk(png, "PLTE", palette);
    }
    uLongf n = compressBound(uLong(rows.size()));
    Bytes  packed(n);
    compress2(packed.data(), &n, rows.data(), uLong(rows.size()), 1);
    packed.resize(n);
    add_chunk(png, "IDAT", packed);
    add_chunk(png, "IEND", {});
    return png;
}

// An 8 x 8 CMYK JPEG of one color, stored inverted as Adobe does.
inline Bytes cmyk_jpeg(uint8_t c, uint8_t m, uint8_t y, uint8_t k) {
    Bytes jpeg    = {0xff, 0xd8};
    auto  segment = [&](uint8_t marker, const Bytes & body) {
        const size_t n = body.size() + 2;
        jpeg.insert(jpeg.end(), {0xff, marker, uint8_t(n >> 8), uint8_t(n)});
        jpeg.insert(jpeg.end(), body.begin(), body.end());
    };
    segment(0xee, {'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 0});
    Bytes quant(65, 8);  // the DC term has a step of one gray value
    quant[0] = 0;
    segment(0xdb, quant);
    segment(0xc0, {8, 0, 8, 0, 8, 4, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0, 4, 0x11, 0});
    Bytes dc = {0x00, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};  // nine codes of 4 bits
    for (uint8_t i = 0; i < 9; ++i) {
        dc.push_back(i);
    }
    segment(0xc4, dc);
    segment(0xc4, {0x10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});  // "0": end of block
    segment(0xda, {4, 1, 0x00, 2, 0x00, 3, 0x00, 4, 0x00, 0, 63, 0});
    std::string bits;
    auto        put = [&](int value, int n) {
        for (int i = n - 1; i >= 0; --i) {
            bits += (value >> i & 1) != 0 ? '1' : '0';
        }
    };
    for (const int ink : {c, m, y, k}) {
        const int value = ink - 128;
        int       size  = 0;
        while (std::abs(value) >> size != 0) {
            ++size;
        }
        put(size, 4);
        put(value < 0 ? value + (1 << size) - 1 : value, size);
        put(0, 1);
    }
    bits.resize((bits.size() + 7) / 8 * 8, '1');
    for (size_t i = 0; i < bits.size(); i += 8) {
        jpeg.push_back(uint8_t(std::stoi(bits.substr(i, 8), nullptr, 2)));
        if (jpeg.back() == 0xff) {
            jpeg.push_back(0);
        }
    }
    jpeg.insert(jpeg.end(), {0xff, 0xd9});
    return jpeg;
}

// A JPEG with an EXIF orientation.
inline Bytes with_orientation(Bytes jpeg, uint8_t orientation) {
    const Bytes note = {0xff, 0xe1, 0, 34, 'E', 'x',         'i', 'f', 0, 0,    'M', 'M',
                        0,    42,   0, 0,  0,   8,           0,   1,   1, 0x12, 0,   3,
                        0,    0,    0, 1,  0,   orientation, 0,   0,   0, 0,    0,   0};
    jpeg.insert(jpeg.begin() + 2, note.begin(), note.end());
    return jpeg;
}

// An IDX file of bytes.
inline Bytes idx_bytes(const std::vector<uint32_t> & sizes, const Bytes & data) {
    Bytes bytes = {0, 0, 8, uint8_t(sizes.size())};
    for (const uint32_t size : sizes) {
        add32(bytes, size);
    }
    bytes.insert(bytes.end(), data.begin(), data.end());
    return bytes;
}

inline void write_gz(const std::string & path, const Bytes & bytes) {
    gzFile file = gzopen(path.c_str(), "wb");
    gzwrite(file, bytes.data(), unsigned(bytes.size()));
    gzclose(file);
}

}  // namespace gt
