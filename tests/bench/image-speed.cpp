// bench-images — throughput of the image loader: 224 x 224 JPEG files, decoded and augmented.
//
//   bench-images [threads]      default 2; prints pictures per second without and with the cache of
//                               decoded pictures, and for pictures of Fashion-MNIST's size
#include "models/vision/image-loader.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stb_image_write.h>
#include <unistd.h>

using namespace gt;
namespace fs = std::filesystem;
using Clock  = std::chrono::steady_clock;

static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A JPEG with the decoding cost of a photo: slopes, edges and some noise; about 9 KB.
static void write_jpeg(const fs::path & path, int size, uint64_t seed) {
    std::vector<uint8_t> pixels(size_t(size) * size * 3);
    for (int y = 0; y < size; ++y) {
        for (int x = 0; x < size; ++x) {
            const int edge = ((x / 24 + y / 17 + int(seed)) % 3) * 40;
            for (int c = 0; c < 3; ++c) {
                const int noise = int(random_bits(seed, uint64_t(y * size + x), uint64_t(c)) % 16);
                pixels[(size_t(y) * size + x) * 3 + c] =
                    uint8_t(edge + (x + y * (c + 1)) / 8 + noise);
            }
        }
    }
    stbi_write_jpg(path.c_str(), size, size, 3, pixels.data(), 85);
}

static void
run(const char * name, const ImageData & data, const LoaderOptions & options, int steps) {
    ImageLoader loader(data, options);
    loader.at(0);
    const auto begin = Clock::now();
    for (int step = 1; step <= steps; ++step) {
        loader.at(uint64_t(step));
    }
    const double seconds = seconds_since(begin);
    std::printf(
        "%-44s %8.0f pictures/s on %d threads\n", name, steps * options.batch / seconds,
        options.n_threads
    );
}

int main(int argc, char ** argv) {
    const int      n_threads = argc > 1 ? std::atoi(argv[1]) : 2;
    const fs::path folder    = fs::temp_directory_path() / ("gt-bench-" + std::to_string(getpid()));
    int64_t        n_bytes   = 0;
    for (int i = 0; i < 128; ++i) {
        const fs::path path = folder / "data" / (i % 2 ? "a" : "b") / (std::to_string(i) + ".jpg");
        fs::create_directories(path.parent_path());
        write_jpeg(path, 224, uint64_t(i));
        n_bytes += int64_t(fs::file_size(path));
    }
    std::printf("128 JPEG files of 224 x 224, %.1f KB each\n", double(n_bytes) / 128e3);

    LoaderOptions options = {.seed = 1, .host = "bench", .batch = 32, .n_threads = n_threads};
    {
        const ImageData data((folder / "data").string(), {.size = 224}, {.n_threads = n_threads});
        run("decode, centre", data, options, 30);
        options.augment = {.crop_min = 0.3f, .flip = true};
        run("decode, random crop, flip", data, options, 30);
        options.augment = {
            .crop_min   = 0.3f,
            .flip       = true,
            .brightness = 0.4f,
            .contrast   = 0.4f,
            .saturation = 0.4f,
            .mixup      = 0.2f};
        run("decode, random crop, flip, colours, mixup", data, options, 30);
    }
    {
        const auto      begin = Clock::now();
        const ImageData data(
            (folder / "data").string(), {.size = 224},
            {.cache_path = (folder / "cache").string(), .n_threads = n_threads}
        );
        std::printf("cache written in %.2f s\n", seconds_since(begin));
        options.augment = {.crop_min = 0.3f, .flip = true};
        run("cached, random crop, flip", data, options, 60);
    }
    {
        std::ofstream images(folder / "train-images-idx3-ubyte", std::ios::binary);
        std::ofstream labels(folder / "train-labels-idx1-ubyte", std::ios::binary);
        images.write("\0\0\10\3\0\0\23\210\0\0\0\34\0\0\0\34", 16)
            .write(std::string(5000 * 784, 'x').data(), 5000 * 784);
        labels.write("\0\0\10\1\0\0\23\210", 8).write(std::string(5000, '\1').data(), 5000);
    }
    const ImageData data(folder.string(), {.size = 28, .channels = 1}, {.n_threads = n_threads});
    options.batch   = 256;
    options.augment = {.pad = 2, .flip = true};
    run("28 x 28 from IDX, pad-crop, flip", data, options, 200);
    fs::remove_all(folder);
    return 0;
}
