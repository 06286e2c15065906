// ggml-train/cuda/demo.h — the FlexDeMo step and the update rules on a device, with the bits of optim/.
//
// All hosts must compute the same bits on any hardware, so every operation is rounded separately, in the
// order of the CPU code: no contraction, no atomics on floats, no approximation
// (tests/cuda/ptx-check.sh refuses PTX that has any). The host makes the tables
// (optim/device/dct-program.h). Messages are encoded and decoded on the device.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace gt::cuda {

using Stream = CUstream_st *;

// ---- a DCT as stages of small operations ---------------------------------------------------------------

// y[j] = x[p] * a + x[q] * b. q = -1: x[p] * a. q <= -2: the sum that dots[-2 - q] describes.
struct DctOp {
    int32_t p, q;
    float   a, b;
};
// x[first] * table[at] + x[first + 1] * table[at + stride] + ..., n terms from left to right.
struct DctDot {
    int32_t first, n, at, stride;
};
struct DctProgram {
    const DctOp *  ops   = nullptr;  // n_stages x n
    const DctDot * dots  = nullptr;
    const float *  table = nullptr;
    int32_t        n = 1, n_stages = 0;
};

// ---- chunks ----------------------------------------------------------------------------------------------

constexpr int32_t kMaxChunk = 4096;  // elements: two copies fit the shared memory of every GPU

// Chunks of one tensor, or of some rows of it; see optim/math/chunk.h, transform.h, values.h, indices.h.
struct DemoChunks {
    int32_t       rows = 1, cols = 1;  // of a chunk; one row: the transform is along it alone
    int32_t       k           = 1;     // coefficients sent
    int64_t       n_chunks    = 0;
    int64_t       per_row     = 1;      // chunks side by side
    int64_t       row_step    = 0;      // floats from one row of chunks to the next
    int64_t       stride      = 0;      // floats from row to row
    bool          plain       = false;  // elements are sent, not coefficients
    double        total       = 0.0;  // of the weights in a merge; 0: of each coefficient's senders
    float         factor      = 1.0f;
    int32_t       wire        = 0;   // optim/wire/values.h
    int32_t       low         = -1;  // low bits of an index; -1: bitmap, -2: all are sent
    int32_t       value_bytes = 0, index_bytes = 0;
    DctProgram    down, along;       // forward
    DctProgram    back;              // inverse: down the rows, or along the only one
    const float * cosine = nullptr;  // several rows: cos(pi (2c + 1) g / 2 cols), row g
};

// How a gradient is added to the momentum: m = decay * m + alpha * g.
struct DemoFold {
    const float * grad  = nullptr;  // null: none this step
    float         decay = 1.0f, alpha = 1.0f;
};
// Folds the gradient into the momentum, which is kept as coefficients, chunk after chunk; takes the
// k largest of each chunk out of it and writes the message's bytes (null: nothing is sent).
void demo_extract(
    Stream s, const DemoChunks & chunks, const DemoFold & fold, float * momentum, uint8_t * message
);

// Adds the content of one of our messages back to the momentum.
void demo_give_back(Stream s, const DemoChunks & chunks, const uint8_t * message, float * momentum);

// One host's bytes for these chunks, and its share in the mean. `bytes` is device memory.
struct DemoPiece {
    const uint8_t * bytes  = nullptr;
    double          weight = 1.0, scale = 1.0;
};
// The weighted mean of each coefficient over the hosts that sent it, or over all, transformed back to elements.
// `pieces` is device memory, in commit order. REQUIRES: the bytes were checked; weights > 0.
void demo_merge(
    Stream s, const DemoChunks & chunks, const DemoPiece * pieces, int n_pieces, float * update
);

// ---- the rest of a step ------------------------------------------------------------------------------------

// m = decay * m + alpha * g; values below 1e-30 become zero.
void fold(Stream s, int64_t n, float decay, float alpha, const float * g, float * m);

// u = sign(u), sign(0) = 0
void take_sign(Stream s, int64_t n, float * u);

// p = p * keep - step * u
void sgd(Stream s, int64_t n, float keep, float step, const float * u, float * p);

struct AdamStep {
    float keep = 1.0f;               // 1 - lr * weight decay
    float rate = 0.0f, root = 1.0f;  // lr / (1 - b1^t), 1 / sqrt(1 - b2^t)
    float b1 = 0.9f, b2 = 0.95f, eps = 1e-8f;
};
// The update is scale * u.
void adamw(
    Stream           s,
    int64_t          n,
    const AdamStep & step,
    float            scale,
    const float *    u,
    float *          p,
    float *          m,
    float *          v
);

// AdamW's moments in 8 bits (optim/rules/moments.h). A row has the scales of its blocks and then a code per
// value, four to a float: rows do not depend on each other, so that ranks may own any of them.
constexpr int64_t kMomentBlock = 256;

inline int64_t moment_blocks(int64_t cols) {
    return (cols + kMomentBlock - 1) / kMomentBlock;
}
inline int64_t moment_floats(int64_t cols) {  // of a row
    return moment_blocks(cols) + (cols + 3) / 4;
}

// Code c is the float of bits (first + c) << kMomentShift, times the scale; 0 is 0, and `most` is 1.
struct MomentCode {
    int32_t first, most, least;  // least: of values that are not zero
};
constexpr int        kMomentShift = 20;                     // leaves 3 bits of mantissa
constexpr MomentCode kFirstMoment{127 * 8 - 127, 127, 0};   // from 2^-16; bit 7 is the sign
constexpr MomentCode kSecondMoment{127 * 8 - 255, 255, 1};  // from 2^-32; its root divides

// The same as adamw for a matrix with such moments.
void adamw_q8(
    Stream           s,
    int64_t          rows,
    int64_t          cols,
    const AdamStep & step,
    float            scale,
    const float *    u,
    float *          p,
    float *          m,
    float *          v
);

// Arrays that one launch reads, cut into pieces, so that no thread reads much: piece i of an array is
// piece first + i of all.
struct Span {
    const void * data  = nullptr;
    int64_t      n     = 0;  // elements
    int64_t      first = 0;
    uint64_t     seed  = 0;  // of the digest of its first piece; each next one has the next seed
};
struct Spans {
    const Span * table    = nullptr;  // device memory, in the order of `first`
    int64_t      n        = 1;
    int64_t      n_pieces = 0;
    Span         only     = {};  // without table: the first of n arrays of floats, side by side
};

constexpr int64_t kSquaresPiece = 4096;   // floats
constexpr int64_t kDigestPiece  = 16384;  // bytes

// Sums of squares of each kSquaresPiece floats (the last of an array may be shorter), for clipping.
void sums_of_squares(Stream s, const Spans & arrays, double * parts);

// digest64 of each kDigestPiece bytes (the last of an array may be shorter). REQUIRES: data are
// multiples of 4.
void digests(Stream s, const Spans & arrays, uint64_t * out);

}  // namespace gt::cuda
