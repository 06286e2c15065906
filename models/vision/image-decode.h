// models/vision/image-decode.h — decodes untrusted picture files.
//
// Reads JPEG, PNG, BMP, GIF (first frame), PNM, PSD and TGA through stb_image. The kind is detected
// from the first bytes, not from the name (except TGA, which has no magic bytes). stb_image accepts
// truncated files, so ends and checksums are checked first.
#pragma once

#include "models/vision/image-data.h"

namespace gt {

struct PictureInfo {
    int         width      = 0;  // after the EXIF rotation
    int         height     = 0;
    int         n_channels = 0;  // as stored
    std::string problem;         // empty: none found so far
};

// Reads kind and size from the header of a file; cheap, does not check the rest.
PictureInfo probe_picture(const std::string & path, int64_t max_pixels, int64_t max_file_bytes);

// Decodes, rotates upright, composes transparency over white, converts to 1 or 3 channels. On failure
// returns false with the reason in `why`. Memory: at most about 32 bytes per pixel of max_pixels.
[[nodiscard]] bool decode_picture(
    std::span<const uint8_t> file,
    const std::string &      name,
    int                      channels,
    int64_t                  max_pixels,
    Picture &                out,
    std::string &            why
);

// The bytes of a file; nothing if it cannot be read, is empty or is larger than max_bytes.
std::optional<Bytes>
read_picture_file(const std::string & path, int64_t max_bytes, std::string & why);

// --- image-check.cpp ---------------------------------------------------------------------------

// "jpeg", "png", ...; "" if it is not supported, with the reason in `why`.
std::string
picture_kind(std::span<const uint8_t> head, const std::string & name, std::string & why);

// Damage in a whole file (truncation, wrong checksum); "" if none was found. n_raw: size of its pixels
// when decompressed.
std::string find_damage(const std::string & kind, std::span<const uint8_t> file, size_t n_raw);

// The size in a JPEG's header, 0 if missing; returns damage found before it, or "". Replaces stb_image's
// own function, which trusts the tables that it skips.
std::string jpeg_size(std::span<const uint8_t> file, int & width, int & height);

// EXIF orientation, 1 to 8; 1 (upright) if there is none.
int jpeg_orientation(std::span<const uint8_t> file);

}  // namespace gt
