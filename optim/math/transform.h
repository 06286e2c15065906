// optim/math/transform.h — chunk <-> coefficients: the input of top-k and the output of a receiver.
//
// dct: orthonormal DCT-II over both sides of a chunk (or its single row); the coefficient of frequency f
// down the rows and g along the columns has index g * side_rows + f.
// identity: the elements themselves, row by row.
// Chunks are processed in batches: one chunk of several rows, or up to 16 chunks of one row.
#pragma once

#include "optim/math/chunk.h"
#include "optim/math/dct.h"

namespace gt {

// The kept coefficients of a chunk: ascending indices and their values.
struct Sparse {
    std::vector<uint16_t> index;
    std::vector<float>    value;
};

class Transform {
public:
    virtual ~Transform() = default;

    // The number of consecutive chunks processed together.
    virtual int64_t batch() const = 0;

    // Working memory, in floats, for forward and restore.
    virtual int64_t scratch_size() const = 0;

    // Writes the coefficients of n_chunks <= batch() chunks, divided by factor(), to `out`, chunk after
    // chunk. x: the chunks, with `stride` floats from row to row.
    virtual void forward(
        const float * x, int64_t stride, int64_t n_chunks, float * out, float * scratch
    ) const = 0;

    virtual float factor() const = 0;

    // Writes the elements of chunks with these coefficients, all others zero, to x.
    virtual void restore(
        const Sparse * chunks, int64_t n_chunks, float * x, int64_t stride, float * scratch
    ) const = 0;
};

std::unique_ptr<Transform> make_dct_transform(const ChunkGrid & grid);
std::unique_ptr<Transform> make_identity_transform(const ChunkGrid & grid);

}  // namespace gt
