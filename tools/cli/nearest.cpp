#include "tools/cli/nearest.h"

#include <algorithm>

namespace gt {

// Letters to insert, drop or change to get from a to b.
static size_t edit_distance(const std::string & a, const std::string & b) {
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a.size(); ++i) {
        size_t diagonal = row[0];
        row[0]          = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal            = row[j];
            row[j]              = std::min({change, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

std::string nearest(const std::string & name, const std::vector<std::string> & known) {
    std::string best;
    size_t      best_distance = std::max<size_t>(2, name.size() / 3) + 1;
    for (const std::string & candidate : known) {
        const bool   begins   = !name.empty() && candidate.starts_with(name);
        const size_t distance = begins ? 1 : edit_distance(name, candidate);
        if (distance < best_distance) {
            best          = candidate;
            best_distance = distance;
        }
    }
    return best;
}

}  // namespace gt
