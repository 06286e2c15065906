// optim/repl-rows.cpp — sends whole rows of the momentum: what random, striding, slicing and full
// have in common. Which rows is a function of the round alone, so only values travel.
//
// A unit's bytes: its rows that travel, ascending, each in groups of 64 values (values.h, kind
// dense). The elements of a vector that travel count as one row.
#include "optim/replicator.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace gt {

namespace {

int64_t row_bytes(Wire wire, int64_t n) {
    const int64_t tail = n % kDenseGroup;
    return n / kDenseGroup * group_bytes(wire, Group::dense, kDenseGroup) +
           (tail > 0 ? group_bytes(wire, Group::dense, tail) : 0);
}

// Calls fn(first value, number of values, bytes before them) for each group of a row.
template <class Fn>
void each_group(Wire wire, int64_t n, Fn fn) {
    const int64_t full = group_bytes(wire, Group::dense, kDenseGroup);
    for (int64_t i = 0; i < n; i += kDenseGroup) {
        fn(i, std::min(kDenseGroup, n - i), i / kDenseGroup * full);
    }
}

class RowReplicator : public Replicator {
public:
    RowReplicator(
        const Shapes & shapes, std::vector<int64_t> view_rows, RowChooser chooser, Wire wire
    )
        : shapes_(shapes), view_rows_(std::move(view_rows)), chooser_(std::move(chooser)),
          wire_(wire) {}

    Plan plan(uint64_t round) const override {
        Plan plan{.round = round};
        plan.rows.resize(shapes_.size());
        for (int t = 0; t < static_cast<int>(shapes_.size()); ++t) {
            const int64_t        n_view = view_rows_[t], per = shapes_[t].rows / n_view;
            std::vector<int64_t> chosen = chooser_(round, t, n_view);
            std::sort(chosen.begin(), chosen.end());  // and a row that is named twice travels once
            chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
            for (const int64_t row : chosen) {
                for (int64_t i = 0; i < per; ++i) {
                    plan.rows[t].push_back(row * per + i);
                }
            }
        }
        return plan;
    }

    int64_t bytes(const Plan & plan, const Unit & unit) const override {
        const auto rows = of_unit(plan, unit);
        const auto n    = static_cast<int64_t>(rows.size());
        return shapes_[unit.tensor].is_vector ? row_bytes(wire_, n)
                                              : n * row_bytes(wire_, shapes_[unit.tensor].cols);
    }

    void extract(
        const Plan & plan, const Unit & unit, const Fold & fold, float * momentum, uint8_t * out
    ) const override {
        fold_elements(
            fold, fold.grad, (unit.end - unit.begin) * shapes_[unit.tensor].cols, momentum
        );
        if (out == nullptr) {
            return;
        }
        std::vector<float> row, sent;
        each_row(plan, unit, [&](std::span<const int64_t> at, int64_t n) {
            gather(momentum, at, n, row);
            sent.resize(n);
            each_group(wire_, n, [&](int64_t i, int64_t count, int64_t before) {
                encode_group(wire_, Group::dense, &row[i], count, out + before, &sent[i]);
            });
            for (int64_t i = 0; i < n; ++i) {
                row[i] = row[i] - sent[i];
            }
            scatter(row, at, momentum);
            out += row_bytes(wire_, n);
        });
    }

    void give_back(const Plan & plan, const Unit & unit, const uint8_t * bytes, float * momentum)
        const override {
        std::vector<float> row, sent;
        each_row(plan, unit, [&](std::span<const int64_t> at, int64_t n) {
            gather(momentum, at, n, row);
            sent.resize(n);
            each_group(wire_, n, [&](int64_t i, int64_t count, int64_t before) {
                const Piece piece{bytes + before};
                mean_of_group(wire_, std::span(&piece, 1), 0, count, 1.0, &sent[i]);
            });
            for (int64_t i = 0; i < n; ++i) {
                row[i] = row[i] + sent[i];
            }
            scatter(row, at, momentum);
            bytes += row_bytes(wire_, n);
        });
    }

    const char * check(const Plan & plan, const Unit & unit, const uint8_t * bytes, double & norm2)
        const override {
        const char * why = nullptr;
        float        x[kDenseGroup];
        each_row(plan, unit, [&](std::span<const int64_t>, int64_t n) {
            each_group(wire_, n, [&](int64_t, int64_t count, int64_t before) {
                const char * bad = decode_group(wire_, Group::dense, bytes + before, count, x);
                why              = bad != nullptr ? bad : why;
                for (int64_t j = 0; bad == nullptr && j < count; ++j) {
                    norm2 += static_cast<double>(x[j]) * x[j];
                }
            });
            bytes += row_bytes(wire_, n);
        });
        return why;
    }

    void merge(const Plan & plan, const Unit & unit, std::span<const Piece> pieces, float * update)
        const override {
        const TensorShape & shape = shapes_[unit.tensor];
        std::memset(update, 0, (unit.end - unit.begin) * shape.cols * sizeof(float));
        double total = 0.0;
        for (const Piece & piece : pieces) {
            total += piece.weight;
        }
        std::vector<float> row;
        int64_t            done = 0;
        each_row(plan, unit, [&](std::span<const int64_t> at, int64_t n) {
            row.resize(n);
            each_group(wire_, n, [&](int64_t i, int64_t count, int64_t before) {
                mean_of_group(wire_, pieces, done + before, count, total, &row[i]);
            });
            scatter(row, at, update);
            done += row_bytes(wire_, n);
        });
    }

private:
    // The rows of the plan that lie in the unit.
    std::span<const int64_t> of_unit(const Plan & plan, const Unit & unit) const {
        const auto & rows  = plan.rows[unit.tensor];
        const auto   begin = std::lower_bound(rows.begin(), rows.end(), unit.begin);
        const auto   end   = std::lower_bound(begin, rows.end(), unit.end);
        return {begin, end};
    }

    // Calls fn(offsets, n) row by row: n neighbours from the one offset on, or, for a vector, the
    // elements at the n offsets.
    template <class Fn>
    void each_row(const Plan & plan, const Unit & unit, Fn fn) const {
        const TensorShape & shape = shapes_[unit.tensor];
        const auto          rows  = of_unit(plan, unit);
        if (shape.is_vector) {
            fn(rows, static_cast<int64_t>(rows.size()));
            return;
        }
        for (const int64_t row : rows) {
            const int64_t offset = (row - unit.begin) * shape.cols;
            fn(std::span(&offset, 1), shape.cols);
        }
    }

    static void
    gather(const float * x, std::span<const int64_t> at, int64_t n, std::vector<float> & row) {
        row.resize(n);
        if (static_cast<int64_t>(at.size()) == n) {
            std::transform(at.begin(), at.end(), row.begin(), [&](int64_t i) { return x[i]; });
        } else {
            std::copy(x + at[0], x + at[0] + n, row.begin());
        }
    }

    static void scatter(const std::vector<float> & row, std::span<const int64_t> at, float * x) {
        if (at.size() == row.size()) {
            for (size_t i = 0; i < row.size(); ++i) {
                x[at[i]] = row[i];
            }
        } else {
            std::copy(row.begin(), row.end(), x + at[0]);
        }
    }

    Shapes               shapes_;
    std::vector<int64_t> view_rows_;
    RowChooser           chooser_;
    Wire                 wire_;
};

}  // namespace

void fold_elements(const Fold & fold, const float * grad, int64_t n, float * momentum) {
    if (grad == nullptr) {
        return;
    }
    constexpr float kTiny = 1e-30f;
    for (int64_t i = 0; i < n; ++i) {
        const float x = fold.decay * momentum[i] + fold.alpha * grad[i];
        momentum[i]   = std::fabs(x) < kTiny ? 0.0f : x;
    }
}

void mean_of_group(
    Wire wire, std::span<const Piece> pieces, int64_t offset, int64_t n, double total, float * mean
) {
    float  x[kDenseGroup];
    double sum[kDenseGroup] = {};
    for (const Piece & piece : pieces) {
        const char * why = decode_group(wire, Group::dense, piece.bytes + offset, n, x);
        GT_CHECK(why == nullptr, "a piece was not checked");
        const double factor = piece.weight * piece.scale;
        for (int64_t i = 0; i < n; ++i) {
            sum[i] = sum[i] + factor * static_cast<double>(x[i]);
        }
    }
    for (int64_t i = 0; i < n; ++i) {
        mean[i] = static_cast<float>(sum[i] / total);
    }
}

int64_t rows_at_rate(int64_t n, float rate) {
    // a rate of 0.3 is meant as 0.3, though a float is a little below or above
    const double exact = static_cast<double>(rate) * static_cast<double>(n) * 1.000001;
    return std::clamp<int64_t>(static_cast<int64_t>(exact), 1, n);
}

std::vector<int64_t> chunk_view(const Shapes & shapes, const ChunkTarget & chunk) {
    std::vector<int64_t> view;
    for (const TensorShape & shape : shapes) {
        view.push_back(largest_divisor(shape.rows, chunk.rows));
    }
    return view;
}

std::unique_ptr<Replicator>
make_rows(const Shapes & shapes, std::vector<int64_t> view_rows, RowChooser chooser, Wire wire) {
    return std::make_unique<RowReplicator>(shapes, std::move(view_rows), std::move(chooser), wire);
}

}  // namespace gt
