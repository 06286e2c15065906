// Sources of pictures: folders, IDX, CIFAR; the cache; the page of mistakes.
#include "models/classifier/mistakes.h"
#include "models/classifier/page-parts.h"
#include "models/vision/image-decode.h"
#include "tests/catch.h"
#include "tests/models/picture-files.h"

#include <algorithm>
#include <thread>

using namespace gt;
namespace fs = std::filesystem;

TEST_CASE("a_folder_lists_the_files_it_skips", "[images]") {
    const TempFolder folder;
    for (int i = 0; i < 6; ++i) {
        folder.write(format("cat/%d.jpg", i), encode(pattern(20 + i, 30, 3, i), "jpg"));
        folder.write(format("dog/deep/%d.png", i), encode(pattern(40, 24, 1, i), "png"));
    }
    folder.write("cat/really-a.jpg", encode(pattern(8, 8, 3, 1), "png"));  // misnamed, readable
    folder.write("cat/text.jpg", text_bytes("this is no picture"));
    folder.write("cat/empty.png", {});
    folder.write("cat/huge.png", raw_png(60000, 60000, 8, 2, {0}));
    folder.write("cat/torn.jpg", [] {
        Bytes b = encode(pattern(64, 64, 3, 1), "jpg");
        b.resize(b.size() / 2);
        return b;
    }());
    folder.write("dog/one.png", encode(flat(1, 1, {5, 6, 7}), "png"));
    folder.write("dog/cmyk.jpg", cmyk_jpeg(255, 255, 0, 255));
    folder.write("dog/palette.png", raw_png(2, 1, 1, 3, {0, 0x80}, {1, 2, 3, 4, 5, 6}));
    folder.write("dog/sixteen.png", raw_png(1, 1, 16, 2, {0, 10, 99, 20, 99, 30, 99}));
    folder.write("bird/nothing.txt", text_bytes("no picture here, so no class"));
    folder.write("stray.png", encode(flat(4, 4, {1, 2, 3}), "png"));
    folder.write(".hidden/x.png", text_bytes("unseen"));

    for (const bool cached : {true, false}) {
        const TempFolder aside;
        ImageOptions     options;
        options.cache_path = cached ? (aside.path / "c.pictures").string() : "";
        const ImageData data(folder.str(), {.size = 16}, options);
        CHECK(data.cached() == cached);
        CHECK(data.classes() == std::vector<std::string>{"cat", "dog"});
        CHECK(data.train().size() + data.val().size() == 6 + 6 + 1 + 4 + 1);  // torn.jpg: later
        CHECK(!data.val().empty());
        Picture scratch;
        int     n_loaded = 0;
        for (size_t i = 0; i < data.train().size() + data.val().size(); ++i) {
            n_loaded += data.load(int64_t(i), scratch).has_value();
        }
        CHECK(n_loaded == 17);
        std::vector<std::string> names;
        for (const SkippedFile & file : data.skipped()) {
            names.push_back(file.name);
            CHECK(!file.reason.empty());
        }
        CHECK(
            names ==
            std::vector<std::string>{
                "bird/nothing.txt", "cat/empty.png", "cat/huge.png", "cat/text.jpg", "cat/torn.jpg",
                "stray.png"}
        );
    }
}

TEST_CASE("a_path_without_pictures_is_an_error", "[images]") {
    const TempFolder folder;
    CHECK(error_has([&] { (void) ImageData(folder.str(), {.size = 8}, {}); }, "no usable picture"));
    CHECK(error_has([&] { (void) ImageData(folder.str() + "/no", {.size = 8}, {}); }, "no such"));
    folder.write("cat/text.jpg", text_bytes("this is no picture"));
    CHECK(error_has(
        [&] { (void) ImageData(folder.str(), {.size = 8}, {}); }, "text.jpg (not a picture)"
    ));
    Bytes torn = encode(pattern(64, 64, 3, 1), "jpg");
    torn.resize(torn.size() / 2);
    const std::string file = folder.write("cat/torn.jpg", torn);
    CHECK(error_has([&] { (void) ImageData(folder.str(), {.size = 8}, {}); }, "torn.jpg (truncated")
    );
    CHECK(error_has([&] { (void) ImageData(file, {.size = 8}, {}); }, "neither"));
}

TEST_CASE("a_split_on_disk_is_used_else_names_decide", "[images]") {
    const TempFolder split;
    split.write("train/a/1.png", encode(flat(4, 4, {1}), "png"));
    split.write("train/b/1.png", encode(flat(4, 4, {2}), "png"));
    split.write("val/b/2.png", encode(flat(4, 4, {3}), "png"));
    const ImageData data(split.str(), {.size = 4, .channels = 1}, {});
    CHECK(data.train().size() == 2);
    REQUIRE(data.val().size() == 1);
    CHECK(data.item(data.val()[0]).label == 1);

    // the model's classes are used; a folder of another name is skipped
    const ImageData known(split.str(), {.size = 4}, {.classes = {"z", "b"}});
    CHECK(known.item(known.train()[0]).label == 1);
    CHECK(known.train().size() == 1);
    CHECK(known.skipped().size() == 1);

    std::vector<ImageItem> items(1000);
    for (size_t i = 0; i < items.size(); ++i) {
        items[i].name = format("cat/%zu.jpg", i);
    }
    split_by_name(items, 0.2);
    const auto before = items;
    const auto n_val = std::count_if(items.begin(), items.end(), [](auto & i) { return i.is_val; });
    CHECK(n_val > 150);
    CHECK(n_val < 250);
    items.erase(items.begin(), items.begin() + 500);  // with fewer files the others keep their side
    split_by_name(items, 0.2);
    for (size_t i = 0; i < items.size(); ++i) {
        CHECK(items[i].is_val == before[i + 500].is_val);
    }
}

TEST_CASE("the_cache_changes_no_pixel_and_detects_changes", "[images]") {
    const TempFolder folder, aside;
    for (int i = 0; i < 8; ++i) {
        folder.write(format("%c/%d.jpg", 'a' + i % 2, i), encode(pattern(70 + i, 50, 3, i), "jpg"));
    }
    const std::string path = (aside.path / "c.pictures").string();
    const ImageSpec   spec = {.size = 24};
    auto              same = [&] {
        const ImageData plain(folder.str(), spec, {}),
            cached(folder.str(), spec, {.cache_path = path});
        CHECK(cached.cached());
        CHECK(plain.spec().mean[1] == cached.spec().mean[1]);
        Picture a, b;
        for (int64_t i = 0; i < 8; ++i) {
            const auto x = plain.load(i, a), y = cached.load(i, b);
            REQUIRE((x && y && x->n_bytes() == y->n_bytes()));
            CHECK(std::min(y->width, y->height) == 27);  // 24 / 0.875
            CHECK(std::equal(x->pixels, x->pixels + x->n_bytes(), y->pixels));
        }
    };
    auto written = [&] { return fs::last_write_time(path); };
    same();
    const auto first = written();
    same();
    CHECK(written() == first);  // reused

    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    folder.write("a/0.jpg", encode(pattern(90, 50, 3, 99), "jpg"));
    same();
    CHECK(written() != first);  // rewritten

    {  // a flipped bit: the picture is decoded from its file
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(-5, std::ios::end);
        file.put('\x55');
    }
    same();
    fs::resize_file(path, fs::file_size(path) / 2);
    same();
    {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(70);
        file.put('\x55');
    }
    same();
    const ImageData small(folder.str(), spec, {.cache_path = path + "2", .cache_bytes = 1000});
    CHECK_FALSE(small.cached());
    CHECK(has_text(small.summary(), "not cached"));
    const ImageData nowhere(folder.str(), spec, {.cache_path = "/nonexistent/x"});
    CHECK_FALSE(nowhere.cached());
}

TEST_CASE("idx_files_are_read_with_and_without_gzip", "[images]") {
    const TempFolder folder;
    Bytes            pixels, labels;
    for (int i = 0; i < 10; ++i) {
        const Picture p = pattern(5, 4, 1, i);
        pixels.insert(pixels.end(), p.pixels.begin(), p.pixels.end());
        labels.push_back(uint8_t(i));
    }
    const fs::path home = folder.path / "fashion-mnist";
    fs::create_directories(home);
    write_gz((home / "train-images-idx3-ubyte.gz").string(), idx_bytes({10, 4, 5}, pixels));
    write_gz((home / "train-labels-idx1-ubyte.gz").string(), idx_bytes({10}, labels));
    folder.write("fashion-mnist/t10k-images-idx3-ubyte", idx_bytes({10, 4, 5}, pixels));
    folder.write("fashion-mnist/t10k-labels-idx1-ubyte", idx_bytes({10}, labels));

    for (const std::string & path :
         {home.string(), (home / "train-images-idx3-ubyte.gz").string()}) {
        const ImageData data(path, {.size = 5, .channels = 1}, {});
        CHECK(data.train().size() == 10);
        CHECK(data.val().size() == 10);
        CHECK(data.classes()[9] == "Ankle boot");
        Picture    scratch;
        const auto view = data.load(7, scratch);
        REQUIRE(view);
        CHECK(view->width == 5);
        CHECK(view->height == 4);
        CHECK(std::equal(view->pixels, view->pixels + 20, pixels.begin() + 140));
    }
    const ImageData rgb(home.string(), {.size = 5, .channels = 3}, {});
    Picture         scratch;
    const auto      view = rgb.load(13, scratch);
    CHECK(view->pixels[3] == pixels[61]);
    CHECK(rgb.item(13).label == 3);
    CHECK(error_has(
        [&] { (void) ImageData(home.string(), {.size = 5}, {.classes = {"a"}}); },
        "10 classes, the model 1"
    ));

    // errors name the damaged file
    auto damaged = [&](const Bytes & images, const Bytes & marks, const char * what) {
        const TempFolder bad;
        bad.write("train-images-idx3-ubyte", images);
        bad.write("train-labels-idx1-ubyte", marks);
        CHECK(error_has([&] { (void) ImageData(bad.str(), {.size = 5}, {}); }, what));
    };
    damaged(
        idx_bytes({10, 4, 5}, Bytes(30)), idx_bytes({10}, labels), "images-idx3-ubyte: truncated"
    );
    damaged(idx_bytes({10, 4, 5}, pixels), idx_bytes({9}, Bytes(9)), "one label per picture");
    damaged(idx_bytes({10, 4, 5}, Bytes(300)), idx_bytes({10}, labels), "longer than");
    damaged(idx_bytes({4000000000u, 4000, 4000}, {}), idx_bytes({10}, labels), "invalid sizes");
    damaged(text_bytes("hello world"), idx_bytes({10}, labels), "not an IDX file");
    fs::remove(home / "t10k-labels-idx1-ubyte");
    CHECK(error_has([&] { (void) ImageData(home.string(), {.size = 5}, {}); }, "labels"));
}

TEST_CASE("cifar_batches_are_read_and_truncated_ones_skipped", "[images]") {
    const TempFolder folder;
    auto             batch = [](int n, int first) {
        Bytes bytes;
        for (int i = 0; i < n; ++i) {
            bytes.push_back(uint8_t((first + i) % 10));
            for (int k = 0; k < 3072; ++k) {
                bytes.push_back(uint8_t(k / 1024 * 50 + first + i));
            }
        }
        return bytes;
    };
    folder.write("data_batch_1.bin", batch(4, 0));
    folder.write("data_batch_2.bin", batch(3, 4));
    Bytes torn = batch(3, 4);
    torn.pop_back();
    folder.write("data_batch_3.bin", torn);
    folder.write("test_batch.bin", batch(2, 8));
    const ImageData data(folder.str(), {.size = 32}, {});
    CHECK(data.train().size() == 7);
    CHECK(data.val().size() == 2);
    CHECK(data.classes()[3] == "cat");
    REQUIRE(data.skipped().size() == 1);
    CHECK(data.skipped()[0].name == "data_batch_3.bin");
    Picture    scratch;
    const auto view = data.load(5, scratch);
    REQUIRE(view);
    CHECK(Bytes(view->pixels, view->pixels + 3) == Bytes{5, 55, 105});
    CHECK(data.item(5).label == 5);
    CHECK(data.spec().crop == 1.0f);
}

TEST_CASE("a_page_shows_the_worst_mistakes", "[images]") {
    const TempFolder     folder;
    std::vector<Mistake> mistakes;
    for (int i = 0; i < 11; ++i) {
        mistakes.push_back(
            {pattern(20 + 30 * i, 28, i % 2 ? 1 : 3, i), format("cat/<%d>.jpg", i), "cat",
             "d\xc3\xb6g & more", 0.9f}
        );
    }
    const std::string html = (folder.path / "mistakes.html").string();
    write_mistake_page(html, "Title", "", mistakes);
    std::string why;
    const auto  page = read_picture_file(html, 1 << 24, why);
    REQUIRE(page);
    const std::string text(page->begin(), page->end());
    CHECK((has_text(text, "cat/&lt;10&gt;.jpg") && has_text(text, "90&nbsp;%")));
    CHECK(has_text(text, "src=\"data:image/png;base64,iVBORw0KGgo"));  // a PNG's first bytes
    CHECK_THROWS_AS(write_mistake_page("/nonexistent/x.html", "Title", "", mistakes), Error);
}

TEST_CASE("curves_have_lines_at_round_numbers_and_no_start_that_flattens_them", "[images]") {
    const TempFolder folder;
    const auto       page_of = [&](const char * rows) {
        return curves_html(folder.write("metrics.jsonl", text_bytes(rows)));
    };
    const std::string two = page_of("{\"step\":0,\"loss\":2.3021}\n{\"step\":150,\"loss\":0.9157}\n"
                                    "{\"step\":150,\"accuracy\":0.6759}\n");
    for (const char * value : {">0.5<", ">1<", ">1.5<", ">2<", ">2.5<", ">67.6<"}) {
        CHECK(has_text(two, value));
    }
    CHECK(!has_text(two, ">2.3"));
    const std::string three =
        page_of("{\"step\":0,\"accuracy\":0.07}\n{\"step\":50,\"accuracy\":0.81}\n"
                "{\"step\":900,\"accuracy\":0.929}\n");
    for (const char * value : {">80<", ">85<", ">90<", ">95<"}) {
        CHECK(has_text(three, value));
    }
    CHECK(!has_text(three, ">20<"));
}
