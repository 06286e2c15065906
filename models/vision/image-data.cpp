// Detects the kind of a data path; ImageData. See image-data.h.
#include "models/vision/image-data.h"

#include "ggml-train/base/plural.h"
#include "models/vision/augment.h"
#include "models/vision/image-cache.h"
#include "models/vision/image-decode.h"
#include "models/vision/resize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>

namespace gt {

constexpr int kMaxAspect = 3;  // longer side relative to stored size

void split_by_name(std::vector<ImageItem> & items, double fraction) {
    if (items.empty() || fraction <= 0.0) {
        return;
    }
    auto order = [](const ImageItem & item) {
        return double(digest64(item.name, 0x5eed) >> 11) / double(1ull << 53);
    };
    size_t n_val = 0;
    for (ImageItem & item : items) {
        item.is_val = fraction >= 1.0 || order(item) < fraction;
        n_val += item.is_val;
    }
    // few pictures: at least one on each side
    auto less = [&](const ImageItem & a, const ImageItem & b) { return order(a) < order(b); };
    if (n_val == 0 && items.size() > 1) {
        std::min_element(items.begin(), items.end(), less)->is_val = true;
    } else if (n_val == items.size() && fraction < 1.0 && n_val > 1) {
        std::max_element(items.begin(), items.end(), less)->is_val = false;
    }
}

// "a.jpg (empty file), b.png (...) and 3 more"
static std::string list_skipped(const std::vector<SkippedFile> & skipped) {
    std::string text;
    for (size_t i = 0; i < skipped.size() && i < 5; ++i) {
        text += (i ? ", " : "") + skipped[i].name + " (" + skipped[i].reason + ")";
    }
    return skipped.size() > 5 ? text + format(" and %zu more", skipped.size() - 5) : text;
}

std::unique_ptr<ImageSource>
open_image_source(const std::string & path, const ImageOptions & options) {
    if (!std::filesystem::exists(path)) {
        throw Error(path + ": no such folder or file");
    }
    auto source = open_image_idx(path, options);
    if (!source) {
        source = open_image_cifar(path, options);
    }
    const bool packed = source != nullptr;
    if (!source) {
        source = open_image_folder(path, options);
    }
    if (!source) {
        throw Error(
            path + ": neither a folder with a folder per class, nor IDX files (train-images-idx3-"
                   "ubyte), nor CIFAR batches (data_batch_1.bin)"
        );
    }
    if (source->items.empty()) {
        throw Error(
            path + ": no usable picture; expected a folder per class, such as " + path +
            "/cat/1.jpg" +
            (source->skipped.empty() ? "" : "; skipped: " + list_skipped(source->skipped))
        );
    }
    if (packed && !options.classes.empty()) {
        if (source->classes.size() > options.classes.size()) {
            throw Error(
                path + format(
                           ": has %zu classes, the model %zu; create a model with --classes %zu",
                           source->classes.size(), options.classes.size(), source->classes.size()
                       )
            );
        }
        source->classes =
            options.classes;  // packed files number their labels; the names are the model's
    }
    return source;
}

void stored_size(int width, int height, int stored, int & stored_width, int & stored_height) {
    const int    shorter = std::min(width, height);
    const double scale   = std::min(1.0, double(stored) / shorter);
    auto         side    = [&](int n) {
        return std::clamp(int(std::lround(n * scale)), 1, kMaxAspect * stored);
    };
    stored_width  = side(width);
    stored_height = side(height);
}

PictureView store_picture(const PictureView & picture, int stored, Picture & scratch) {
    int width = 0, height = 0;
    stored_size(picture.width, picture.height, stored, width, height);
    if (width == picture.width && height == picture.height) {
        return picture;
    }
    // a very long picture is cropped at its ends
    const float scale =
        std::max(1.0f, float(std::min(picture.width, picture.height)) / float(stored));
    Box box = {0, 0, float(picture.width), float(picture.height)};
    if (width == kMaxAspect * stored) {
        box.width = std::min(box.width, float(width) * scale);
        box.x     = (float(picture.width) - box.width) / 2;
    }
    if (height == kMaxAspect * stored) {
        box.height = std::min(box.height, float(height) * scale);
        box.y      = (float(picture.height) - box.height) / 2;
    }
    resize_picture(picture, box, width, height, scratch);
    return scratch.view();
}

ImageData::ImageData(const std::string & path, const ImageSpec & spec, const ImageOptions & options)
    : spec_(spec), source_(open_image_source(path, options)) {
    if (spec.size < 1 || spec.size > 4096 || spec.columns() > 4096 ||
        (spec.channels != 1 && spec.channels != 3)) {
        throw Error(format(
            "image size is %d with %d channels; expected 1 to 4096 pixels and 1 or 3 channels",
            spec.size, spec.channels
        ));
    }
    const int64_t n = int64_t(source_->items.size());
    is_broken_.assign(size_t(n), false);
    for (int64_t i = 0; i < n; ++i) {
        (item(i).is_val ? val_ : train_).push_back(i);
    }
    choose_sizes();
    if (!options.cache_path.empty() && !source_->in_memory) {
        cache_ = ImageCache::open(options.cache_path, *source_, spec_, options, cache_note_);
    }
    if (cache_) {
        const std::vector<int64_t> broken = cache_->broken();
        Picture                    scratch;
        for (const int64_t i : broken) {
            (void) load(i, scratch);  // decode again to get the reason
        }
        if (int64_t(broken.size()) == n) {
            throw Error(path + ": no usable picture; skipped: " + list_skipped(skipped()));
        }
    }
    if (spec_.deviation[0] == 0.0f) {
        measure(options.n_threads);
    }
}

ImageData::~ImageData() = default;

void ImageData::choose_sizes() {
    if (spec_.crop <= 0.0f) {
        // pictures of the model's size are not cropped
        const auto & items   = source_->items;
        const auto   n_small = std::count_if(items.begin(), items.end(), [&](const ImageItem & i) {
            return i.width <= spec_.columns() || i.height <= spec_.size;
        });
        spec_.crop           = 2 * size_t(n_small) > items.size() ? 1.0f : 0.875f;
    }
    spec_.crop = std::min(spec_.crop, 1.0f);
    if (spec_.stored <= 0) {
        spec_.stored = int(std::lround(float(std::max(spec_.size, spec_.columns())) / spec_.crop));
    }
}

std::optional<PictureView> ImageData::load(int64_t i, Picture & scratch) const {
    if (cache_) {
        if (auto view = cache_->get(i)) {
            return view;
        }
    }
    {
        const std::lock_guard lock(mutex_);
        if (is_broken_[size_t(i)]) {
            return {};
        }
    }
    thread_local Picture decoded;  // reused by the next call
    std::string          why;
    const auto           whole = source_->read(i, spec_.channels, decoded, why);
    if (!whole) {
        const std::lock_guard lock(mutex_);
        if (!is_broken_[size_t(i)]) {
            is_broken_[size_t(i)] = true;
            broken_.push_back({item(i).name, why});
        }
        return {};
    }
    const PictureView stored = store_picture(*whole, spec_.stored, scratch);
    if (stored.pixels == decoded.pixels.data()) {  // thread-local: move it out
        std::swap(scratch, decoded);
        return scratch.view();
    }
    return stored;
}

void ImageData::measure(int n_threads) {
    // Integer sums do not depend on the order of the threads.
    const auto & list = train_.empty() ? val_ : train_;
    // A sample of the files is enough, the same with and without a cache.
    const size_t          most   = source_->in_memory ? 200000 : 2000;
    const size_t          n      = std::min(list.size(), most);
    std::atomic<uint64_t> sum[3] = {}, square[3] = {}, count = 0;
    std::atomic<size_t>   next = 0;
    Workers(std::max(1, n_threads)).run([&](int, int) {
        Picture scratch;
        for (size_t k = next++; k < n; k = next++) {
            const auto view = load(list[k * list.size() / n], scratch);
            if (!view) {
                continue;
            }
            uint64_t     s[3] = {}, q[3] = {};
            const size_t C = size_t(view->channels), n_pixels = view->n_bytes() / C;
            for (size_t p = 0; p < n_pixels; ++p) {
                for (size_t c = 0; c < C; ++c) {
                    const uint64_t value = view->pixels[p * C + c];
                    s[c] += value;
                    q[c] += value * value;
                }
            }
            for (size_t c = 0; c < C; ++c) {
                sum[c] += s[c];
                square[c] += q[c];
            }
            count += n_pixels;
        }
    });
    if (count == 0) {
        throw Error(source_->kind + ": no usable picture; skipped: " + list_skipped(skipped()));
    }
    for (int c = 0; c < spec_.channels; ++c) {
        const double mean     = double(sum[c]) / double(count) / 255.0;
        const double variance = double(square[c]) / double(count) / (255.0 * 255.0) - mean * mean;
        spec_.mean[c]         = float(mean);
        spec_.deviation[c]    = std::max(1.0f / 255.0f, float(std::sqrt(std::max(0.0, variance))));
    }
}

std::vector<SkippedFile> ImageData::skipped() const {
    std::vector<SkippedFile> all = source_->skipped;
    const std::lock_guard    lock(mutex_);
    all.insert(all.end(), broken_.begin(), broken_.end());
    std::sort(all.begin(), all.end(), [](const auto & a, const auto & b) {
        return a.name < b.name;
    });
    return all;
}

std::string ImageData::summary() const {
    return format(
        "%s: %zu classes, %zu training pictures, %zu validation pictures, %s skipped%s%s",
        source_->kind.c_str(), classes().size(), train_.size(), val_.size(),
        plural(static_cast<int64_t>(skipped().size()), "file").c_str(),
        cache_note_.empty() ? "" : "; ", cache_note_.c_str()
    );
}

void read_model_input(const std::string & path, const ImageSpec & spec, std::span<float> out) {
    const ImageOptions limits;
    std::string        why;
    Picture            decoded, resized;
    const auto         file = read_picture_file(path, limits.max_file_bytes, why);
    if (!file || !decode_picture(*file, path, spec.channels, limits.max_pixels, decoded, why)) {
        throw Error(path + ": " + why);
    }
    center_view(store_picture(decoded.view(), spec.stored, resized), spec, out);
}

}  // namespace gt
