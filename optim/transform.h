// optim/transform.h — chunk <-> coefficients: what top-k chooses from and a receiver restores.
//
// dct: orthonormal DCT-II over both sides of a chunk (its row, if it has one only); the coefficient
// of frequency f down the rows and g along the columns has index g * side_rows + f.
// identity: the elements themselves, row by row.
// Chunks are handled in batches: one of side_rows x side_cols, or up to 16 of a single row each.
#pragma once

#include "optim/chunk.h"
#include "optim/dct.h"

namespace gt {

// The kept coefficients of a chunk: ascending indices and their values.
struct Sparse {
    std::vector<uint16_t> index;
    std::vector<float>    value;
};

class Transform {
public:
    virtual ~Transform() = default;

    // Chunks that follow one another in memory and are done together.
    virtual int64_t batch() const = 0;

    // Working memory, in floats, for forward and restore.
    virtual int64_t scratch_size() const = 0;

    // Coefficients of n_chunks <= batch() chunks, one chunk after the other, to `out`, each to be
    // multiplied by factor() still. x: the chunks, with `stride` floats from row to row.
    virtual void forward(
        const float * x, int64_t stride, int64_t n_chunks, float * out, float * scratch
    ) const = 0;

    virtual float factor() const = 0;

    // Elements of the chunks that have just these coefficients (all others zero), to x.
    virtual void restore(
        const Sparse * chunks, int64_t n_chunks, float * x, int64_t stride, float * scratch
    ) const = 0;
};

std::unique_ptr<Transform> make_dct_transform(const ChunkGrid & grid);
std::unique_ptr<Transform> make_identity_transform(const ChunkGrid & grid);

}  // namespace gt
