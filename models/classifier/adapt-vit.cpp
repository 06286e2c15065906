#include "models/classifier/adapt-vit.h"

#include "models/init.h"

#include <algorithm>
#include <cmath>

namespace gt {

namespace {

// The cells that make one cell of a resampled line, with weights that add up to 1.
struct CubicTaps {
    int64_t            first = 0;
    std::vector<float> weights;
};

float cubic(float x) {
    const float a = -0.5f, d = std::fabs(x);
    return d < 1.0f   ? ((a + 2.0f) * d - (a + 3.0f)) * d * d + 1.0f
           : d < 2.0f ? ((a * d - 5.0f * a) * d + 8.0f * a) * d - 4.0f * a
                      : 0.0f;
}

std::vector<CubicTaps> cubic_taps(int64_t from, int64_t to) {
    const float            scale   = static_cast<float>(from) / static_cast<float>(to);
    const float            stretch = std::max(1.0f, scale);
    std::vector<CubicTaps> all;
    for (int64_t i = 0; i < to; ++i) {
        const float center = scale * (static_cast<float>(i) + 0.5f);
        const auto  begin  = static_cast<int64_t>(std::max(0.0f, center - 2.0f * stretch + 0.5f));
        const auto  end    = std::min(from, static_cast<int64_t>(center + 2.0f * stretch + 0.5f));
        CubicTaps   taps{.first = begin, .weights = {}};
        float       sum = 0.0f;
        for (int64_t k = begin; k < end; ++k) {
            taps.weights.push_back(cubic((static_cast<float>(k) - center + 0.5f) / stretch));
            sum += taps.weights.back();
        }
        for (float & weight : taps.weights) {
            weight /= sum;
        }
        all.push_back(std::move(taps));
    }
    return all;
}

}  // namespace

std::vector<float>
resize_grid(std::span<const float> positions, int64_t C, const Grid & from, const Grid & to) {
    GT_CHECK(
        static_cast<int64_t>(positions.size()) == C * from.width * from.height,
        "a grid of positions"
    );
    const auto         rows = cubic_taps(from.height, to.height);
    const auto         cols = cubic_taps(from.width, to.width);
    std::vector<float> out(static_cast<size_t>(C * to.width * to.height));
    for (int64_t i = 0; i < to.width * to.height; ++i) {
        const CubicTaps & row = rows[static_cast<size_t>(i / to.width)];
        const CubicTaps & col = cols[static_cast<size_t>(i % to.width)];
        for (size_t y = 0; y < row.weights.size(); ++y) {
            for (size_t x = 0; x < col.weights.size(); ++x) {
                const int64_t at = (row.first + static_cast<int64_t>(y)) * from.width + col.first +
                                   static_cast<int64_t>(x);
                const float w = row.weights[y] * col.weights[x];
                for (int64_t c = 0; c < C; ++c) {
                    out[static_cast<size_t>(i * C + c)] +=
                        w * positions[static_cast<size_t>(at * C + c)];
                }
            }
        }
    }
    return out;
}

static Grid grid_of(const ModelConfig & config) {
    return {config.image_size / config.patch_size, config.width() / config.patch_size};
}

ModelFile adapt_vit(ModelFile model, const VitChanges & changes, uint64_t seed) {
    const ModelConfig old    = model.config;
    ModelConfig       config = old;
    config.image_size        = changes.image ? changes.image : old.image_size;
    const int64_t width      = changes.width   ? changes.width
                               : changes.image ? config.image_size
                                               : old.width();
    config.image_width       = width == config.image_size ? 0 : width;
    const bool resized       = config.image_size != old.image_size || config.width() != old.width();
    if (resized) {
        config.image_stored = 0;  // chosen from the data
    }
    if (changes.classes && changes.classes != old.n_classes) {
        config.n_classes = changes.classes;
        config.class_names.clear();
    }
    check_config(config, "new-model");
    ModelFile made  = empty_model(config);
    made.keys       = std::move(model.keys);
    made.notes      = model.notes;
    const int64_t C = config.n_embd, first = config.has_class_token() ? 1 : 0;
    for (ModelTensor & tensor : made.tensors) {
        const std::string &  name = tensor.spec.name;
        std::vector<float> & was  = model.at(name).data;
        if (name == "v.position_embd.weight" && resized) {
            // the class token's position is not part of the grid
            const auto grid = resize_grid(
                std::span(was).subspan(static_cast<size_t>(first * C)), C, grid_of(old),
                grid_of(config)
            );
            tensor.data.assign(was.begin(), was.begin() + first * C);
            tensor.data.insert(tensor.data.end(), grid.begin(), grid.end());
        } else if (name.rfind("v.cls.", 0) == 0 && config.n_classes != old.n_classes) {
            init_tensor(tensor.spec, seed, tensor.data);
        } else {
            tensor.data = std::move(was);
        }
    }
    return made;
}

}  // namespace gt
