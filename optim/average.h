// optim/average.h — an optimizer that also keeps a running average of the weights (EMA): average += (1 - d) (weights -
// average) after each round, d = min(decay, (1 + n) / (10 + n)) for the n-th. The average follows the weights that all hosts share, so it
// is equal on all of them, too; it is part of the state.
#pragma once

#include "ggml-train/optimizer.h"

#include <memory>

namespace gt {

class Workers;

// always: rounds without messages count, too (a host that trains alone).
std::unique_ptr<Optimizer> with_average(
    std::unique_ptr<Optimizer> inner,
    std::vector<ParamView>     params,
    float                      decay,
    bool                       always,
    Workers &                  workers
);

}  // namespace gt
