#include "ggml-train/cuda/spans.h"
#include "ggml-train/shard/ranks.h"
#include "optim/math/squares.h"
#include "optim/tables.h"

#include <algorithm>
#include <cmath>

namespace gt {

int64_t grad_norm_parts(const OptimOptions & options, const std::vector<ParamView> & params) {
    int64_t n = 0;
    for (const ParamView & param : params) {
        const int64_t rows = shape_of(param).rows, step = cut_rows(options, param);
        n += (rows + step - 1) / step;
    }
    return n;
}

// The same sums, by the kernel.
static void grad_norm_on_device(const Units & units, Device & device, std::span<double> parts) {
    std::vector<cuda::Span> grads;
    for (const int i : units.owned()) {
        const Unit & unit = units.all()[i];
        grads.push_back(
            {.data = units.params()[unit.tensor].grad.data() + units.offset(unit),
             .n    = units.size(unit)}
        );
    }
    const std::vector<double> pieces = on_pieces<double>(
        device, grads, cuda::kSquaresPiece,
        [](const cuda::Kernels & kernels, const cuda::Spans & spans, double * sums) {
            kernels.sums_of_squares(nullptr, spans, sums);
        }
    );
    auto next = pieces.begin();
    for (size_t i = 0; i < grads.size(); ++i) {
        for (int64_t at = 0; at < grads[i].n; at += cuda::kSquaresPiece) {
            parts[units.owned()[i]] = parts[units.owned()[i]] + *next++;
        }
    }
}

// A sum of squares per unit; zero for units of other ranks.
static void sum_units(const Units & units, std::span<double> parts) {
    GT_CHECK(parts.size() == units.all().size(), "one part per unit of the model");
    std::fill(parts.begin(), parts.end(), 0.0);
    if (Device * const device = units.params().empty() ? nullptr : units.params()[0].device) {
        grad_norm_on_device(units, *device, parts);
        return;
    }
    units.run_owned([&](int i, float *) {
        const Unit & unit = units.all()[i];
        parts[i]          = sum_of_squares(
                     units.params()[unit.tensor].grad.data() + units.offset(unit), units.size(unit)
                 );
    });
}

void grad_norm(
    const OptimOptions &           options,
    const std::vector<ParamView> & params,
    Workers &                      workers,
    std::span<double>              parts
) {
    sum_units(make_units(options, params, workers), parts);
}

double grad_norm(std::span<const double> parts) {
    double total = 0.0;
    for (const double part : parts) {
        total = total + part;
    }
    return std::sqrt(total);
}

double grad_norm(const Units & units, LocalGroup * ranks) {
    std::vector<double> parts(units.all().size());
    sum_units(units, parts);
    if (!ranks) {
        return grad_norm(parts);
    }
    std::vector<double> sums(parts.size(), 0.0);
    for (const std::vector<double> & others : from_all(*ranks, parts)) {
        for (size_t i = 0; i < sums.size(); ++i) {
            sums[i] += others[i];
        }
    }
    return grad_norm(sums);
}

double
grad_norm(const OptimOptions & options, const std::vector<ParamView> & params, Workers & workers) {
    std::vector<double> parts(grad_norm_parts(options, params));
    grad_norm(options, params, workers, parts);
    return grad_norm(parts);
}

}  // namespace gt
