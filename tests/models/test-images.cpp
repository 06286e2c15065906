// Decoding of valid and damaged picture files.
#include "models/vision/image-decode.h"
#include "tests/catch.h"
#include "tests/models/picture-files.h"

using namespace gt;

static Picture must_decode(const Bytes & file, int channels, const std::string & name = "x") {
    Picture     out;
    std::string why;
    INFO(name);
    const bool done = decode_picture(file, name, channels, 1 << 20, out, why);
    INFO(why);
    REQUIRE(done);
    return out;
}

static std::string why_not(const Bytes & file, const std::string & name = "x") {
    Picture     out;
    std::string why;
    CHECK_FALSE(decode_picture(file, name, 3, 1 << 20, out, why));
    return why;
}

static bool starts(const std::string & text, const std::string & with) {
    INFO(text);
    CHECK(text.substr(0, with.size()) == with);
    return text.starts_with(with);
}

static std::vector<uint8_t> first_pixel(const Picture & p) {
    return {p.pixels.begin(), p.pixels.begin() + p.channels};
}

TEST_CASE("pictures_of_every_kind_decode_to_rgb_and_grey", "[images]") {
    const Picture red = flat(5, 3, {200, 10, 20});
    for (const char * kind : {"png", "bmp", "tga", "jpg"}) {
        const Picture p = must_decode(encode(red, kind), 3, std::string("a.") + kind);
        CHECK(p.width == 5);
        CHECK(p.height == 3);
        CHECK(std::abs(p.pixels[0] - 200) <= 4);
        CHECK(std::abs(p.pixels[1] - 10) <= 4);
        const Picture grey = must_decode(encode(red, kind), 1, std::string("a.") + kind);
        CHECK(grey.channels == 1);
        CHECK(std::abs(grey.pixels[14] - 68) <= 4);
    }
    // gray to RGB, and one pixel
    CHECK(first_pixel(must_decode(encode(flat(1, 1, {77}), "png"), 3)) == Bytes{77, 77, 77});
    // transparency over white
    CHECK(
        first_pixel(must_decode(encode(flat(2, 2, {9, 9, 9, 0}), "png"), 3)) == Bytes{255, 255, 255}
    );
    CHECK(first_pixel(must_decode(encode(flat(2, 2, {9, 8, 7, 255}), "png"), 3)) == Bytes{9, 8, 7});
    CHECK(first_pixel(must_decode(encode(flat(2, 2, {0, 51}), "png"), 1)) == Bytes{204});
    // 16 bits: the upper byte
    CHECK(
        first_pixel(must_decode(raw_png(1, 1, 16, 2, {0, 10, 99, 20, 99, 30, 99}), 3)) ==
        Bytes{10, 20, 30}
    );
    // palette of two colors, one bit per pixel
    CHECK(
        first_pixel(must_decode(raw_png(2, 1, 1, 3, {0, 0x80}, {1, 2, 3, 4, 5, 6}), 3)) ==
        Bytes{4, 5, 6}
    );
    // CMYK
    const Picture ink = must_decode(cmyk_jpeg(255, 0, 128, 255), 3);
    CHECK(ink.width == 8);
    CHECK(std::abs(ink.pixels[0] - 255) <= 2);
    CHECK(std::abs(ink.pixels[1] - 0) <= 2);
    CHECK(std::abs(ink.pixels[2] - 128) <= 2);
    CHECK(first_pixel(must_decode(text_bytes("P5 1 1 255\nA"), 1)) == Bytes{'A'});
}

TEST_CASE("photos_are_rotated_upright", "[images]") {
    Picture p = flat(16, 8, {250, 0, 0});  // left half red, right half blue
    for (int i = 0; i < 16 * 8; ++i) {
        if (i % 16 >= 8) {
            p.pixels[size_t(3 * i)]     = 0;
            p.pixels[size_t(3 * i + 2)] = 250;
        }
    }
    const Bytes jpeg  = encode(p, "jpg");
    const bool  red[] = {true, false, false, true, true, true, false, false};  // top left corner
    for (uint8_t orientation = 1; orientation <= 8; ++orientation) {
        const Picture turned = must_decode(with_orientation(jpeg, orientation), 3);
        INFO(int(orientation));
        CHECK(turned.width == (orientation >= 5 ? 8 : 16));
        CHECK((turned.pixels[0] > 128) == red[orientation - 1]);
        // the other end of the long side has the other color
        CHECK((turned.pixels[turned.pixels.size() - 3] > 128) != red[orientation - 1]);
    }
}

TEST_CASE("damaged_pictures_are_refused_with_the_reason", "[images]") {
    const Bytes jpeg = encode(pattern(40, 40, 3, 1), "jpg");
    const Bytes png  = encode(pattern(40, 40, 3, 1), "png");
    const Bytes bmp  = encode(pattern(40, 40, 3, 1), "bmp");
    auto        half = [](const Bytes & b) {
        return Bytes(b.begin(), b.begin() + std::ptrdiff_t(b.size() / 2));
    };

    starts(why_not({}), "empty file");
    starts(why_not(half(jpeg)), "truncated");
    starts(why_not(half(png)), "truncated");
    starts(why_not(half(bmp)), "truncated");
    starts(why_not(text_bytes("P5 100 100 255\nshort")), "truncated");
    Bytes flipped = png;
    flipped[flipped.size() / 2] ^= 1;
    starts(why_not(flipped), "damaged: wrong checksum");
    starts(why_not(text_bytes("hello"), "hello.jpg"), "not a picture");
    starts(why_not(text_bytes("RIFF....WEBPVP8 ")), "WebP is not supported");
    starts(why_not(raw_png(2000, 2000, 8, 0, {0})), "too large: 2000 x 2000");
    starts(why_not(raw_png(2000000, 2000000, 8, 0, {0})), "too large");
    starts(why_not(raw_png(0, 5, 8, 0, {0})), "damaged png");
    starts(why_not({0xff, 0xd8, 0xff, 0xe0}), "damaged jpeg");
    Bytes codes = cmyk_jpeg(1, 2, 3, 4);  // a Huffman table of too many codes
    for (size_t i = 2; i + 4 < codes.size(); ++i) {
        if (codes[i] == 0xff && codes[i + 1] == 0xc4) {
            codes[i + 6] = codes[i + 8] = 200;
        }
    }
    starts(why_not(codes), "damaged: invalid Huffman table");
    // ten by ten pixels that decompress to 64 MB
    starts(why_not(raw_png(10, 10, 8, 0, Bytes(64 << 20))), "damaged png: outofmem");
}

TEST_CASE("no_truncated_or_altered_file_crashes_the_decoder", "[images]") {
    const Bytes files[] = {
        encode(pattern(33, 21, 3, 2), "jpg"),
        encode(pattern(33, 21, 4, 2), "png"),
        encode(pattern(33, 21, 3, 2), "bmp"),
        encode(pattern(33, 21, 3, 2), "tga"),
        cmyk_jpeg(1, 2, 3, 4),
        with_orientation(encode(pattern(9, 9, 3, 1), "jpg"), 6),
    };
    Picture     out;
    std::string why;
    int         n_refused = 0;
    for (const Bytes & file : files) {
        for (uint64_t i = 0; i < 200; ++i) {
            Bytes torn = file;
            for (uint64_t k = 0; k <= i % 4; ++k) {
                torn[random_bits(1, i, k) % torn.size()] = uint8_t(random_bits(2, i, k));
            }
            if (i % 3 == 0) {
                torn.resize(random_bits(3, i) % torn.size());
            }
            n_refused += !decode_picture(torn, "x.tga", 3, 1 << 16, out, why);
        }
    }
    CHECK(n_refused > 100);
}
