// The one place that holds stb_image_write and its small font: see contact-sheet.h.
#include "ggml-train/contact-sheet.h"

#include "ggml-train/resize.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb_easy_font.h>
#include <stb_image_write.h>
#pragma GCC diagnostic pop

namespace gt {

constexpr int kThumb = 128;  // longest side of a picture on the sheet

Bytes encode_png(const PictureView & picture) {
    Bytes bytes;
    auto  append = [](void * to, void * data, int n) {
        const auto * from = static_cast<const uint8_t *>(data);
        static_cast<Bytes *>(to)->insert(static_cast<Bytes *>(to)->end(), from, from + n);
    };
    stbi_write_png_to_func(
        append, &bytes, picture.width, picture.height, picture.channels, picture.pixels,
        picture.width * picture.channels
    );
    return bytes;
}

// The picture with its longer side at kThumb; small ones enlarged by whole factors, unblurred.
static Picture thumbnail(const PictureView & from) {
    const int longer = std::max(from.width, from.height);
    Picture   out;
    if (longer > kThumb) {
        auto side = [&](int n) { return std::max(1, n * kThumb / longer); };
        resize_picture(
            from, {0, 0, float(from.width), float(from.height)}, side(from.width),
            side(from.height), out
        );
        return out;
    }
    const int k = kThumb / longer, C = from.channels;
    out = {from.width * k, from.height * k, C, {}};
    out.pixels.reserve(from.n_bytes() * size_t(k * k));
    for (int y = 0; y < out.height; ++y) {
        for (int x = 0; x < out.width; ++x) {
            const uint8_t * p = from.pixels + (size_t(y / k) * from.width + x / k) * C;
            out.pixels.insert(out.pixels.end(), p, p + C);
        }
    }
    return out;
}

static std::string base64(const Bytes & bytes) {
    static const char kDigits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (size_t i = 0; i < bytes.size(); i += 3) {
        const size_t n     = std::min<size_t>(3, bytes.size() - i);
        uint32_t     three = 0;
        for (size_t k = 0; k < 3; ++k) {
            three = three << 8 | (k < n ? bytes[i + k] : 0u);
        }
        for (size_t k = 0; k < 4; ++k) {
            text += k <= n ? kDigits[three >> (18 - 6 * k) & 63] : '=';
        }
    }
    return text;
}

static std::string escaped(const std::string & text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '&':
                out += "&amp;";
                break;
            case '"':
                out += "&quot;";
                break;
            default:
                out += c;
        }
    }
    return out;
}

static std::string make_html(std::span<const Mistake> mistakes) {
    std::string page =
        "<!doctype html><meta charset=\"utf-8\"><title>The worst mistakes</title>\n"
        "<style>body{font:13px sans-serif;background:#fff;color:#222}figure{display:inline-block;"
        "vertical-align:top;width:150px;margin:8px;overflow-wrap:anywhere}figcaption b{color:#b00}"
        "small{color:#777}</style>\n<h1>The worst mistakes</h1>\n";
    for (const Mistake & mistake : mistakes) {
        const Picture thumb = thumbnail(mistake.picture.view());
        page +=
            "<figure><img alt=\"\" src=\"data:image/png;base64," +
            base64(encode_png(thumb.view())) + "\"><figcaption><b>" + escaped(mistake.predicted) +
            format("</b> %.0f %%<br>is ", 100 * mistake.confidence) + escaped(mistake.true_class) +
            "<br><small>" + escaped(mistake.name) + "</small></figcaption></figure>\n";
    }
    return page;
}

// Draws one line of text in black; what is wider than a picture is cut, a path at its front.
static void draw_text(Picture & sheet, int x0, int y0, std::string text, bool is_path) {
    for (char & c : text) {
        c = c < 32 || c > 126 ? '?' : c;
    }
    while (!text.empty() && stb_easy_font_width(text.data()) > kThumb) {
        text.erase(is_path ? 0 : text.size() - 1, 1);
    }
    struct Vertex {
        float   x, y, z;
        uint8_t colour[4];
    };
    std::vector<Vertex> corners(text.size() * 4 * 20 + 4);  // up to 20 strokes a letter
    const int           n = stb_easy_font_print(
                  float(x0), float(y0), text.data(), nullptr, corners.data(),
                  int(corners.size() * sizeof(Vertex))
              );
    for (int i = 0; i < n; ++i) {  // each a rectangle: first corner and the one across
        const Vertex &a = corners[size_t(4 * i)], &b = corners[size_t(4 * i + 2)];
        for (int y = int(a.y); y < std::min(int(b.y), sheet.height); ++y) {
            for (int x = int(a.x); x < std::min(int(b.x), sheet.width); ++x) {
                std::memset(&sheet.pixels[(size_t(y) * sheet.width + x) * 3], 0, 3);
            }
        }
    }
}

static Bytes make_png(std::span<const Mistake> mistakes) {
    constexpr int kCellW = kThumb + 16, kCellH = kThumb + 56;
    const int     n      = int(std::max<size_t>(1, mistakes.size()));
    const int     n_cols = std::min(n, 8), n_rows = (n + n_cols - 1) / n_cols;
    Picture       sheet{n_cols * kCellW, n_rows * kCellH, 3, {}};
    sheet.pixels.assign(size_t(sheet.width) * sheet.height * 3, 255);
    for (size_t i = 0; i < mistakes.size(); ++i) {
        const Mistake & mistake = mistakes[i];
        const Picture   thumb   = thumbnail(mistake.picture.view());
        const int       x0 = int(i) % n_cols * kCellW + 8, y0 = int(i) / n_cols * kCellH + 8;
        for (int y = 0; y < thumb.height; ++y) {
            for (int x = 0; x < thumb.width; ++x) {
                for (int c = 0; c < 3; ++c) {
                    sheet.pixels[(size_t(y0 + y) * sheet.width + x0 + x) * 3 + c] =
                        thumb.pixels
                            [(size_t(y) * thumb.width + x) * thumb.channels +
                             (thumb.channels == 3 ? c : 0)];
                }
            }
        }
        const int         text = y0 + kThumb + 4;
        const std::string said = mistake.predicted + format(" %.0f%%", 100 * mistake.confidence);
        draw_text(sheet, x0, text, said, false);
        draw_text(sheet, x0, text + 12, "is " + mistake.true_class, false);
        draw_text(sheet, x0, text + 24, mistake.name, true);
    }
    return encode_png(sheet.view());
}

void write_contact_sheet(const std::string & path, std::span<const Mistake> mistakes) {
    Bytes bytes;
    if (path.ends_with(".png")) {
        bytes = make_png(mistakes);
    } else {
        const std::string page = make_html(mistakes);
        bytes.assign(page.begin(), page.end());
    }
    const std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path.c_str(), "wb"), &std::fclose);
    if (!file || std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size() ||
        std::fflush(file.get()) != 0) {
        throw Error(path + ": cannot be written");
    }
}

}  // namespace gt
