// ggml-train/classifier.h — a classifier of pictures at work: what training, its validation and
// `classify` share, so that all three treat a picture alike and count the same answers as right.
//
// Read next: image-loader.h (where batches come from), graph.h (what computes the logits).
#pragma once

#include "ggml-train/graph.h"
#include "ggml-train/image-loader.h"
#include "ggml-train/model-config.h"

namespace gt {

// How such a model sees a picture; what the model leaves open is 0, and the data decides it.
ImageSpec image_spec(const ModelConfig & config);

// Fills in what the model does not know yet: normalisation, crop, class names. An Error if the data
// has another number of classes; `where` (the model's file) begins it.
void learn_from_data(ModelConfig & config, const ImageData & data, const std::string & where);

// Writes the files that are left out, each with its reason, to `path`. Returns the same for people,
// at most twenty lines of it.
std::string list_left_out(const ImageData & data, const std::string & path);

// A step's pictures as a graph takes them.
Batch to_batch(const ImageBatch & pictures);

// Factors of stochastic depth for samples [begin, end) of a step: a branch is dropped (0) with a
// probability that grows from `rate / n_branches` at the first to `rate` at the last, or else
// scaled up so that its mean stays. A pure function of its arguments. [n_branches, end - begin]
std::vector<float> depth_factors(
    float               rate,
    uint64_t            seed,
    uint64_t            step,
    const std::string & host,
    int64_t             begin,
    int64_t             end,
    int64_t             n_branches
);

struct Answer {
    int64_t item       = -1;    // which picture of the data
    int32_t label      = 0;     // what it is
    int32_t predicted  = 0;     // what the model says; of equals the first
    float   confidence = 0.0f;  // in `predicted`
};

struct Evaluation {
    double              loss     = 0.0;  // mean cross entropy
    double              accuracy = 0.0;  // share of right answers
    std::vector<Answer> answers;
};

// Asks the model about the first n_batches (0: all) of the validation set that `loader` has.
// REQUIRES: `logits` has Goal::logits and the loader's batch size.
Evaluation evaluate_pictures(StepRunner & logits, ImageLoader & loader, int64_t n_batches = 0);

// Logits of one picture -> shares that add up to 1.
std::vector<float> softmax(std::span<const float> logits);

// The wrong answers the model was surest of, for people: a contact sheet of at most n at `path`.
// Returns how many there are on it.
size_t write_mistakes(
    const std::string & path, const ImageData & data, const Evaluation & evaluation, size_t n = 60
);

}  // namespace gt
