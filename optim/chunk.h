// optim/chunk.h — cuts a tensor into equal chunks; the only divisor code.
//
// Every tensor is seen as a matrix of `rows` x `cols`, row-major: rows = ne[last], a vector being
// one column. Geometry follows the real shape, never a padded one, so that all hosts agree on it.
// A rank's shard is cut where cut_rows says: then the message of a host does not depend on the
// number of its ranks. Read next: replicator.h.
#pragma once

#include "ggml-train/optimizer.h"

namespace gt {

// The largest divisor of n that is <= target (and >= 1).
int64_t largest_divisor(int64_t n, int64_t target);

// One tensor as the optimizer sees it.
struct TensorShape {
    std::string name;
    int64_t     rows = 1, cols = 1;
    ParamKind   kind      = ParamKind::matrix;
    bool        is_vector = false;  // a single dimension: rows = elements, cols = 1, never cut

    int64_t size() const { return rows * cols; }
};
TensorShape shape_of(const ParamView & param);

// What --chunk asks for: "64x64" (rows x columns; vectors by 64) or "4096" (1-D, flattened).
struct ChunkTarget {
    int64_t rows = 64, cols = 64;
    bool    flat = false;
};
ChunkTarget parse_chunk(const std::string & text);  // throws Error on anything else

// The chunks of one tensor: its memory seen as rows x cols, in chunks of side_rows x side_cols.
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
// whole_matrices: the rule needs matrices in one piece (muon).
int64_t cut_rows(const TensorShape & shape, const ChunkTarget & target, bool whole_matrices);

}  // namespace gt
