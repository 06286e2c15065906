// models/classifier/picture-data.h — Data over labelled pictures: batches are made ahead of the step,
// validation lists its worst mistakes. Read next: image-loader.h, classifier.h.
#pragma once

#include "ggml-train/data.h"
#include "models/classifier/classifier.h"

namespace gt {

struct PictureDataOptions {
    uint64_t       seed = 1;
    std::string    host;       // its name decides which samples it gets
    int64_t        batch = 0;  // samples per step
    AugmentOptions augment;
    float          depth = 0.0f;    // stochastic depth: share of the last branches dropped; 0: off
    int64_t        n_branches = 0;  // residual branches of the model
    int64_t        n_val      = 0;  // pictures per validation; the last one takes all
    int            n_threads  = 2;
};

class PictureData : public Data {
public:
    // REQUIRES: images outlive it.
    PictureData(const ImageData & images, const PictureDataOptions & options)
        : images_(images), options_(options) {}

    Batch    train(uint64_t step, int64_t n) override;
    Score    validate(Evaluator & evaluator, bool last) override;
    uint64_t digest() const override { return images_.digest(); }
    double   seconds_waited() const override;

    const Evaluation & last() const { return last_; }  // of the whole validation set, at the end

private:
    const ImageData &            images_;
    PictureDataOptions           options_;
    std::unique_ptr<ImageLoader> train_, val_;  // threads start with the first batch
    Evaluation                   last_;
};

}  // namespace gt
