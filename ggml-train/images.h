// ggml-train/images.h — labelled pictures: where they come from, and one view of all of them.
//
// A data path is a folder with a folder per class, a set of IDX files (MNIST and its kin, .gz
// too) or the binary batches of CIFAR-10/100; which of them is seen from what lies there. Files
// that are broken, empty or not pictures are listed by name with the reason and left out.
//
//     ImageData   data("photos/", {.size = 224}, {.cache_path = "photos.pictures"});
//     ImageLoader loader(data, {.seed = 1, .host = "anna", .batch = 64});
//     const ImageBatch & batch = loader.at(step);
//
// Read next: augment.h (a picture -> what the model sees), image-loader.h (batches ahead of time).
#pragma once

#include "ggml-train/base.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace gt {

// 8-bit pixels that someone else owns: [C, W, H], channels interleaved, the top row first.
struct PictureView {
    int             width    = 0;
    int             height   = 0;
    int             channels = 0;  // 1 grey, 3 RGB
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

// What a model expects of its input. It travels in the model file, so that training, evaluation
// and `classify` treat a picture alike. Fields left at 0 are filled in from the data.
struct ImageSpec {
    int   size         = 0;          // pixels a side; the model's input is [size, size, C, B]
    int   channels     = 3;          // 1 or 3
    float crop         = 0.0f;       // share of the shorter side that evaluation looks at
    int   stored       = 0;          // shorter side of the pictures that training crops from
    float mean[3]      = {0, 0, 0};  // of pixels in [0, 1], per channel
    float deviation[3] = {0, 0, 0};
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
    std::vector<std::string> classes;                       // of the model; empty: from the data
    double                   val_fraction = 0.1;            // where the data brings no split
    std::string              cache_path;                    // empty: no cache of decoded pictures
    int64_t                  cache_bytes    = 8ll << 30;    // larger than this: not cached
    int64_t                  max_pixels     = 64ll << 20;   // a larger picture is left out
    int64_t                  max_file_bytes = 256ll << 20;  // so is a larger file
    int                      n_threads      = 2;
};

// Pictures as they lie on disk. One class per kind of data path, made by open_image_source.
class ImageSource {
public:
    virtual ~ImageSource() = default;

    std::string              kind;     // "folder", "idx" or "cifar", and its path
    std::vector<ImageItem>   items;    // fixed order: by name
    std::vector<std::string> classes;  // by label
    std::vector<SkippedFile> skipped;
    uint64_t                 digest = 0;  // of names and sizes, or of all bytes in packed files
    uint64_t times     = 0;  // digest of when the files were changed, where they are many
    bool     in_memory = false;

    // Picture i, upright, with `channels` channels, whatever its size. It lies in `scratch` or in
    // this object. Broken: nothing, and `why`. Any thread may call it.
    virtual std::optional<PictureView>
    read(int64_t i, int channels, Picture & scratch, std::string & why) const = 0;
};

// Finds out what `path` holds and lists it. Throws Error when no usable picture is there.
std::unique_ptr<ImageSource>
open_image_source(const std::string & path, const ImageOptions & options);

// The kinds of data path: each gives nullptr if the path is not of its kind.
std::unique_ptr<ImageSource> open_image_folder(const std::string & path, const ImageOptions &);
std::unique_ptr<ImageSource> open_image_idx(const std::string & path, const ImageOptions &);
std::unique_ptr<ImageSource> open_image_cifar(const std::string & path, const ImageOptions &);

// Marks about `fraction` of the items as validation, chosen by the digest of their names: the
// same everywhere, and unmoved by what is added later. 1: all of them.
void split_by_name(std::vector<ImageItem> & items, double fraction);

class ImageCache;

// The pictures of a data path at their stored size. The cache changes the speed, nothing else.
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

    // Picture i at its stored size; it lies in the cache, in memory or in `scratch`. Nothing if
    // the file is broken, which is then listed in skipped(). Any thread may call it.
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

// The size that a picture of this size is stored at: its shorter side at most `stored`, its longer
// at most three times that; never enlarged.
void stored_size(int width, int height, int stored, int & stored_width, int & stored_height);

// `picture` at its stored size: itself if it is small enough, else resized into `scratch`.
PictureView store_picture(const PictureView & picture, int stored, Picture & scratch);

// A picture file as the model sees it in evaluation: [size, size, C], normalised, exactly as
// training's validation does it. Throws Error with the file's name and what is wrong with it.
void read_model_input(const std::string & path, const ImageSpec & spec, std::span<float> out);

}  // namespace gt
