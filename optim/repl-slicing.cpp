// optim/repl-slicing.cpp — a window of rows that moves by its length each round (arXiv 2502.06728).
#include "optim/tables.h"

namespace gt {

std::unique_ptr<Replicator>
make_slicing(const OptimOptions & options, const Shapes & shapes, Wire wire) {
    const auto window = [rate = options.rate](uint64_t round, int, int64_t n_rows) {
        const int64_t        per   = rows_at_rate(n_rows, rate);
        const auto           n     = static_cast<uint64_t>(n_rows);
        const auto           begin = round % n * static_cast<uint64_t>(per) % n;
        std::vector<int64_t> rows;
        for (int64_t i = 0; i < per; ++i) {
            rows.push_back((static_cast<int64_t>(begin) + i) % n_rows);
        }
        return rows;
    };
    return make_rows(shapes, chunk_rows(shapes, options.chunk), window, wire);
}

}  // namespace gt
