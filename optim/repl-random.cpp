// optim/repl-random.cpp — rows drawn from (seed, round, tensor) without repetition: the same rows on every
// host (arXiv 2502.06728).
#include "optim/tables.h"

#include <algorithm>

namespace gt {

std::unique_ptr<Replicator>
make_random(const OptimOptions & options, const Shapes & shapes, Wire wire) {
    const auto drawn = [rate = options.rate,
                        seed = options.seed](uint64_t round, int tensor, int64_t n_rows) {
        // each row gets a random number; the smallest ones are chosen
        std::vector<std::pair<uint64_t, int64_t>> lots(n_rows);
        for (int64_t i = 0; i < n_rows; ++i) {
            lots[i] = {random_bits(seed, round, tensor, i), i};
        }
        const int64_t n = rows_at_rate(n_rows, rate);
        std::nth_element(lots.begin(), lots.begin() + n - 1, lots.end());
        std::vector<int64_t> rows(n);
        std::transform(lots.begin(), lots.begin() + n, rows.begin(), [](auto & lot) {
            return lot.second;
        });
        return rows;
    };
    return make_rows(shapes, own_rows(shapes), drawn, wire);
}

}  // namespace gt
