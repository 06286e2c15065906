// Mixing, RandAugment, erasing, repeated pictures, and pictures that are not square.
#include "models/vision/image-loader.h"
#include "models/vision/rand-augment.h"
#include "tests/catch.h"
#include "tests/models/picture-files.h"

#include <numeric>
#include <set>

using namespace gt;

static ImageSpec oblong_spec(int width, int height) {
    ImageSpec spec = {.size = height, .width = width, .channels = 3, .crop = 1.0f, .stored = 64};
    std::fill(spec.deviation, spec.deviation + 3, 1.0f);
    return spec;
}

TEST_CASE("cutmix_shows_as_much_of_the_other_picture_as_its_label_counts", "[images]") {
    const ImageSpec          spec = oblong_spec(24, 16);
    const AugmentOptions     cut{.cutmix = 1.0f}, both{.mixup = 0.2f, .cutmix = 1.0f};
    const std::vector<float> own(spec.n_values(), 1.0f), other(spec.n_values(), 0.0f);
    std::set<float>          shares;
    int                      n_cut = 0;
    for (uint64_t step = 0; step < 200; ++step) {
        const Mix          mix = mix_of(cut, spec, 1, step, "h");
        std::vector<float> out(spec.n_values());
        mix_pictures(mix, spec, own, other, out);
        REQUIRE(mix.cut);
        const float mean = std::accumulate(out.begin(), out.end(), 0.0f) / float(out.size());
        REQUIRE(mean == Approx(mix.share).margin(1e-5));
        shares.insert(mix.share);
        n_cut += mix_of(both, spec, 1, step, "h").cut;
        CHECK(mix_of(cut, spec, 1, step, "h").share == mix.share);
    }
    CHECK(shares.size() > 50);
    CHECK((n_cut > 60 && n_cut < 140));  // each step draws one of the two
}

TEST_CASE("randaugment_changes_pictures_within_their_range_by_the_key_alone", "[images]") {
    for (const int channels : {1, 3}) {
        std::vector<float> from(size_t(20) * 14 * size_t(channels));
        for (size_t i = 0; i < from.size(); ++i) {
            from[i] = float(i * 37 % 256);
        }
        size_t n_changed = 0, n_total = 200;
        for (uint64_t key = 0; key < n_total; ++key) {
            std::vector<float> a = from, b = from;
            Draw               first(key), second(key);
            rand_augment({a, 20, 14, channels}, 2, 9.0f, first);
            rand_augment({b, 20, 14, channels}, 2, 9.0f, second);
            REQUIRE(a == b);
            for (const float value : a) {
                REQUIRE((value >= 0.0f && value <= 255.0f));
            }
            n_changed += a != from;
        }
        CHECK((n_changed > 100 && n_changed < 190));  // three of four have an operation
    }
}

TEST_CASE("erasing_replaces_a_rectangle_of_some_pictures_by_noise", "[images]") {
    const ImageSpec      spec = oblong_spec(24, 16);
    const Picture        grey = flat(24, 16, {128, 128, 128});
    const AugmentOptions options{.erase = 0.5f};
    std::vector<float>   plain(spec.n_values()), out(spec.n_values());
    augment(grey.view(), spec, {}, 1, plain);
    int n_erased = 0;
    for (uint64_t key = 0; key < 200; ++key) {
        augment(grey.view(), spec, options, key, out);
        size_t n = 0;
        for (size_t i = 0; i < out.size(); ++i) {
            n += out[i] != plain[i];
        }
        n_erased += n > 0;
        CHECK(double(n) < 0.34 * double(out.size()));
    }
    CHECK((n_erased > 70 && n_erased < 130));
}

TEST_CASE("a_view_has_the_form_of_the_model's_input", "[images]") {
    // left half black, right half white: a crop in the middle has as much of both
    Picture p{40, 10, 3, {}};
    for (int i = 0; i < 400; ++i) {
        p.pixels.insert(p.pixels.end(), 3, i % 40 < 20 ? 0 : 255);
    }
    const ImageSpec    spec = oblong_spec(20, 10);
    std::vector<float> out(spec.n_values());
    center_view(p.view(), spec, out);
    for (int y = 0; y < 10; ++y) {
        for (int x = 0; x < 20; ++x) {
            REQUIRE(out[size_t(y * 20 + x)] == Approx(x < 10 ? 0.0f : 1.0f));
        }
    }
    // random boxes fill it, too
    augment(p.view(), spec, {.crop_min = 0.3f, .flip = true}, 3, out);
    CHECK(std::all_of(out.begin(), out.end(), [](float v) { return v >= 0.0f && v <= 1.0f; }));
}

TEST_CASE("repeated_pictures_are_half_a_batch_apart_and_differ", "[images]") {
    const TempFolder folder;
    for (int i = 0; i < 24; ++i) {
        folder.write(format("%c/%02d.png", 'a' + i % 2, i), encode(pattern(20, 18, 3, i), "png"));
    }
    const ImageData data(folder.str(), oblong_spec(16, 8), {.val_fraction = 0.0});
    ImageLoader     loader(
            data, {.seed = 1, .batch = 8, .augment = {.crop_min = 0.3f, .repeats = 2}, .n_threads = 2}
        );
    std::set<int64_t> seen;
    const size_t      each = data.spec().n_values();
    for (uint64_t step = 0; step < 6; ++step) {
        const ImageBatch & batch = loader.at(step);
        for (size_t i = 0; i < 4; ++i) {
            CHECK(batch.items[i] == batch.items[i + 4]);
            CHECK(seen.insert(batch.items[i]).second);  // 24 pictures in 6 steps: each once
            CHECK_FALSE(std::equal(
                &batch.images[i * each], &batch.images[i * each] + each,
                &batch.images[(i + 4) * each]
            ));
        }
    }
}
