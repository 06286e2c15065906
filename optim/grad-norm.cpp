#include "ggml-train/cuda/table.h"
#include "optim/optim.h"
#include "optim/squares.h"
#include "optim/units.h"

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

// The same sums, by the kernel; a tensor's units follow one another.
static void grad_norm_on_device(const Units & units, Device & device, std::span<double> parts) {
    auto * sums = static_cast<double *>(device.scratch(parts.size_bytes()));
    for (size_t i = 0; i < units.owned().size();) {
        const int              first = units.owned()[i];
        const Unit &           unit  = units.all()[first];
        const std::span<float> grad  = units.params()[unit.tensor].grad;
        device.kernels().sums_of_squares(
            nullptr, static_cast<int64_t>(grad.size()), units.size(unit), grad.data(), sums + first
        );
        while (i < units.owned().size() && units.all()[units.owned()[i]].tensor == unit.tensor) {
            ++i;
        }
    }
    std::vector<double> all(parts.size());
    device.read(all.data(), sums, parts.size_bytes());
    for (const int i : units.owned()) {
        parts[i] = all[i];
    }
}

void grad_norm(
    const OptimOptions &           options,
    const std::vector<ParamView> & params,
    Workers &                      workers,
    std::span<double>              parts
) {
    const Units units = make_units(options, params, workers);
    GT_CHECK(parts.size() == units.all().size(), "grad_norm_parts says how many parts there are");
    std::fill(parts.begin(), parts.end(), 0.0);
    if (Device * const device = params.empty() ? nullptr : params[0].device) {
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

double grad_norm(std::span<const double> parts) {
    double total = 0.0;
    for (const double part : parts) {
        total = total + part;
    }
    return std::sqrt(total);
}

double
grad_norm(const OptimOptions & options, const std::vector<ParamView> & params, Workers & workers) {
    std::vector<double> parts(grad_norm_parts(options, params));
    grad_norm(options, params, workers, parts);
    return grad_norm(parts);
}

}  // namespace gt
