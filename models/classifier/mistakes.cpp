// The HTML page of mistakes; the only file that includes stb_image_write.
#include "models/classifier/mistakes.h"

#include "ggml-train/base/file.h"
#include "models/classifier/page-parts.h"
#include "models/vision/resize.h"

#include <algorithm>
#include <sodium/utils.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb_image_write.h>
#pragma GCC diagnostic pop

namespace gt {

constexpr int kThumb = 128;  // longer side of a picture on the page

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

// Scales the longer side to kThumb; small pictures grow by a whole factor, without blurring.
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
    constexpr int kVariant = sodium_base64_VARIANT_ORIGINAL;
    std::string   text(sodium_base64_encoded_len(bytes.size(), kVariant), '\0');
    sodium_bin2base64(text.data(), text.size(), bytes.data(), bytes.size(), kVariant);
    text.pop_back();  // the terminating zero
    return text;
}

static std::string mistakes_html(std::span<const Mistake> mistakes) {
    std::string html = "<h2>Worst mistakes</h2>\n";
    html += mistakes.empty() ? "<p>None.</p>\n" : "";
    for (const Mistake & mistake : mistakes) {
        const Picture thumb = thumbnail(mistake.picture.view());
        html += "<figure class=\"mistake\"><img alt=\"\" src=\"data:image/png;base64," +
                base64(encode_png(thumb.view())) + "\"><figcaption><b>" +
                html_text(mistake.predicted) +
                format("</b> %.0f&nbsp;%%<br>is ", 100 * mistake.confidence) +
                html_text(mistake.true_class) + "<br><small>" + html_text(mistake.name) +
                "</small></figcaption></figure>\n";
    }
    return html;
}

void write_mistake_page(
    const std::string &      path,
    const std::string &      title,
    const std::string &      top,
    std::span<const Mistake> mistakes
) {
    const std::string page =
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>" + html_text(title) +
        "</title>\n<meta name=\"viewport\" content=\"width=device-width\">" + kPageStyle + "<h1>" +
        html_text(title) + "</h1>\n" + top + mistakes_html(mistakes);
    AsideFile file(path);
    file.write(page.data(), page.size());
    file.commit();
}

}  // namespace gt
