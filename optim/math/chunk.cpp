#include "optim/math/chunk.h"

#include <cstdlib>
#include <numeric>

namespace gt {

// Indices within a chunk travel as 16 bits.
static constexpr int64_t kMaxChunk = 65536;

int64_t largest_divisor(int64_t n, int64_t target) {
    GT_CHECK(n >= 1, "a dimension has at least one element");
    for (int64_t side = std::min(n, target); side > 1; --side) {
        if (n % side == 0) {
            return side;
        }
    }
    return 1;
}

TensorShape shape_of(const ParamView & param) {
    int n_dims = 4;
    while (n_dims > 1 && param.ne[n_dims - 1] == 1) {
        --n_dims;
    }
    TensorShape shape{.name = param.name, .kind = param.kind, .is_vector = n_dims == 1};
    shape.rows = param.ne[n_dims - 1];
    for (int i = 0; i < n_dims - 1; ++i) {
        shape.cols *= param.ne[i];
    }
    return shape;
}

ChunkTarget parse_chunk(const std::string & text) {
    char *      end = nullptr;
    ChunkTarget target;
    target.rows     = std::strtol(text.c_str(), &end, 10);
    target.flat     = *end == '\0';
    target.cols     = target.flat ? target.rows : *end == 'x' ? std::strtol(end + 1, &end, 10) : 0;
    const bool fits = target.rows >= 1 && target.cols >= 1 && target.rows <= kMaxChunk &&
                      target.cols <= kMaxChunk &&
                      (target.flat || target.rows * target.cols <= kMaxChunk);
    if (*end != '\0' || !fits) {
        throw Error(
            "chunk " + text +
            ": expected ROWSxCOLUMNS such as 64x64, or one number such as "
            "4096 for flat chunks, of at most 65536 elements"
        );
    }
    return target;
}

ChunkGrid chunk_grid(const TensorShape & shape, const ChunkTarget & target) {
    if (shape.is_vector || target.flat) {
        const int64_t side = largest_divisor(shape.size(), target.cols);
        return {.rows = shape.size() / side, .cols = side, .side_rows = 1, .side_cols = side};
    }
    return {
        .rows      = shape.rows,
        .cols      = shape.cols,
        .side_rows = largest_divisor(shape.rows, target.rows),
        .side_cols = largest_divisor(shape.cols, target.cols)};
}

int64_t cut_rows(const TensorShape & shape, const ChunkTarget & target, bool whole_matrices) {
    if (shape.is_vector || (whole_matrices && shape.kind == ParamKind::matrix)) {
        return shape.rows;
    }
    const ChunkGrid grid = chunk_grid(shape, target);
    // flat chunks: the fewest rows that hold whole chunks
    const int64_t step =
        target.flat ? grid.side_cols / std::gcd(grid.side_cols, shape.cols) : grid.side_rows;
    constexpr int64_t kFewRows = 16;  // not worth a cut
    return std::min(shape.rows, step * ((kFewRows + step - 1) / step));
}

}  // namespace gt
