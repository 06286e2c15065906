// models/vision/image-loader.h — batches of pictures, prefetched by worker threads.
//
// Sample i of a step is a function of (seed, step, host, i): position step * batch + i of a walk
// through all training pictures, reshuffled for every walk. A slow host may ask for the first n
// samples of a step only. Threads and prefetching change when a batch is ready, never its content. A
// picture that cannot be decoded is replaced by the next one in the list.
#pragma once

#include "models/vision/mix.h"

#include <chrono>
#include <memory>

namespace gt {

struct ImageBatch {
    std::vector<float>   images;      // [W, H, C, B]
    std::vector<int32_t> labels;      // [B]; -1: no picture (past the end of the validation set)
    std::vector<int32_t> mix_labels;  // [B]; label of the picture mixed in; without mixing: labels
    std::vector<int64_t> items;       // [B]; item numbers; -1: no picture
    float                mix = 1.0f;  // loss = mix * loss(labels) + (1 - mix) * loss(mix_labels)
};

struct LoaderOptions {
    uint64_t       seed = 0;
    std::string    host;           // hosts of different names see different samples
    int            batch = 0;      // samples per step
    bool           val   = false;  // the validation set, each picture once, never augmented
    AugmentOptions augment;
    int            n_threads = 2;
    int            n_ahead   = 2;  // batches to prefetch; each takes 4 * W * H * C * B bytes
};

class ImageLoader {
public:
    // Starts the threads, for step `first`. `data` must outlive the loader.
    ImageLoader(const ImageData & data, const LoaderOptions & options, uint64_t first = 0);
    ~ImageLoader();

    // The first n samples of `step` (0: the whole batch), valid until the next call; waits until
    // they are ready. The following steps are prefetched with the same n; any other step restarts
    // the queue there.
    const ImageBatch & at(uint64_t step, int n = 0);

    // Batches of the validation set (val) or of one walk through the training set.
    int64_t n_batches() const;

    // Total time that at() has waited.
    std::chrono::nanoseconds waited() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Item number of the picture of sample i.
int64_t train_item(const ImageData & data, const LoaderOptions & options, uint64_t step, int i);

}  // namespace gt
