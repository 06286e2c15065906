// optim/repl-full.cpp — everything, every round: the baseline `full`, and what diloco sends.
#include "optim/replicator.h"

#include <numeric>

namespace gt {

std::unique_ptr<Replicator> make_dense(const Shapes & shapes, Wire wire) {
    std::vector<int64_t> view;
    for (const TensorShape & shape : shapes) {
        view.push_back(shape.rows);
    }
    const auto all = [](uint64_t, int, int64_t n_rows) {
        std::vector<int64_t> rows(n_rows);
        std::iota(rows.begin(), rows.end(), 0);
        return rows;
    };
    return make_rows(shapes, std::move(view), all, wire);
}

}  // namespace gt
