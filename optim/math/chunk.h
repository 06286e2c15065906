// optim/math/chunk.h — tensor geometry: chunks, units, and where a tensor may be cut into shards.
//
// Every tensor is viewed as a row-major matrix of `rows` x `cols`: rows = ne[last]; a vector is one
// column. The geometry follows the real shape, never a padded one, so all hosts derive the same one.
// Shards begin at multiples of cut_rows, so a host's message does not depend on its number of ranks.
#pragma once

#include "ggml-train/optimizer.h"

namespace gt {

// The largest divisor of n that is <= target (and >= 1).
int64_t largest_divisor(int64_t n, int64_t target);

// One tensor as the optimizer views it.
struct TensorShape {
    std::string name;
    int64_t     rows = 1, cols = 1;
    ParamKind   kind      = ParamKind::matrix;
    bool        is_vector = false;  // one dimension: rows = elements, cols = 1, never cut

    int64_t size() const { return rows * cols; }
};
using Shapes = std::vector<TensorShape>;
TensorShape shape_of(const ParamView & param);

// Rows [begin, end) of a tensor, a multiple of its cut_rows: the smallest part that a rank may own.
struct Unit {
    int     tensor = 0;
    int64_t begin = 0, end = 0;
};

// The value of --chunk: "64x64" (rows x columns; vectors by 64) or "4096" (1-D, over the flat tensor).
struct ChunkTarget {
    int64_t rows = 64, cols = 64;
    bool    flat = false;
};
ChunkTarget parse_chunk(const std::string & text);  // throws Error on anything else

// The chunks of one tensor: its memory viewed as rows x cols, in chunks of side_rows x side_cols.
// 1-D chunks are rows of that view: side_rows is 1 and side_cols = cols.
struct ChunkGrid {
    int64_t rows = 1, cols = 1;
    int64_t side_rows = 1, side_cols = 1;

    int64_t chunk_size() const { return side_rows * side_cols; }
    int64_t chunks_per_row() const { return cols / side_cols; }
    int64_t n_chunks() const { return rows / side_rows * chunks_per_row(); }
};
ChunkGrid chunk_grid(const TensorShape & shape, const ChunkTarget & target);

// A tensor may be cut at multiples of this number of its rows (and at its end).
// whole_matrices: the update rule needs whole matrices (muon).
int64_t cut_rows(const TensorShape & shape, const ChunkTarget & target, bool whole_matrices);

}  // namespace gt
