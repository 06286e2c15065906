// Image classification: mixup, stochastic depth, image sizes, normalization, counting of answers.
#include "models/blocks.h"
#include "models/classifier/adapt-vit.h"
#include "models/classifier/classifier.h"
#include "models/classifier/picture-data.h"
#include "models/init.h"
#include "tests/catch.h"
#include "tests/models/picture-files.h"

#include <algorithm>
#include <cmath>
#include <map>

using namespace gt;

namespace {

ModelConfig small_vit() {
    ModelConfig c;
    c.arch       = "vit";
    c.n_embd     = 32;
    c.n_layer    = 2;
    c.n_head     = 2;
    c.n_head_kv  = 2;
    c.n_ff       = 64;
    c.image_size = 8;
    c.patch_size = 4;
    c.channels   = 1;
    c.n_classes  = 5;
    return c;
}

struct Setup {
    Backend                      backend{"cpu", 2};
    std::unique_ptr<Transformer> model;
    GraphOptions                 options;

    explicit Setup(Form form, bool mixup = false, bool depth = false) {
        const ModelConfig c = small_vit();
        model               = make_model(backend, c, true);
        for (const TensorSpec & spec : tensor_specs(c)) {
            std::vector<float> values(spec.n_elements());
            init_tensor(spec, 3, values);
            for (float & v : values) {
                v = spec.init == Init::trunc_normal ? 5.0f * v : v;
            }
            model->weights().set(model->weights().at(spec.name), values);
        }
        options = {
            .B          = 4,
            .T          = c.n_positions(),
            .image_size = c.image_size,
            .channels   = 1,
            .form       = form,
            .smoothing  = 0.1f};
        options.mixup = mixup;
        options.depth = depth;
    }
    std::vector<std::vector<float>> grads() {
        std::vector<std::vector<float>> all;
        for (const Param & param : model->params()) {
            all.emplace_back(n_elements(param));
            model->weights().get_grad(param, all.back());
        }
        return all;
    }
};

Batch some_batch() {
    Batch batch{.n_samples = 4};
    for (int i = 0; i < 4 * 64; ++i) {
        batch.images.push_back(random_uniform(random_bits(8, i)) - 0.5f);
    }
    batch.labels     = {1, 4, 0, 2};
    batch.mix_labels = {4, 1, 2, 0};
    return batch;
}

// Largest difference between a and x * b + y * c, relative to the largest value.
double difference(
    const std::vector<std::vector<float>> & a,
    double                                  x,
    const std::vector<std::vector<float>> & b,
    double                                  y = 0.0,
    const std::vector<std::vector<float>> & c = {}
) {
    double worst = 0.0, largest = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
        for (size_t k = 0; k < a[i].size(); ++k) {
            const double want = x * b[i][k] + (c.empty() ? 0.0 : y * c[i][k]);
            worst             = std::max(worst, std::fabs(a[i][k] - want));
            largest           = std::max(largest, std::fabs(want));
        }
    }
    return worst / largest;
}

}  // namespace

TEST_CASE("mixup_is_the_weighted_sum_of_two_losses_and_their_gradients") {
    for (const Form form : {Form::fused, Form::portable}) {
        Setup     s(form, true), plain(form);
        Batch     batch = some_batch();
        StepGraph mixed(s.backend, *s.model, s.options),
            one(plain.backend, *plain.model, plain.options);
        const float mix = batch.mix = 0.7f;

        const double loss   = mixed.run(batch, 0.25f);
        const double loss_a = one.run(batch, 0.25f);
        const auto   a      = plain.grads();
        std::swap(batch.labels, batch.mix_labels);
        const double loss_b = one.run(batch, 0.25f);
        CHECK(loss == Approx(mix * loss_a + (1.0 - mix) * loss_b).epsilon(1e-5));
        CHECK(difference(s.grads(), mix, a, 1.0 - mix, plain.grads()) < 1e-5);
    }
}

TEST_CASE("stochastic_depth_drops_whole_branches") {
    for (const Form form : {Form::fused, Form::portable}) {
        Setup     s(form, false, true), plain(form);
        Batch     batch = some_batch();
        StepGraph dropped(s.backend, *s.model, s.options),
            all(plain.backend, *plain.model, plain.options);

        batch.depth.assign(4 * 4, 1.0f);  // nothing is dropped
        CHECK(dropped.run(batch) == Approx(all.run(batch)).epsilon(1e-5));
        CHECK(difference(s.grads(), 1.0, plain.grads()) < 1e-5);

        // the second block is dropped for all samples: its weights have no gradient
        for (size_t i = 0; i < 4; ++i) {
            batch.depth[4 * i + 2] = batch.depth[4 * i + 3] = 0.0f;
        }
        dropped.run(batch);
        for (const Param & param : s.model->params()) {
            std::vector<float> g(n_elements(param));
            s.model->weights().get_grad(param, g);
            const bool in_block = param.name.rfind("v.blk.1.", 0) == 0;
            const bool zero = std::all_of(g.begin(), g.end(), [](float x) { return x == 0.0f; });
            INFO(param.name);
            CHECK((!in_block || zero));
            CHECK((in_block || !zero || param.name.find("attn_k.bias") != std::string::npos));
        }
    }
}

TEST_CASE("depth_factors_depend_on_seed_step_host_and_sample_only") {
    const auto all = depth_factors(0.5f, 1, 7, "anna", 1000, 6);
    CHECK(all == depth_factors(0.5f, 1, 7, "anna", 1000, 6));
    CHECK(all != depth_factors(0.5f, 2, 7, "anna", 1000, 6));
    CHECK(all != depth_factors(0.5f, 1, 8, "anna", 1000, 6));
    CHECK(all != depth_factors(0.5f, 1, 7, "bert", 1000, 6));
    // those of fewer samples are the first ones
    const auto part = depth_factors(0.5f, 1, 7, "anna", 300, 6);
    CHECK(part.size() == 300 * 6);
    CHECK(std::equal(part.begin(), part.end(), all.begin()));
    // the mean stays 1, the last branch is dropped half of the time
    double mean = 0.0, n_dropped = 0.0;
    for (size_t i = 5; i < all.size(); i += 6) {
        mean += all[i] / 1000;
        n_dropped += all[i] == 0.0f;
    }
    CHECK(mean == Approx(1.0).margin(0.1));
    CHECK(n_dropped == Approx(500).margin(60));
}

TEST_CASE("rates_fall_towards_the_first_block_and_frozen_blocks_have_none") {
    ModelConfig c    = small_vit();
    c.layer_decay    = 0.5f;
    const auto rates = [&] {
        std::map<std::string, float> by_name;
        for (const TensorSpec & spec : tensor_specs(c)) {
            by_name[spec.name] = spec.rate;
        }
        return by_name;
    };
    auto all = rates();
    CHECK(all.at("v.patch_embd.weight") == 0.125f);
    CHECK(all.at("v.blk.0.attn_q.weight") == 0.25f);
    CHECK(all.at("v.blk.1.ffn_up.bias") == 0.5f);
    CHECK(all.at("v.cls.weight") == 1.0f);
    c.n_frozen = 1;
    all        = rates();
    CHECK(all.at("v.patch_embd.weight") == 0.0f);
    CHECK(all.at("v.blk.0.ffn_down.weight") == 0.0f);
    CHECK(all.at("v.blk.1.attn_q.weight") == 0.5f);
}

TEST_CASE("positions_are_interpolated_as_timm_does_it") {
    // torch.nn.functional.interpolate(x, size, mode="bicubic", antialias=True), as timm calls it
    const auto check = [](const std::vector<float> & got, const std::vector<float> & want) {
        REQUIRE(got.size() == want.size());
        for (size_t i = 0; i < want.size(); ++i) {
            CHECK(got[i] == Approx(want[i]).epsilon(1e-5));
        }
    };
    const std::vector<float> grid = {1, 2, 3, 5};
    check(
        resize_grid(grid, 1, {2, 2}, {3, 3}), {0.806960f, 1.335527f, 1.864094f, 1.901316f, 2.75f,
                                               3.598685f, 2.995672f, 4.164474f, 5.333276f}
    );
    CHECK(resize_grid(grid, 1, {2, 2}, {2, 2}) == grid);
    std::vector<float> squares;
    for (int i = 0; i < 20; ++i) {
        squares.push_back(float(i * i));
    }
    check(  // smaller, and not square
        resize_grid(squares, 1, {4, 5}, {2, 3}),
        {17.328163f, 31.013531f, 49.815887f, 160.774445f, 204.525940f, 253.394379f}
    );
}

TEST_CASE("an_adapted_model_keeps_its_other_weights") {
    ModelFile model = empty_model(small_vit());
    init_model(model, 1);
    model.config.class_names  = {"a", "b", "c", "d", "e"};
    model.config.image_stored = 9;
    const TempFolder folder;
    save_model(folder.str() + "/m.gguf", model);
    const ModelFile again =
        adapt_vit(load_model(folder.str() + "/m.gguf"), {.image = 16, .classes = 3}, 2);
    CHECK(again.config.n_positions() == 17);
    CHECK(again.config.class_names.empty());
    CHECK(again.config.image_stored == 0);
    save_model(folder.str() + "/again.gguf", again);  // the old names are not in the file either
    CHECK(load_model(folder.str() + "/again.gguf").config.class_names.empty());
    CHECK(again.at("v.blk.1.ffn_up.weight").data == model.at("v.blk.1.ffn_up.weight").data);
    const auto & was = model.at("v.position_embd.weight").data;
    const auto & now = again.at("v.position_embd.weight").data;
    REQUIRE(now.size() == 17 * 32);
    CHECK(std::equal(was.begin(), was.begin() + 32, now.begin()));  // the class token's
    CHECK(again.at("v.cls.weight").data.size() == 3 * 32);
    CHECK(
        error_has([&] { adapt_vit(empty_model(small_vit()), {.image = 10}, 1); }, "does not divide")
    );
}

TEST_CASE("a_slow_host_gets_as_many_pictures_and_depth_factors_as_it_asks_for") {
    const TempFolder folder;
    for (int i = 0; i < 9; ++i) {
        folder.write(
            format("%s/%d.png", i % 2 ? "cat" : "dog", i), encode(pattern(20, 20, 1, i), "png")
        );
    }
    const ImageData images(folder.str(), image_spec(small_vit()), {.val_fraction = 0.0});
    PictureData     data(
            images, {.host = "anna", .batch = 6, .depth = 0.5f, .n_branches = 4, .n_threads = 1}
        );
    const Batch whole = data.train(3, 6);
    for (const int64_t n : {2, 6, 5, 1}) {
        INFO(n);
        const Batch batch = data.train(3, n);
        CHECK(batch.n_samples == n);
        CHECK(static_cast<int64_t>(batch.labels.size()) == n);
        CHECK(static_cast<int64_t>(batch.depth.size()) == 4 * n);
        CHECK(batch.images.size() == whole.images.size() / 6 * static_cast<size_t>(n));
        CHECK(std::equal(batch.images.begin(), batch.images.end(), whole.images.begin()));
        CHECK(std::equal(batch.depth.begin(), batch.depth.end(), whole.depth.begin()));
    }
}

TEST_CASE("a_model_takes_names_and_normalization_from_its_data_and_keeps_them") {
    const TempFolder folder;
    for (int i = 0; i < 8; ++i) {
        folder.write(
            format("%s/%d.png", i % 2 ? "cat" : "dog", i), encode(pattern(20, 20, 1, i), "png")
        );
    }
    ModelConfig c = small_vit();
    c.n_classes   = 2;
    const ImageData data(folder.str(), image_spec(c), {});
    learn_from_data(c, data, "vit.gguf");
    CHECK(c.class_names == std::vector<std::string>{"cat", "dog"});
    CHECK(c.image_mean.size() == 1);
    CHECK(c.image_std[0] > 0.0f);
    CHECK(c.image_stored > 0);

    save_model(folder.str() + "/m.gguf", empty_model(c));
    const ModelConfig again = load_model(folder.str() + "/m.gguf").config;
    CHECK(again.class_names == c.class_names);
    CHECK(again.image_mean == c.image_mean);
    CHECK(again.image_std == c.image_std);
    CHECK(again.image_crop == c.image_crop);
    CHECK(again.image_stored == c.image_stored);

    c.n_classes = 3;
    CHECK(error_has(
        [&] { learn_from_data(c, data, "vit.gguf"); }, "vit.gguf has 3 classes, the data 2"
    ));
}
