#include "models/vision/adapt-vit.h"

#include "models/init.h"

#include <algorithm>
#include <cmath>

namespace gt {

// Weights of the four cells around a point at distance t from the second one.
static std::array<float, 4> cubic_weights(float t) {
    const float a    = -0.75f;
    const auto  near = [&](float x) { return ((a + 2.0f) * x - (a + 3.0f)) * x * x + 1.0f; };
    const auto  far  = [&](float x) { return ((a * x - 5.0f * a) * x + 8.0f * a) * x - 4.0f * a; };
    return {far(t + 1.0f), near(t), near(1.0f - t), far(2.0f - t)};
}

std::vector<float> resize_grid(std::span<const float> grid, int64_t C, int64_t from, int64_t to) {
    GT_CHECK(static_cast<int64_t>(grid.size()) == C * from * from, "a square grid");
    struct Tap {
        std::array<int64_t, 4> at;
        std::array<float, 4>   weight;
    };
    std::vector<Tap> taps;
    for (int64_t i = 0; i < to; ++i) {
        const float x =
            (static_cast<float>(i) + 0.5f) * static_cast<float>(from) / static_cast<float>(to) -
            0.5f;
        const float floor = std::floor(x);
        Tap         tap{.at = {}, .weight = cubic_weights(x - floor)};
        for (int64_t k = 0; k < 4; ++k) {
            tap.at[k] = std::clamp<int64_t>(static_cast<int64_t>(floor) + k - 1, 0, from - 1);
        }
        taps.push_back(tap);
    }
    std::vector<float> out(static_cast<size_t>(C * to * to));
    for (int64_t y = 0; y < to; ++y) {
        for (int64_t x = 0; x < to; ++x) {
            float * cell = &out[static_cast<size_t>((y * to + x) * C)];
            for (int k = 0; k < 16; ++k) {
                const Tap &   ty = taps[y], &tx = taps[x];
                const float   w = ty.weight[k / 4] * tx.weight[k % 4];
                const float * from_cell =
                    &grid[static_cast<size_t>((ty.at[k / 4] * from + tx.at[k % 4]) * C)];
                for (int64_t c = 0; c < C; ++c) {
                    cell[c] += w * from_cell[c];
                }
            }
        }
    }
    return out;
}

ModelFile adapt_vit(ModelFile model, int64_t image, int64_t classes, uint64_t seed) {
    const ModelConfig old    = model.config;
    ModelConfig       config = old;
    config.image_size        = image ? image : old.image_size;
    if (config.image_size != old.image_size) {
        config.image_stored = 0;  // chosen from the data
    }
    if (classes && classes != old.n_classes) {
        config.n_classes = classes;
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
        if (name == "v.position_embd.weight" && config.image_size != old.image_size) {
            // the class token's position is not part of the grid
            const auto grid = resize_grid(
                std::span(was).subspan(static_cast<size_t>(first * C)), C,
                old.image_size / old.patch_size, config.image_size / config.patch_size
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
