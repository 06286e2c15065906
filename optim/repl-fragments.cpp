// optim/repl-fragments.cpp — loco: a round exchanges one fragment of the model, the fragments take turns.
//
// As in Streaming DiLoCo (arXiv 2501.18512), but with a message every step or every few steps, so that
// traffic is even and every tensor returns to the shared weights after n rounds. A fragment has whole
// matrices, and embeddings in bands of rows: what the optimizer treats as one unit is never cut.
#include "optim/tables.h"

#include <algorithm>

namespace gt {

std::unique_ptr<Replicator>
make_fragments(const OptimOptions & options, const Shapes & shapes, Wire wire) {
    // each band goes to the fragment that is the smallest so far; by tensor: the fragment of each row
    const ChunkTarget                chunk = parse_chunk(options.chunk);
    std::vector<int64_t>             sizes(options.fragments, 0);
    std::vector<std::vector<size_t>> fragment(shapes.size());
    for (size_t t = 0; t < shapes.size(); ++t) {
        const int64_t band = cut_rows(shapes[t], chunk, true);
        for (int64_t row = 0; row < shapes[t].rows; row += band) {
            const auto smallest = std::min_element(sizes.begin(), sizes.end());
            const auto n        = std::min(band, shapes[t].rows - row);
            *smallest += n * shapes[t].cols;
            fragment[t].insert(
                fragment[t].end(), static_cast<size_t>(n),
                static_cast<size_t>(smallest - sizes.begin())
            );
        }
    }
    const auto due = [fragment, n = sizes.size()](uint64_t round, int tensor, int64_t n_rows) {
        std::vector<int64_t> rows;
        for (int64_t row = 0; row < n_rows; ++row) {
            if (fragment[tensor][row] == round % n) {
                rows.push_back(row);
            }
        }
        return rows;
    };
    return make_rows(shapes, own_rows(shapes), due, wire);
}

}  // namespace gt
