// ggml-train/image-cache.h — decoded pictures in one file, mapped into memory.
//
//   bytes 0-7    "GTPICS01"                     32-39  bytes of the whole file
//         8-15   key: digest of sources, sizes  40-47  digest of the table
//        16-23   number of pictures             48-55  digest of bytes 0-47
//        24-31   0                              56-63  0
//   then per picture 24 bytes: offset (8), digest of the pixels (8), width (4), height (4), where
//   width 0 means that the file is broken; then the pixels, [C, W, H]. All little-endian.
//
// Written aside, flushed, renamed. A file with another key (a source changed) is written anew; a
// picture whose digest is wrong is decoded from its source instead. It changes no result.
#pragma once

#include "ggml-train/images.h"

namespace gt {

class ImageCache {
public:
    ~ImageCache();

    // Maps the cache at `path`, writing it first if it is missing or stale. Nothing if it would
    // not fit (options.cache_bytes, free disk) or cannot be written: `note` says so.
    static std::unique_ptr<ImageCache> open(
        const std::string &  path,
        const ImageSource &  source,
        const ImageSpec &    spec,
        const ImageOptions & options,
        std::string &        note
    );

    // Picture i; nothing if it is broken or its bytes are damaged. Any thread may call it.
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
