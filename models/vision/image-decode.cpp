// The only file that includes stb_image; see image-decode.h.
#include "models/vision/image-decode.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

// A small file can claim any size; no allocation may exceed what max_pixels allows.
static thread_local size_t t_max_block = std::numeric_limits<size_t>::max();

static void * bounded_malloc(size_t n) {
    return n <= t_max_block ? std::malloc(n) : nullptr;
}

static void * bounded_realloc(void * p, size_t n) {
    return n <= t_max_block ? std::realloc(p, n) : nullptr;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wsign-compare"
#define STBI_MALLOC(n) bounded_malloc(n)
#define STBI_REALLOC(p, n) bounded_realloc(p, n)
#define STBI_FREE(p) std::free(p)
#define STBI_NO_HDR
#define STBI_NO_PIC
#define STBI_NO_LINEAR
#define STBI_NO_STDIO
#define STB_IMAGE_IMPLEMENTATION
#include <stb_image.h>
#pragma GCC diagnostic pop

namespace gt {

static std::string too_large(int64_t width, int64_t height, int64_t max_pixels) {
    return format(
        "too large: %lld x %lld pixels, the limit is %.1f million", (long long) width,
        (long long) height, double(max_pixels) / 1e6
    );
}

// Reads kind and size from the first bytes.
static PictureInfo
probe_bytes(std::span<const uint8_t> head, const std::string & name, int64_t max_pixels) {
    PictureInfo       info;
    const std::string kind = picture_kind(head, name, info.problem);
    if (kind.empty()) {
        return info;
    }
    if (kind == "png" && head.size() >= 24) {
        // stb_image does not recognize a PNG beyond its own limits
        auto number = [&](size_t at) {
            return int64_t(head[at]) << 24 | head[at + 1] << 16 | head[at + 2] << 8 | head[at + 3];
        };
        const int64_t width = number(16), height = number(20);
        if (width > 0 && height > max_pixels / width) {
            info.problem = too_large(width, height, max_pixels);
            return info;
        }
    }
    if (kind == "jpeg") {
        info.problem = jpeg_size(head, info.width, info.height);
        if (!info.problem.empty()) {
            return info;
        }
    } else if (!stbi_info_from_memory(
                   head.data(), int(head.size()), &info.width, &info.height, &info.n_channels
               )) {
        info.problem = "damaged " + kind + ": invalid header";
        return info;
    }
    if (info.width <= 0 || info.height <= 0) {
        info.problem = "damaged " + kind + ": no pixels";
    } else if (int64_t(info.width) * info.height > max_pixels) {
        info.problem = too_large(info.width, info.height, max_pixels);
    }
    if (kind == "jpeg" && jpeg_orientation(head) >= 5) {
        std::swap(info.width, info.height);
    }
    return info;
}

using File = std::unique_ptr<FILE, int (*)(FILE *)>;

static int64_t file_bytes(FILE * file) {
    return fseeko(file, 0, SEEK_END) == 0 ? int64_t(ftello(file)) : -1;
}

PictureInfo probe_picture(const std::string & path, int64_t max_pixels, int64_t max_file_bytes) {
    PictureInfo info;
    const File  file(std::fopen(path.c_str(), "rb"), &std::fclose);
    if (!file) {
        info.problem = std::string("cannot be opened: ") + std::strerror(errno);
        return info;
    }
    const int64_t n_bytes = file_bytes(file.get());
    if (n_bytes == 0) {
        info.problem = "empty file";
        return info;
    }
    if (n_bytes < 0 || n_bytes > max_file_bytes) {
        info.problem = format("too large: the limit is %lld bytes", (long long) max_file_bytes);
        return info;
    }
    // The first 4 KB are usually enough; cameras store previews before the size.
    Bytes head;
    for (int64_t n = 4096;; n *= 16) {
        const size_t have = head.size(), want = size_t(std::min(n, n_bytes));
        head.resize(want);
        if (fseeko(file.get(), off_t(have), SEEK_SET) != 0 ||
            std::fread(head.data() + have, 1, want - have, file.get()) != want - have) {
            info.problem = "cannot be read";
            return info;
        }
        info = probe_bytes(head, path, max_pixels);
        if (info.problem.empty() || want == size_t(n_bytes) ||
            !info.problem.starts_with("damaged ")) {
            return info;
        }
    }
}

std::optional<Bytes>
read_picture_file(const std::string & path, int64_t max_bytes, std::string & why) {
    const File file(std::fopen(path.c_str(), "rb"), &std::fclose);
    if (!file) {
        why = std::string("cannot be opened: ") + std::strerror(errno);
        return {};
    }
    const int64_t n = file_bytes(file.get());
    if (n <= 0 || n > max_bytes) {
        why = n == 0 ? "empty file"
                     : format("too large: the limit is %lld bytes", (long long) max_bytes);
        return {};
    }
    Bytes bytes(static_cast<size_t>(n));
    if (fseeko(file.get(), 0, SEEK_SET) != 0 ||
        std::fread(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) {
        why = "cannot be read";
        return {};
    }
    return bytes;
}

// Converts n channels (1: gray, 2: gray and alpha, 3: RGB, 4: RGBA) to 1 or 3, over white.
static void
convert(const uint8_t * from, int n, size_t n_pixels, int channels, std::vector<uint8_t> & out) {
    out.resize(n_pixels * size_t(channels));
    uint8_t * to = out.data();
    if (n == channels) {
        std::memcpy(to, from, out.size());
        return;
    }
    const bool has_alpha = n == 2 || n == 4, colour = n >= 3;
    for (size_t i = 0; i < n_pixels; ++i, from += n, to += channels) {
        int rgb[3] = {from[0], from[colour ? 1 : 0], from[colour ? 2 : 0]};
        if (has_alpha) {
            const int alpha = from[n - 1];
            for (int & value : rgb) {
                value = (value * alpha + 255 * (255 - alpha) + 127) / 255;
            }
        }
        if (channels == 3) {
            for (int c = 0; c < 3; ++c) {
                to[c] = uint8_t(rgb[c]);
            }
        } else {
            to[0] = luma(rgb[0], rgb[1], rgb[2]);
        }
    }
}

// Undoes the rotation and mirroring of an EXIF orientation.
static void turn_upright(Picture & picture, int orientation) {
    if (orientation == 1) {
        return;
    }
    const int  w = picture.width, h = picture.height, n = picture.channels;
    const bool swap = orientation >= 5;
    Picture    out{swap ? h : w, swap ? w : h, n, std::vector<uint8_t>(picture.pixels.size())};
    for (int y = 0; y < out.height; ++y) {
        for (int x = 0; x < out.width; ++x) {
            int from_x = swap ? y : x, from_y = swap ? x : y;
            if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) {
                from_x = w - 1 - from_x;
            }
            if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) {
                from_y = h - 1 - from_y;
            }
            const uint8_t * from = &picture.pixels[(size_t(from_y) * w + from_x) * n];
            std::copy(from, from + n, &out.pixels[(size_t(y) * out.width + x) * n]);
        }
    }
    picture = std::move(out);
}

bool decode_picture(
    std::span<const uint8_t> file,
    const std::string &      name,
    int                      channels,
    int64_t                  max_pixels,
    Picture &                out,
    std::string &            why
) {
    GT_CHECK(channels == 1 || channels == 3, "pictures are grayscale or RGB");
    if (file.empty() || file.size() > size_t(std::numeric_limits<int>::max())) {
        why = file.empty() ? "empty file" : "too large: more than 2 GB";
        return false;
    }
    const PictureInfo info = probe_bytes(file, name, max_pixels);
    if (!info.problem.empty()) {
        why = info.problem;
        return false;
    }
    const size_t      n_pixels = size_t(info.width) * size_t(info.height);
    const std::string kind     = picture_kind(file, name, why);
    why                        = find_damage(kind, file, n_pixels * size_t(info.n_channels));
    if (!why.empty()) {
        return false;
    }

    // 16-bit RGBA takes 8 bytes per pixel, and buffers grow by doubling
    t_max_block = n_pixels * 16 + 2 * file.size() + (4 << 20);
    int       w = 0, h = 0, n = 0;
    uint8_t * pixels = stbi_load_from_memory(file.data(), int(file.size()), &w, &h, &n, 0);
    t_max_block      = std::numeric_limits<size_t>::max();
    if (pixels == nullptr) {
        why = "damaged " + kind + ": " + stbi_failure_reason();
        return false;
    }
    const std::unique_ptr<uint8_t, void (*)(void *)> owner(pixels, &stbi_image_free);

    out.width    = w;
    out.height   = h;
    out.channels = channels;
    convert(pixels, n, size_t(w) * size_t(h), channels, out.pixels);
    turn_upright(out, kind == "jpeg" ? jpeg_orientation(file) : 1);
    return true;
}

}  // namespace gt
