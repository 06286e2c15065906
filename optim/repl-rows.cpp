// optim/repl-rows.cpp — sends whole rows of the momentum: the common part of random, striding, slicing,
// and dense (full, diloco). The choice of rows depends on the round alone, so only values travel.
//
// A unit's bytes: its chosen rows, ascending, each in groups (values.h, kind dense). The
// chosen elements of a vector count as one row.
#include "optim/tables.h"

#include <algorithm>
#include <numeric>

namespace gt {

namespace {

// Calls fn(first value, number of values, bytes before them) for each group of a row.
template <class Fn>
void each_group(Wire wire, int64_t n, Fn fn) {
    const int64_t size = dense_group(wire), full = group_bytes(wire, Group::dense, size);
    for (int64_t i = 0; i < n; i += size) {
        fn(i, std::min(size, n - i), i / size * full);
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
            std::sort(chosen.begin(), chosen.end());
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
        return shapes_[unit.tensor].is_vector ? dense_bytes(wire_, n)
                                              : n * dense_bytes(wire_, shapes_[unit.tensor].cols);
    }

    void extract(
        const Plan & plan, const Unit & unit, const Fold & fold, float * momentum, uint8_t * out
    ) const override {
        fold_elements(fold, (unit.end - unit.begin) * shapes_[unit.tensor].cols, momentum);
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
            out += dense_bytes(wire_, n);
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
            bytes += dense_bytes(wire_, n);
        });
    }

    const char * check(const Plan & plan, const Unit & unit, const uint8_t * bytes, double & norm2)
        const override {
        const char *       why = nullptr;
        std::vector<float> row;
        each_row(plan, unit, [&](std::span<const int64_t>, int64_t n) {
            const char * bad = decode_row(wire_, bytes, n, row);
            why              = bad != nullptr ? bad : why;
            for (int64_t j = 0; bad == nullptr && j < n; ++j) {
                norm2 += static_cast<double>(row[j]) * row[j];
            }
            bytes += dense_bytes(wire_, n);
        });
        return why;
    }

    void merge(const Plan & plan, const Unit & unit, std::span<const Piece> pieces, float * update)
        const override {
        set_zero(unit, update);
        each_mean(plan, unit, pieces, [&](std::span<const int64_t> at, std::vector<float> & row) {
            scatter(row, at, update);
        });
    }

    void write_mean(
        const Plan & plan, const Unit & unit, std::span<const Piece> pieces, Bytes & out
    ) const override {
        const Wire wire = mean_wire(wire_, Group::dense);
        each_mean(plan, unit, pieces, [&](std::span<const int64_t>, std::vector<float> & row) {
            const auto   n  = static_cast<int64_t>(row.size());
            const size_t at = out.size();
            out.resize(at + static_cast<size_t>(dense_bytes(wire, n)));
            each_group(wire, n, [&](int64_t i, int64_t count, int64_t before) {
                uint8_t * to = out.data() + at + before;
                encode_group(wire, Group::dense, &row[i], count, to, &row[i]);
            });
        });
    }

    const char *
    check_mean(const Plan & plan, const Unit & unit, std::span<const uint8_t> & in) const override {
        const char *       why = nullptr;
        std::vector<float> row;
        each_row(plan, unit, [&](std::span<const int64_t>, int64_t n) {
            const auto size = static_cast<size_t>(dense_bytes(mean_wire(wire_, Group::dense), n));
            if (why == nullptr && in.size() < size) {
                why = "the mean is too short";
            }
            if (why == nullptr) {
                why = decode_row(mean_wire(wire_, Group::dense), in.data(), n, row);
                in  = in.subspan(size);
            }
        });
        return why;
    }

    void read_mean(const Plan & plan, const Unit & unit, const uint8_t * bytes, float * update)
        const override {
        set_zero(unit, update);
        std::vector<float> row;
        each_row(plan, unit, [&](std::span<const int64_t> at, int64_t n) {
            const char * why = decode_row(mean_wire(wire_, Group::dense), bytes, n, row);
            GT_CHECK(why == nullptr, "a mean was not checked");
            scatter(row, at, update);
            bytes += dense_bytes(mean_wire(wire_, Group::dense), n);
        });
    }

private:
    // The chosen rows in the unit.
    std::span<const int64_t> of_unit(const Plan & plan, const Unit & unit) const {
        const auto & rows  = plan.rows[unit.tensor];
        const auto   begin = std::lower_bound(rows.begin(), rows.end(), unit.begin);
        const auto   end   = std::lower_bound(begin, rows.end(), unit.end);
        return {begin, end};
    }

    // Calls fn(offsets, n) for each row: n contiguous elements at the one offset, or, for a vector, the
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

    // Returns null, or why the bytes of a row of n values are invalid.
    static const char *
    decode_row(Wire wire, const uint8_t * bytes, int64_t n, std::vector<float> & row) {
        const char * why = nullptr;
        row.resize(n);
        each_group(wire, n, [&](int64_t i, int64_t count, int64_t before) {
            const char * bad = decode_group(wire, Group::dense, bytes + before, count, &row[i]);
            why              = bad != nullptr ? bad : why;
        });
        return why;
    }

    // Calls fn(offsets, mean) for each row, as each_row does.
    template <class Fn>
    void
    each_mean(const Plan & plan, const Unit & unit, std::span<const Piece> pieces, Fn fn) const {
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
            fn(at, row);
            done += dense_bytes(wire_, n);
        });
    }

    void set_zero(const Unit & unit, float * update) const {
        std::fill_n(update, (unit.end - unit.begin) * shapes_[unit.tensor].cols, 0.0f);
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

int64_t rows_at_rate(int64_t n, float rate) {
    // the factor makes up for a float rate slightly below the decimal that was meant
    const double exact = static_cast<double>(rate) * static_cast<double>(n) * 1.000001;
    return std::clamp<int64_t>(static_cast<int64_t>(exact), 1, n);
}

std::vector<int64_t> own_rows(const Shapes & shapes) {
    std::vector<int64_t> view;
    for (const TensorShape & shape : shapes) {
        view.push_back(shape.rows);
    }
    return view;
}

std::vector<int64_t> chunk_rows(const Shapes & shapes, const std::string & chunk) {
    const int64_t        target = parse_chunk(chunk).rows;
    std::vector<int64_t> view;
    for (const TensorShape & shape : shapes) {
        view.push_back(largest_divisor(shape.rows, target));
    }
    return view;
}

std::unique_ptr<Replicator>
make_rows(const Shapes & shapes, std::vector<int64_t> view_rows, RowChooser chooser, Wire wire) {
    return std::make_unique<RowReplicator>(shapes, std::move(view_rows), std::move(chooser), wire);
}

std::unique_ptr<Replicator> make_dense(const OptimOptions &, const Shapes & shapes, Wire wire) {
    const auto all = [](uint64_t, int, int64_t n_rows) {
        std::vector<int64_t> rows(n_rows);
        std::iota(rows.begin(), rows.end(), 0);
        return rows;
    };
    return make_rows(shapes, own_rows(shapes), all, wire);
}

}  // namespace gt
