#include "models/init.h"

#include "ggml-train/base/fixed-math.h"

#include <algorithm>
#include <cmath>
#include <thread>

namespace gt {

// Inverse of the normal distribution function (P. J. Acklam's rational approximation, relative error
// 1e-9), from operations that give the same bits on every machine.
static double normal_quantile(double p) {
    static const double a[] = {-3.969683028665376e+01, 2.209460984245205e+02,
                               -2.759285104469687e+02, 1.383577518672690e+02,
                               -3.066479806614716e+01, 2.506628277459239e+00};
    static const double b[] = {
        -5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02,
        6.680131188771972e+01, -1.328068155288572e+01};
    static const double c[] = {-7.784894002430293e-03, -3.223964580411365e-01,
                               -2.400758277161838e+00, -2.549732539343734e+00,
                               4.374664141464968e+00,  2.938163982698783e+00};
    static const double d[] = {
        7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00};
    if (p > 0.5) {
        return -normal_quantile(1.0 - p);
    }
    if (p < 0.02425) {
        const double q = std::sqrt(-2.0 * fixed_log(p));
        return (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) /
               ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1.0);
    }
    const double q = p - 0.5, r = q * q;
    return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
           (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1.0);
}

void init_tensor(const TensorSpec & spec, uint64_t seed, std::span<float> values) {
    GT_CHECK(static_cast<int64_t>(values.size()) == spec.n_elements(), spec.name.c_str());
    if (spec.init == Init::zeros || spec.init == Init::ones) {
        std::fill(values.begin(), values.end(), spec.init == Init::ones ? 1.0f : 0.0f);
        return;
    }
    // probability of each tail that trunc_normal cuts, at two deviations
    const double   tail = spec.init == Init::trunc_normal ? 0.022750131948179207 : 0.0;
    const uint64_t name = digest64(spec.name);
    for (size_t i = 0; i < values.size(); ++i) {
        const uint64_t bits = random_bits(seed, name, i);
        const double   u    = (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;  // inside (0, 1)
        values[i] = static_cast<float>(spec.std * normal_quantile(tail + (1.0 - 2.0 * tail) * u));
    }
}

void init_model(ModelFile & model, uint64_t seed) {
    Workers workers(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
    workers.run([&](int i, int n) {
        for (size_t t = i; t < model.tensors.size(); t += n) {
            init_tensor(model.tensors[t].spec, seed, model.tensors[t].data);
        }
    });
}

bool is_trained(const ModelFile & model) {
    return std::any_of(model.tensors.begin(), model.tensors.end(), [](const ModelTensor & tensor) {
        const Init  init    = tensor.spec.init;
        const float initial = init == Init::ones ? 1.0f : 0.0f;
        return (init == Init::ones || init == Init::zeros) &&
               std::any_of(tensor.data.begin(), tensor.data.end(), [&](float x) {
                   return x != initial;
               });
    });
}

}  // namespace gt
