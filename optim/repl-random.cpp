// optim/repl-random.cpp — rows drawn from (seed, round, tensor), without repetition: every host draws
// the same (arXiv 2502.06728).
#include "optim/replicator.h"

#include <algorithm>

namespace gt {

std::unique_ptr<Replicator>
make_random(const Shapes & shapes, float rate, uint64_t seed, Wire wire) {
    std::vector<int64_t> view;
    for (const TensorShape & shape : shapes) {
        view.push_back(shape.rows);
    }
    const auto drawn = [rate, seed](uint64_t round, int tensor, int64_t n_rows) {
        // every row draws a number; the smallest are in
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
    return make_rows(shapes, std::move(view), drawn, wire);
}

}  // namespace gt
