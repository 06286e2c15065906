// ggml-train/data.h — interface: the samples that a host trains on, and its validation set.
// models/text and models/classifier implement it. Rank 0 makes all calls. Read next: evaluator.h.
#pragma once

#include "ggml-train/batch.h"

namespace gt {

class Evaluator;

struct Score {
    double loss          = -1.0;  // below 0: there is no validation data
    double accuracy      = -1.0;  // of a classifier, from 0 to 1; below 0: unknown
    double bits_per_byte = -1.0;  // of text; below 0: unknown
};

class Data {
public:
    virtual ~Data() = default;

    // This host's first n samples of a step: a function of seed, step and host name, whatever was
    // asked for before.
    virtual Batch train(uint64_t step, int64_t n) = 0;

    // Validates with the ranks of this host. last: the run is over; validate thoroughly.
    virtual Score validate(Evaluator & evaluator, bool last) = 0;

    // Of the training data: a run is resumed with the same data only. 0: unknown.
    virtual uint64_t digest() const = 0;

    // How long train() has waited for data since the start.
    virtual double seconds_waited() const { return 0.0; }
};

}  // namespace gt
