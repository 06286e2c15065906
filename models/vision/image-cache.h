// models/vision/image-cache.h — a memory-mapped file of decoded pictures.
//
//   bytes 0-7    "GTPICS01"                     32-39  bytes of the whole file
//         8-15   key: digest of sources, sizes  40-47  digest of the table
//        16-23   number of pictures             48-55  digest of bytes 0-47
//        24-31   0                              56-63  0
//   then per picture 24 bytes: offset (8), digest of the pixels (8), width (4), height (4), where
//   width 0 marks a damaged file; then the pixels, [C, W, H]. All little-endian.
//
// Written atomically. A cache with another key (the source changed) is rewritten; a picture with a
// wrong digest is decoded from its source. The cache changes no result.
#pragma once

#include "models/vision/image-data.h"

namespace gt {

// A cache file without its pictures.
struct ImageCacheInfo {
    uint64_t key        = 0;  // digest of sources and sizes
    int64_t  n_pictures = 0;
    int64_t  n_broken   = 0;  // could not be decoded when the cache was written
    uint64_t n_bytes    = 0;
    uint32_t min_width = 0, max_width = 0, min_height = 0, max_height = 0;
};

// Throws an Error if the file is not a cache or is damaged; does not check the pixels.
ImageCacheInfo read_image_cache_info(const std::string & path);

class ImageCache {
public:
    ~ImageCache();

    // Maps the cache at `path`; writes it first if it is missing or stale. Null if it does not fit
    // (options.cache_bytes, free disk space) or cannot be written; `note` is a line for the log.
    static std::unique_ptr<ImageCache> open(
        const std::string &  path,
        const ImageSource &  source,
        const ImageSpec &    spec,
        const ImageOptions & options,
        std::string &        note
    );

    // Picture i; nothing if its file or its cached bytes are damaged. Thread-safe.
    std::optional<PictureView> get(int64_t i) const;

    // Items that could not be decoded when the cache was written.
    std::vector<int64_t> broken() const;

    int64_t n_bytes() const { return n_bytes_; }

private:
    ImageCache() = default;
    static std::unique_ptr<ImageCache>
    map(const std::string & path, uint64_t key, int64_t n, int channels);

    const uint8_t * data_     = nullptr;
    int64_t         n_bytes_  = 0;
    int64_t         n_        = 0;
    int             channels_ = 0;
};

}  // namespace gt
