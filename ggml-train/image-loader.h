// ggml-train/image-loader.h — batches of pictures, made by worker threads ahead of the step.
//
// Sample i of a step is a function of (seed, step, host, i): position step * batch + i of a walk
// through all training pictures that is shuffled anew each time round. A rank asks for its part
// [begin, end) of the host's samples. Threads and queue change when a batch is ready, never what
// is in it. A picture that turns out broken is replaced by the next one in the list.
#pragma once

#include "ggml-train/augment.h"

#include <chrono>
#include <memory>

namespace gt {

struct ImageBatch {
    std::vector<float>   images;      // [S, S, C, B]
    std::vector<int32_t> labels;      // [B]; -1: no picture here (the end of the validation set)
    std::vector<int32_t> mix_labels;  // [B]; of the picture mixed in; the same without mixup
    std::vector<int64_t> items;       // [B]; which picture; -1 as above
    float                mix = 1.0f;  // loss = mix * loss(labels) + (1 - mix) * loss(mix_labels)
};

struct LoaderOptions {
    uint64_t       seed = 0;
    std::string    host;           // its name; only hosts of one name see the same samples
    int            batch = 0;      // samples of the host per step
    int            begin = 0;      // this rank's part of them
    int            end   = 0;      // 0: up to `batch`
    bool           val   = false;  // the validation set, each picture once, never augmented
    AugmentOptions augment;
    int            n_threads = 2;
    int            n_ahead   = 2;  // batches kept ready; each takes 4 * S * S * C * B bytes
};

class ImageLoader {
public:
    // Starts the threads, for step `first`. `data` must outlive the loader.
    ImageLoader(const ImageData & data, const LoaderOptions & options, uint64_t first = 0);
    ~ImageLoader();

    // The batch of `step`, valid until the next call; waits until it is ready. Steps in sequence
    // are ready ahead; any other step starts the queue anew from there.
    const ImageBatch & at(uint64_t step);

    // Batches of the validation set (val) or of one walk through the training set.
    int64_t n_batches() const;

    // How long at() has waited since the loader began: time that the training step lost.
    std::chrono::nanoseconds waited() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// The picture of sample i: what the loader trains on; an item number.
int64_t train_item(
    const ImageData & data, uint64_t seed, uint64_t step, const std::string & host, int i, int batch
);

}  // namespace gt
