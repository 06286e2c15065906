// ggml-train/image-decode.h — the bytes of a picture file -> pixels, trusting nothing.
//
// Reads JPEG, PNG, BMP, GIF (first frame), PNM, PSD and TGA through stb_image. What a file is
// shows in its first bytes, never in its name (TGA has no such bytes: there the name counts).
// stb_image would take half a file for a whole one: ends and checksums are looked at before it.
#pragma once

#include "ggml-train/images.h"

namespace gt {

struct PictureInfo {
    int         width      = 0;  // upright: after the turn that a camera asks for
    int         height     = 0;
    int         n_channels = 0;  // as stored
    std::string problem;         // empty: looks usable
};

// Looks at the head of a file: its kind and size. Cheap; does not prove the rest whole.
PictureInfo probe_picture(const std::string & path, int64_t max_pixels, int64_t max_file_bytes);

// Decodes, turns upright, lays transparency over white, converts to 1 or 3 channels.
// On failure returns false and says why. Memory: at most about 32 bytes per pixel of max_pixels.
[[nodiscard]] bool decode_picture(
    std::span<const uint8_t> file,
    const std::string &      name,
    int                      channels,
    int64_t                  max_pixels,
    Picture &                out,
    std::string &            why
);

// The file's bytes; nothing if it cannot be read, is empty or is larger than `max_bytes`.
std::optional<Bytes>
read_picture_file(const std::string & path, int64_t max_bytes, std::string & why);

// --- image-check.cpp: what the bytes themselves say ---------------------------------------------

// "jpeg", "png", ...; "" when it is nothing that can be read, with the reason in `why`.
std::string
picture_kind(std::span<const uint8_t> head, const std::string & name, std::string & why);

// What is damaged in the whole file (a torn end, a wrong checksum); "" if nothing was found.
// `n_raw`: the bytes that its pixels take unpacked.
std::string find_damage(const std::string & kind, std::span<const uint8_t> file, size_t n_raw);

// The size in a JPEG's head, 0 if it is not there; returns what is damaged on the way, or "".
// Takes stb_image's place, which trusts the tables that it passes.
std::string jpeg_size(std::span<const uint8_t> file, int & width, int & height);

// How the camera was held: EXIF orientation 1..8; 1 is upright, also where none is given.
int jpeg_orientation(std::span<const uint8_t> file);

}  // namespace gt
