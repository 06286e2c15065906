// models/classifier/classifier.h — image classification shared by training, validation and `classify`, so
// that all three preprocess a picture in the same way and count the same answers as correct.
//
// Read next: image-loader.h (batches), ggml-train/graph/graph.h (logits).
#pragma once

#include "ggml-train/graph/graph.h"
#include "models/classifier/page-parts.h"
#include "models/model-config.h"
#include "models/vision/image-loader.h"

namespace gt {

// Preprocessing of a model's input; fields that the model does not fix yet are 0.
ImageSpec image_spec(const ModelConfig & config);

// Sets normalization, crop and class names from the data. Throws an Error that begins with `where`, the
// model's file, if the data has another number of classes.
void learn_from_data(ModelConfig & config, const ImageData & data, const std::string & where);

// Writes the skipped files with their reasons to `path`. Returns the first twenty lines to print.
std::string list_left_out(const ImageData & data, const std::string & path);

// The batch in the form that graphs take.
Batch to_batch(const ImageBatch & pictures);

// Stochastic depth: factors for the first n samples of a step, [n_branches, n]. Branch k is dropped
// (factor 0) with probability rate * (k + 1) / n_branches, else scaled up to keep its mean. A pure
// function of its arguments.
std::vector<float> depth_factors(
    float               rate,
    uint64_t            seed,
    uint64_t            step,
    const std::string & host,
    int64_t             n,
    int64_t             n_branches
);

struct Answer {
    int64_t item       = -1;    // item number
    int32_t label      = 0;     // true class
    int32_t predicted  = 0;     // most likely class; the first of equals
    float   confidence = 0.0f;  // in `predicted`
};

struct Evaluation {
    double              loss     = 0.0;  // mean cross entropy
    double              accuracy = 0.0;  // fraction of correct answers
    std::vector<Answer> answers;
};

// Evaluates the first n_batches (0: all) of the loader's validation set.
// REQUIRES: `logits` has Goal::logits and the loader's batch size.
Evaluation evaluate_pictures(StepRunner & logits, ImageLoader & loader, int64_t n_batches = 0);

// Probabilities from the logits of one picture.
std::vector<float> softmax(std::span<const float> logits);

// [true class][answer]
Confusion confusion_of(const Evaluation & evaluation, size_t n_classes);

// Writes an HTML page with the confusion matrix, the most confident wrong answers and, if `metrics` names a run's log,
// the curves of the run.
void write_mistakes(
    const std::string & path,
    const ImageData &   data,
    const Evaluation &  evaluation,
    const std::string & metrics = ""
);

}  // namespace gt
