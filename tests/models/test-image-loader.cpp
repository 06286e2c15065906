// Resizing, augmentation and batches: the content of samples, and that it is reproducible.
#include "models/vision/image-loader.h"
#include "models/vision/resize.h"
#include "tests/catch.h"
#include "tests/models/picture-files.h"

#include <algorithm>
#include <numeric>
#include <set>

using namespace gt;

static ImageSpec plain_spec(int size, int channels) {
    ImageSpec spec = {.size = size, .channels = channels, .crop = 1.0f, .stored = size};
    for (int c = 0; c < channels; ++c) {
        spec.deviation[c] = 1.0f;
    }
    return spec;
}

// n pictures in two classes.
static void fill(const TempFolder & folder, int n) {
    for (int i = 0; i < n; ++i) {
        folder.write(
            format("%c/%02d.png", 'a' + i % 2, i), encode(pattern(20 + i % 5, 18, 3, i), "png")
        );
    }
}

TEST_CASE("resampling_copies_averages_and_keeps_flat_areas", "[images]") {
    const Picture      p = pattern(12, 9, 3, 4);
    std::vector<float> out(12 * 9 * 3), flipped(out.size());
    resample(p.view(), {0, 0, 12, 9}, 12, 9, false, out);
    resample(p.view(), {0, 0, 12, 9}, 12, 9, true, flipped);
    for (int c = 0; c < 3; ++c) {
        for (int i = 0; i < 12 * 9; ++i) {
            const int x = i % 12, y = i / 12;
            REQUIRE(out[size_t(c * 108 + i)] == float(p.pixels[size_t(3 * i + c)]));
            REQUIRE(flipped[size_t(c * 108 + y * 12 + 11 - x)] == out[size_t(c * 108 + i)]);
        }
    }
    // a flat picture stays flat, at any size and beyond the edge
    const Picture flat_one = flat(7, 5, {100});
    for (const Box box : {Box{0, 0, 7, 5}, Box{-3, -3, 20, 20}, Box{2.3f, 1.7f, 0.9f, 0.5f}}) {
        std::vector<float> some(13 * 11);
        resample(flat_one.view(), box, 13, 11, false, some);
        for (const float value : some) {
            REQUIRE(value == Approx(100.0f));
        }
    }
    // fine stripes become their mean: no aliasing
    Picture stripes{64, 64, 1, {}};
    for (int i = 0; i < 64 * 64; ++i) {
        stripes.pixels.push_back(i % 2 ? 255 : 0);
    }
    std::vector<float> small(8 * 8);
    resample(stripes.view(), {0, 0, 64, 64}, 8, 8, false, small);
    for (const float value : small) {
        CHECK(std::abs(value - 127.5f) < 8.0f);
    }
    // enlarging a ramp of two pixels is bilinear
    const Picture      ramp{2, 1, 1, {0, 200}};
    std::vector<float> wide(4);
    resample(ramp.view(), {0, 0, 2, 1}, 4, 1, false, wide);
    CHECK(wide == std::vector<float>{0, 50, 150, 200});
}

TEST_CASE("stored_pictures_are_bounded_and_never_enlarged", "[images]") {
    int w = 0, h = 0;
    stored_size(4000, 3000, 256, w, h);
    CHECK((w == 341 && h == 256));
    stored_size(100, 80, 256, w, h);
    CHECK((w == 100 && h == 80));
    stored_size(60000, 10, 32, w, h);
    CHECK((w == 96 && h == 10));
    stored_size(1, 1, 32, w, h);
    CHECK((w == 1 && h == 1));
    Picture       scratch;
    const Picture long_one = pattern(900, 30, 3, 1);
    CHECK(store_picture(long_one.view(), 15, scratch).width == 45);
    CHECK(store_picture(scratch.view(), 15, scratch).pixels == scratch.pixels.data());
}

TEST_CASE("augmentation_depends_on_the_key_alone_and_keeps_its_bounds", "[images]") {
    const Picture   p    = pattern(24, 20, 3, 3);
    const ImageSpec spec = plain_spec(16, 3);
    const size_t    n    = 16 * 16 * 3;
    AugmentOptions  all  = {
          .crop_min   = 0.3f,
          .pad        = 2,
          .flip       = true,
          .brightness = 0.4f,
          .contrast   = 0.4f,
          .saturation = 0.4f,
          .cutout     = 5};
    std::vector<float> a(n), b(n);
    std::set<float>    seen;
    for (uint64_t key = 0; key < 50; ++key) {
        augment(p.view(), spec, all, key, a);
        augment(p.view(), spec, all, key, b);
        REQUIRE(a == b);
        REQUIRE(*std::min_element(a.begin(), a.end()) >= -1e-5f);
        REQUIRE(*std::max_element(a.begin(), a.end()) <= 1.0f + 1e-5f);
        seen.insert(std::accumulate(a.begin(), a.end(), 0.0f));
    }
    CHECK(seen.size() > 45);

    // with everything off, training and evaluation have the same input
    augment(p.view(), spec, {}, 7, a);
    center_view(p.view(), spec, b);
    CHECK(a == b);
    // a flip mirrors, or does nothing
    int n_flipped = 0;
    for (uint64_t key = 0; key < 100; ++key) {
        augment(p.view(), spec, {.flip = true}, random_bits(key, 0), a);
        const bool mirrored = a != b;
        n_flipped += mirrored;
        for (int x = 0; x < 16; ++x) {
            REQUIRE(a[size_t(x)] == b[size_t(mirrored ? 15 - x : x)]);
        }
    }
    CHECK((n_flipped > 30 && n_flipped < 70));
    // pad-crop shifts by whole pixels: no new values
    const Picture      same = pattern(16, 16, 1, 2);
    std::vector<float> moved(256);
    ImageSpec          grey = plain_spec(16, 1);
    augment(same.view(), grey, {.pad = 3}, 5, moved);
    for (const float value : moved) {
        const float pixel = value * 255.0f;
        CHECK(std::abs(pixel - std::round(pixel)) < 1e-3f);
    }
    // cutout sets exactly a square to the mean
    grey.mean[0]      = 0.2f;
    grey.deviation[0] = 0.1f;
    augment(flat(16, 16, {255}).view(), grey, {.cutout = 4}, 11, moved);
    const auto n_blank = std::count(moved.begin(), moved.end(), 0.0f);
    CHECK((n_blank >= 4 && n_blank <= 16));
    CHECK(*std::max_element(moved.begin(), moved.end()) == Approx(8.0f));
}

TEST_CASE("a_shuffle_visits_every_picture_once", "[images]") {
    for (const int64_t n : {1, 2, 3, 10, 64, 1000}) {
        std::set<int64_t> met;
        int64_t           n_fixed = 0;
        for (int64_t i = 0; i < n; ++i) {
            const int64_t k = shuffled_index(42, i, n);
            REQUIRE((k >= 0 && k < n));
            met.insert(k);
            n_fixed += k == i;
        }
        CHECK(int64_t(met.size()) == n);
        CHECK((n < 10 || n_fixed < n / 2));
    }
    // the own weight under mixup is the larger one, different in every step
    std::set<float> shares;
    for (uint64_t step = 0; step < 100; ++step) {
        const float share = mix_of({.mixup = 0.2f}, {.size = 8}, 1, step, "h").share;
        REQUIRE((share >= 0.5f && share <= 1.0f));
        shares.insert(share);
    }
    CHECK(shares.size() > 50);
    CHECK(mix_of({}, {.size = 8}, 1, 2, "h").share == 1.0f);
}

TEST_CASE("a_batch_depends_on_seed_step_and_host_only", "[images]") {
    const TempFolder folder, aside;
    fill(folder, 23);
    Bytes torn = encode(pattern(64, 64, 3, 1), "png");
    torn[torn.size() / 2] ^= 1;
    folder.write("a/torn.png", torn);
    const ImageData plain(folder.str(), {.size = 12}, {});
    const ImageData cached(folder.str(), {.size = 12}, {.cache_path = (aside.path / "c").string()});
    REQUIRE(cached.cached());

    for (const float mixup : {0.0f, 0.4f}) {
        LoaderOptions options = {.seed = 3, .host = "anna", .batch = 7};
        options.augment = {.crop_min = 0.5f, .flip = true, .brightness = 0.2f, .mixup = mixup};
        std::vector<ImageBatch> first;
        {
            ImageLoader loader(plain, options);
            for (uint64_t step = 0; step < 8; ++step) {
                first.push_back(loader.at(step));
            }
            CHECK(loader.n_batches() == int64_t((plain.train().size() + 6) / 7));
        }
        CHECK(first[0].images != first[4].images);
        CHECK(first[0].images.size() == 12 * 12 * 3 * 7);
        auto equal = [](const ImageBatch & a, const ImageBatch & b) {
            return a.images == b.images && a.labels == b.labels && a.items == b.items &&
                   a.mix_labels == b.mix_labels && a.mix == b.mix;
        };
        // other threads, a cache, another first step, any order
        options.n_threads = 3;
        options.n_ahead   = 1;
        ImageLoader other(cached, options, 5);
        for (const uint64_t step : {5, 6, 7, 2, 3, 3, 0, 7, 1}) {
            CHECK(equal(other.at(step), first[step]));
        }
        // a different host or seed: different samples
        LoaderOptions different = options;
        different.host          = "ben";
        CHECK(ImageLoader(plain, different).at(0).images != first[0].images);
        different      = options;
        different.seed = 4;
        CHECK(ImageLoader(plain, different).at(0).images != first[0].images);
    }
    // the damaged file was found, named and replaced
    const auto skipped = plain.skipped();
    REQUIRE(skipped.size() == 1);
    CHECK(skipped[0].name == "a/torn.png");
}

TEST_CASE("a_host_may_ask_for_the_first_samples_of_any_step", "[images]") {
    const TempFolder folder;
    fill(folder, 23);
    const ImageData data(folder.str(), {.size = 12}, {});
    for (const float mixup : {0.0f, 0.4f}) {
        const LoaderOptions options{
            .seed = 3, .host = "anna", .batch = 7, .augment = {.flip = true, .mixup = mixup}};
        ImageLoader             loader(data, options), whole_loader(data, options);
        std::vector<ImageBatch> whole;
        for (uint64_t step = 0; step < 12; ++step) {
            whole.push_back(whole_loader.at(step));
        }
        const auto begins_with = [](const auto & all, const auto & part) {
            return std::equal(part.begin(), part.end(), all.begin());
        };
        // fewer, the same, more; the same step again; a jump; 0 is the whole batch
        const std::pair<uint64_t, int> asked[] = {{0, 7}, {1, 3}, {2, 3}, {3, 1}, {4, 6},  {5, 7},
                                                  {6, 2}, {6, 5}, {6, 4}, {9, 3}, {10, 0}, {2, 5}};
        for (const auto & [step, n] : asked) {
            INFO("mixup " << mixup << ", step " << step << ", n " << n);
            const ImageBatch & part = loader.at(step, n);
            REQUIRE(part.labels.size() == size_t(n > 0 ? n : 7));
            REQUIRE(part.images.size() == 12 * 12 * 3 * part.labels.size());
            CHECK(part.mix_labels.size() == part.labels.size());
            CHECK(part.items.size() == part.labels.size());
            CHECK(begins_with(whole[step].images, part.images));
            CHECK(begins_with(whole[step].labels, part.labels));
            CHECK(begins_with(whole[step].mix_labels, part.mix_labels));
            CHECK(begins_with(whole[step].items, part.items));
            CHECK(part.mix == whole[step].mix);
        }
    }
}

TEST_CASE("one_walk_sees_every_training_picture_once", "[images]") {
    const TempFolder folder;
    fill(folder, 40);
    const ImageData      data(folder.str(), {.size = 8}, {.val_fraction = 0.25});
    ImageLoader          loader(data, {.seed = 1, .host = "h", .batch = 1});
    std::vector<int64_t> met;
    for (uint64_t step = 0; step < data.train().size(); ++step) {
        met.push_back(loader.at(step).items[0]);
    }
    CHECK(met != data.train());
    std::sort(met.begin(), met.end());
    CHECK(met == data.train());

    // validation: every picture once, as read_model_input reads it; the last batch is padded with -1
    ImageLoader        val(data, {.batch = 4, .val = true});
    std::set<int64_t>  seen;
    std::vector<float> input(8 * 8 * 3);
    int                n_empty = 0;
    for (int64_t k = 0; k < val.n_batches(); ++k) {
        const ImageBatch & batch = val.at(uint64_t(k));
        for (size_t i = 0; i < 4; ++i) {
            n_empty += batch.labels[i] < 0;
            if (batch.labels[i] < 0) {
                continue;
            }
            seen.insert(batch.items[i]);
            read_model_input(
                folder.str() + "/" + data.item(batch.items[i]).name, data.spec(), input
            );
            CHECK(std::equal(
                input.begin(), input.end(), batch.images.begin() + std::ptrdiff_t(i * 192)
            ));
        }
    }
    CHECK(seen.size() == data.val().size());
    CHECK(n_empty == int(4 * size_t(val.n_batches()) - seen.size()));
    CHECK(error_has(
        [&] { (void) read_model_input(folder.str() + "/no.png", data.spec(), input); }, "no.png"
    ));
}

TEST_CASE("normalized_pixels_have_mean_zero_and_deviation_one", "[images]") {
    const TempFolder folder;
    Bytes            pixels, labels;
    for (int i = 0; i < 50; ++i) {
        const Picture p = pattern(6, 6, 1, i);
        pixels.insert(pixels.end(), p.pixels.begin(), p.pixels.end());
        labels.push_back(uint8_t(i % 3));
    }
    folder.write("train-images-idx3-ubyte", idx_bytes({50, 6, 6}, pixels));
    folder.write("train-labels-idx1-ubyte", idx_bytes({50}, labels));
    const ImageData data(folder.str(), {.size = 6, .channels = 1}, {.val_fraction = 0.0});
    CHECK(data.val().empty());
    CHECK_THROWS_AS(ImageLoader(data, {.batch = 2, .val = true}), Error);
    ImageLoader        loader(data, {.batch = 50});
    const ImageBatch & batch = loader.at(0);
    double             sum = 0, square = 0;
    for (const float value : batch.images) {
        sum += value;
        square += double(value) * value;
    }
    const double n = double(batch.images.size());
    CHECK(std::abs(sum / n) < 1e-4);
    CHECK(square / n == Approx(1.0).epsilon(1e-4));
    CHECK(loader.waited().count() > 0);

    // given values are not measured again
    const ImageData given(
        folder.str(), {.size = 6, .channels = 1, .mean = {0.5f}, .deviation = {0.25f}}, {}
    );
    CHECK(given.spec().mean[0] == 0.5f);
}
