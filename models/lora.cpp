#include "models/lora.h"

#include "ggml-train/base/text.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace gt {

// "attn_q" of "blk.3.attn_q.weight"; empty for tensors outside the blocks.
static std::string matrix_of(const TensorSpec & spec) {
    const size_t first = spec.name.find('.'), second = spec.name.find('.', first + 1);
    if (spec.kind != ParamKind::matrix || !spec.name.starts_with("blk.") ||
        second == std::string::npos) {
        return "";
    }
    return spec.name.substr(second + 1, spec.name.rfind('.') - second - 1);
}

static std::set<std::string> split_names(const std::string & list) {
    std::set<std::string> names;
    for (size_t begin = 0; begin < list.size();) {
        const size_t end = std::min(list.find(',', begin), list.size());
        names.insert(list.substr(begin, end - begin));
        begin = end + 1;
    }
    return names;
}

std::vector<TensorSpec> lora_specs(const LoraConfig & lora, const std::vector<TensorSpec> & base) {
    const std::set<std::string> wanted = split_names(lora.on);
    std::set<std::string>       known;
    std::vector<TensorSpec>     specs;
    for (const TensorSpec & spec : base) {
        const std::string name = matrix_of(spec);
        if (name.empty()) {
            continue;
        }
        known.insert(name);
        if (!wanted.empty() && !wanted.contains(name)) {
            continue;
        }
        const int64_t K = spec.ne[0], M = spec.ne[1];
        if (lora.rank > std::min(K, M)) {
            throw Error(format(
                "--lora %lld: %s is %lld x %lld; its adapter has at most that rank",
                static_cast<long long>(lora.rank), spec.name.c_str(), static_cast<long long>(K),
                static_cast<long long>(M)
            ));
        }
        // the deviation of PEFT's uniform initial values
        const auto std = static_cast<float>(1.0 / std::sqrt(3.0 * static_cast<double>(K)));
        specs.push_back(
            {spec.name + ".lora_a", {K, lora.rank, 1, 1}, ParamKind::matrix, Init::normal, std}
        );
        specs.push_back(
            {spec.name + ".lora_b", {lora.rank, M, 1, 1}, ParamKind::matrix, Init::zeros, 0}
        );
    }
    for (const std::string & name : wanted) {
        if (!known.contains(name)) {
            std::string all;
            for (const std::string & each : known) {
                all += (all.empty() ? "" : ", ") + each;
            }
            throw Error("--lora-on: the model has no matrix \"" + name + "\"; it has " + all);
        }
    }
    return specs;
}

void add_adapter(
    std::span<float>       W,
    std::span<const float> A,
    std::span<const float> B,
    int64_t                rank,
    float                  scale
) {
    const size_t r = static_cast<size_t>(rank), K = A.size() / r;
    for (size_t m = 0; m < B.size() / r; ++m) {
        float * row = W.data() + m * K;
        for (size_t i = 0; i < r; ++i) {
            const float   b = scale * B[m * r + i];
            const float * a = A.data() + i * K;
            for (size_t k = 0; k < K; ++k) {
                row[k] += b * a[k];
            }
        }
    }
}

}  // namespace gt
