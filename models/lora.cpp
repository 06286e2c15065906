#include "models/lora.h"

#include "ggml-train/base/text.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace gt {

// "attn_q" of "blk.3.attn_q.weight" and of "v.blk.3.attn_q.weight"; empty for tensors outside the blocks.
static std::string matrix_of(const TensorSpec & spec) {
    const std::string blk = "blk.";
    const size_t      at  = spec.name.find(blk);
    if (spec.kind != ParamKind::matrix || at == std::string::npos) {
        return "";
    }
    const size_t begin = spec.name.find('.', at + blk.size()) + 1;
    return spec.name.substr(begin, spec.name.rfind('.') - begin);
}

// The classifier of a ViT: a matrix behind the blocks that has no row per token, and its bias.
static std::vector<TensorSpec> classifier_of(const std::vector<TensorSpec> & base) {
    const auto last  = std::find_if(base.rbegin(), base.rend(), [](const TensorSpec & spec) {
        return spec.kind == ParamKind::matrix;
    });
    const bool found = last != base.rend() && matrix_of(*last).empty() && !last->per_token;
    return found ? std::vector(last.base() - 1, base.end()) : std::vector<TensorSpec>{};
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
        TensorSpec A{spec.name + ".lora_a",
                     {K, lora.rank, 1, 1},
                     ParamKind::matrix,
                     Init::normal,
                     std,
                     spec.rate};
        TensorSpec B{spec.name + ".lora_b",
                     {lora.rank, M, 1, 1},
                     ParamKind::matrix,
                     Init::zeros,
                     0,
                     spec.rate};
        specs.push_back(std::move(A));
        specs.push_back(std::move(B));
    }
    for (const TensorSpec & spec : classifier_of(base)) {
        specs.push_back(spec);
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
