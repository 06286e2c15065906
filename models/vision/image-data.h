// models/vision/image-data.h — labelled pictures from disk behind one interface.
//
// A data path is a folder with a folder per class, a set of IDX files (MNIST and similar, also .gz) or
// the binary batches of CIFAR-10/100; the kind is detected. Files that are damaged, empty or not
// pictures are skipped and listed with the reason.
//
//     ImageData   data("photos/", {.size = 224}, {.cache_path = "photos.pictures"});
//     ImageLoader loader(data, {.seed = 1, .host = "anna", .batch = 64});
//     const ImageBatch & batch = loader.at(step);
//
// Read next: augment.h (a picture to model input), image-loader.h (prefetched batches).
#pragma once

#include "ggml-train/base/base.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace gt {

// 8-bit pixels owned elsewhere: [C, W, H], channels interleaved, top row first.
struct PictureView {
    int             width    = 0;
    int             height   = 0;
    int             channels = 0;  // 1: grayscale, 3: RGB
    const uint8_t * pixels   = nullptr;

    size_t n_bytes() const { return size_t(width) * size_t(height) * size_t(channels); }
};

struct Picture {
    int                  width    = 0;
    int                  height   = 0;
    int                  channels = 0;
    std::vector<uint8_t> pixels;

    PictureView view() const { return {width, height, channels, pixels.data()}; }
};

// The brightness of a color.
constexpr uint8_t luma(int red, int green, int blue) {
    return static_cast<uint8_t>((red * 77 + green * 150 + blue * 29 + 128) >> 8);
}

// Preprocessing of a model's input. Stored in the model file, so that training, evaluation and
// `classify` use the same. Fields that are 0 are set from the data.
struct ImageSpec {
    int   size         = 0;          // height; the input is [columns, size, C, B]
    int   width        = 0;          // 0: as the height
    int   channels     = 3;          // 1 or 3
    float crop         = 0.0f;       // fraction of the shorter side inside evaluation's crop
    int   stored       = 0;          // shorter side of cached pictures, which training crops
    float mean[3]      = {0, 0, 0};  // per channel, of pixels in [0, 1]
    float deviation[3] = {0, 0, 0};

    int    columns() const { return width > 0 ? width : size; }
    size_t n_values() const { return size_t(columns()) * size_t(size) * size_t(channels); }
};

struct ImageItem {
    std::string name;        // relative to the data path; "train-images#17" in packed files
    int         label  = 0;  // index into the class names
    bool        is_val = false;
    int         width  = 0;
    int         height = 0;
};

struct SkippedFile {
    std::string name;
    std::string reason;
};

struct ImageOptions {
    std::vector<std::string> classes;                      // of the model; empty: those of the data
    double                   val_fraction = 0.1;           // if the data has no split
    std::string              cache_path;                   // empty: no cache of decoded pictures
    int64_t                  cache_bytes    = 8ll << 30;   // larger data is not cached
    int64_t                  max_pixels     = 64ll << 20;  // larger pictures are skipped
    int64_t                  max_file_bytes = 256ll << 20;  // and larger files
    int                      n_threads      = 2;
};

// Pictures on disk; one subclass per kind of data path.
class ImageSource {
public:
    virtual ~ImageSource() = default;

    std::string              kind;     // "folder", "idx" or "cifar", and the path
    std::vector<ImageItem>   items;    // sorted by name
    std::vector<std::string> classes;  // by label
    std::vector<SkippedFile> skipped;
    uint64_t                 digest    = 0;  // of names and sizes; packed files: of all bytes
    uint64_t                 times     = 0;  // folder: digest of the files' mtimes
    bool                     in_memory = false;

    // Picture i, upright, with `channels` channels, at its own size, in memory of `scratch` or of
    // this object. Damaged: nothing, and the reason in `why`. Thread-safe.
    virtual std::optional<PictureView>
    read(int64_t i, int channels, Picture & scratch, std::string & why) const = 0;
};

// Detects the kind of `path` and lists its pictures. Throws an Error if there is none.
std::unique_ptr<ImageSource>
open_image_source(const std::string & path, const ImageOptions & options);

// One function per kind; null if the path is of another kind.
std::unique_ptr<ImageSource> open_image_folder(const std::string & path, const ImageOptions &);
std::unique_ptr<ImageSource> open_image_idx(const std::string & path, const ImageOptions &);
std::unique_ptr<ImageSource> open_image_cifar(const std::string & path, const ImageOptions &);

// Marks about `fraction` of the items as validation, by a digest of their names: the same on every
// host, and adding items moves no other one. 1: all of them.
void split_by_name(std::vector<ImageItem> & items, double fraction);

class ImageCache;

// The pictures of a data path at their stored size. The cache changes speed, not results.
class ImageData {
public:
    ImageData(const std::string & path, const ImageSpec & spec, const ImageOptions & options);
    ~ImageData();

    const ImageSpec &                spec() const { return spec_; }
    const std::vector<std::string> & classes() const { return source_->classes; }
    const std::vector<int64_t> &     train() const { return train_; }  // item numbers
    const std::vector<int64_t> &     val() const { return val_; }
    const ImageItem &                item(int64_t i) const { return source_->items[size_t(i)]; }
    uint64_t                         digest() const { return source_->digest; }

    // Picture i at its stored size, in memory of the cache, the source or `scratch`. Nothing if the
    // file is damaged; it is then listed in skipped(). Thread-safe.
    std::optional<PictureView> load(int64_t i, Picture & scratch) const;

    std::vector<SkippedFile> skipped() const;
    bool                     cached() const { return cache_ != nullptr; }
    std::string              summary() const;  // one line for the log

private:
    void choose_sizes();
    void measure(int n_threads);  // mean and deviation

    ImageSpec                        spec_;
    std::unique_ptr<ImageSource>     source_;
    std::unique_ptr<ImageCache>      cache_;
    std::string                      cache_note_;
    std::vector<int64_t>             train_, val_;
    mutable std::mutex               mutex_;  // guards the next two
    mutable std::vector<SkippedFile> broken_;
    mutable std::vector<bool>        is_broken_;
};

// Size at which a picture is stored: shorter side at most `stored`, longer side at most three times
// that; never enlarged.
void stored_size(int width, int height, int stored, int & stored_width, int & stored_height);

// The picture at its stored size: itself if small enough, else resized into `scratch`.
PictureView store_picture(const PictureView & picture, int stored, Picture & scratch);

// Preprocesses a picture file exactly as validation does: [columns, size, C], normalized. Throws an Error
// that names the file and the reason.
void read_model_input(const std::string & path, const ImageSpec & spec, std::span<float> out);

}  // namespace gt
