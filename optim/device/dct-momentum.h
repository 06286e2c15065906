// optim/device/dct-momentum.h — interface: demo's momentum beside the gradients, on a device that runs none
// of our kernels. momentum-graph.h implements it in ggml's ops.
#pragma once

#include "optim/math/chunk.h"

namespace gt {

// How the momentum of a tensor is cut, and how many coefficients of a chunk are sent.
struct DctChunks {
    ChunkGrid grid;
    int64_t   k = 1;
};

class DctMomentum {
public:
    // k coefficients of each chunk of a tensor, chunk after chunk: their places in the chunk, and values.
    struct Coefficients {
        std::vector<int32_t> place;
        std::vector<float>   value;
    };

    virtual ~DctMomentum() = default;

    // Sum of the squares of all gradients.
    [[nodiscard]] virtual double grad_squares() = 0;

    // m = decay·m + alpha·DCT(g), for all tensors
    virtual void fold(float alpha) = 0;

    // The k largest of each chunk, in no order, by tensor. They stay in the momentum.
    virtual std::vector<Coefficients> largest() = 0;

    // Adds the values to the momentum. REQUIRES: k different places in each chunk.
    virtual void add(const std::vector<Coefficients> & tensors) = 0;

    // The momentum of a tensor, chunk after chunk, as repl-demo.cpp has it.
    virtual Floats tensor(size_t i) = 0;
};

}  // namespace gt
