// optim/repl-striding.cpp — every n-th row; the offset grows by one each round, so every row is sent in
// turn (arXiv 2502.06728, whose code keeps the offset fixed when rows divide evenly).
#include "optim/tables.h"

#include <algorithm>

namespace gt {

std::unique_ptr<Replicator>
make_striding(const OptimOptions & options, const Shapes & shapes, Wire wire) {
    const auto strided = [rate = options.rate](uint64_t round, int, int64_t n_rows) {
        const int64_t per    = rows_at_rate(n_rows, rate);
        const int64_t stride = (n_rows + per - 1) / per;
        const auto    offset = static_cast<int64_t>(round % static_cast<uint64_t>(stride));
        // Steps of `stride` modulo n_rows may hit a row twice before `per` are found: the next free
        // row replaces it.
        std::vector<bool>    taken(n_rows, false);
        std::vector<int64_t> rows;
        for (int64_t i = 0; i < per; ++i) {
            int64_t row = (offset + i * stride) % n_rows;
            while (taken[row]) {
                row = (row + 1) % n_rows;
            }
            taken[row] = true;
            rows.push_back(row);
        }
        return rows;
    };
    return make_rows(shapes, chunk_rows(shapes, options.chunk), strided, wire);
}

}  // namespace gt
