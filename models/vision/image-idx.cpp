// IDX files (MNIST and similar): images and labels in a pair of files, also gzipped.
//
//   bytes 0-1  0            byte 2  type, 8 = unsigned byte         byte 3  number of sizes
//   then each size, 32 bits, most significant byte first, then the data, last size fastest
//
// Images have 3 sizes (count, rows, columns) or 4 (and channels), labels 1. Names form pairs: "images"
// and "labels", idx3 and idx1; "t10k" or "test" is the validation set.
#include "models/vision/image-data.h"

#include <algorithm>
#include <filesystem>
#include <zlib.h>

namespace fs = std::filesystem;

namespace gt {

namespace {

struct Idx {
    std::vector<int64_t> sizes;
    Bytes                data;
};

class IdxSource : public ImageSource {
public:
    std::optional<PictureView>
    read(int64_t i, int channels, Picture & scratch, std::string &) const override {
        const auto &      part = i < n_first ? first : second;
        const ImageItem & item = items[size_t(i)];
        const int         n    = part.sizes.size() == 4 ? int(part.sizes[3]) : 1;
        const size_t      size = size_t(item.width) * size_t(item.height) * size_t(n);
        const uint8_t *   from = part.data.data() + size_t(i < n_first ? i : i - n_first) * size;
        if (n == channels) {
            return PictureView{item.width, item.height, channels, from};
        }
        scratch = {item.width, item.height, channels, {}};
        scratch.pixels.resize(size / size_t(n) * size_t(channels));
        for (size_t k = 0; k < size / size_t(n); ++k) {
            for (int c = 0; c < channels; ++c) {
                scratch.pixels[k * channels + c] =
                    n == 1 ? from[k] : luma(from[3 * k], from[3 * k + 1], from[3 * k + 2]);
            }
        }
        return scratch.view();
    }

    Idx     first, second;  // training and validation set
    int64_t n_first = 0;
};

}  // namespace

static bool contains(const std::string & text, const std::string & part) {
    return text.find(part) != std::string::npos;
}

static std::string replaced(std::string text, const std::string & from, const std::string & to) {
    const size_t at = text.rfind(from);
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// `path`, gzipped or not, whichever exists; "" if neither.
static std::string find_either(const std::string & path) {
    const bool        packed = path.ends_with(".gz");
    const std::string other  = packed ? path.substr(0, path.size() - 3) : path + ".gz";
    return fs::exists(path) ? path : fs::exists(other) ? other : "";
}

// Reads a file, gzipped or not (zlib detects it). Throws an Error if it is invalid.
static Idx read_idx(const std::string & path) {
    constexpr int64_t kMaxBytes = 16ll << 30;

    const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), &gzclose);
    if (!file) {
        throw Error(path + ": cannot be opened");
    }
    gzbuffer(file.get(), 1 << 18);
    uint8_t head[4 + 4 * 4] = {};
    if (gzread(file.get(), head, 4) != 4 || head[0] != 0 || head[1] != 0 || head[2] != 8 ||
        head[3] < 1 || head[3] > 4) {
        throw Error(path + ": not an IDX file of bytes; download it again");
    }
    const int n_sizes = head[3];
    if (gzread(file.get(), head + 4, unsigned(4 * n_sizes)) != 4 * n_sizes) {
        throw Error(path + ": truncated; download it again");
    }
    Idx     idx;
    int64_t n_bytes = 1;
    for (int i = 0; i < n_sizes; ++i) {
        const uint8_t * p    = head + 4 + 4 * i;
        const int64_t   size = int64_t(p[0]) << 24 | p[1] << 16 | p[2] << 8 | p[3];
        if (size < 1 || n_bytes > kMaxBytes / size) {
            throw Error(path + ": invalid sizes in its header; download it again");
        }
        idx.sizes.push_back(size);
        n_bytes *= size;
    }
    // grows with the data read, so that a damaged header cannot demand gigabytes
    while (int64_t(idx.data.size()) < n_bytes) {
        const size_t have = idx.data.size();
        const size_t n    = size_t(std::min<int64_t>(n_bytes - int64_t(have), 16 << 20));
        idx.data.resize(have + n);
        if (gzread(file.get(), idx.data.data() + have, unsigned(n)) != int(n)) {
            throw Error(path + ": truncated or damaged; download it again");
        }
    }
    uint8_t more = 0;
    if (gzread(file.get(), &more, 1) != 0) {  // also verifies the checksum of a .gz
        throw Error(path + ": damaged or longer than its header says; download it again");
    }
    return idx;
}

// Adds the images of one file and their labels to the source.
static void add_part(IdxSource & source, const std::string & images, bool is_val, Idx & part) {
    const std::string wanted = replaced(replaced(images, "images", "labels"), "idx3", "idx1");
    const std::string labels = find_either(wanted);
    if (labels.empty()) {
        throw Error(images + ": its labels (" + wanted + ") are missing");
    }
    part                    = read_idx(images);
    const Idx    label_part = read_idx(labels);
    const auto & sizes      = part.sizes;
    if (sizes.size() < 3 || sizes[1] > 4096 || sizes[2] > 4096 ||
        (sizes.size() == 4 && sizes[3] != 1 && sizes[3] != 3)) {
        throw Error(images + ": expected pictures of at most 4096 x 4096 pixels, grayscale or RGB");
    }
    if (label_part.sizes.size() != 1 || label_part.sizes[0] != sizes[0]) {
        throw Error(labels + ": does not have one label per picture of " + images);
    }
    const std::string stem = fs::path(images).filename().string();
    for (int64_t i = 0; i < sizes[0]; ++i) {
        source.items.push_back(
            {stem + "#" + std::to_string(i), label_part.data[size_t(i)], is_val, int(sizes[2]),
             int(sizes[1])}
        );
    }
    source.digest = random_bits(source.digest, digest64(part.data), digest64(label_part.data));
}

// Image files in the folder `path`, or the file `path` and the test file next to it.
static void find_parts(
    const std::string & path, std::vector<std::string> & train, std::vector<std::string> & test
) {
    auto is_images = [](const std::string & name) {
        return contains(name, "images") && contains(name, "idx3");
    };
    auto is_test = [](const std::string & name) {
        return contains(name, "t10k") || contains(name, "test");
    };
    if (fs::is_directory(path)) {
        std::error_code ignored;
        for (const auto & entry : fs::directory_iterator(path, ignored)) {
            const std::string name = entry.path().filename().string();
            if (is_images(name) && entry.is_regular_file()) {
                (is_test(name) ? test : train).push_back(entry.path().string());
            }
        }
        // the same file with and without .gz: use one
        for (auto * list : {&train, &test}) {
            std::sort(list->begin(), list->end());
            std::erase_if(*list, [&](const std::string & name) {
                return name.ends_with(".gz") &&
                       std::count(list->begin(), list->end(), name.substr(0, name.size() - 3));
            });
        }
        return;
    }
    const std::string folder = fs::path(path).parent_path().string();
    const std::string name   = fs::path(path).filename().string();
    if (!is_images(name)) {
        return;
    }
    train.push_back(path);
    for (const char * to : {"t10k", "test"}) {
        const std::string other = replaced(name, "train", to);
        const std::string found = find_either((fs::path(folder) / other).string());
        if (other != name && test.empty() && !found.empty()) {
            test.push_back(found);
        }
    }
}

std::unique_ptr<ImageSource>
open_image_idx(const std::string & path, const ImageOptions & options) {
    std::vector<std::string> train, test;
    find_parts(path, train, test);
    if (train.empty() && test.empty()) {
        return nullptr;
    }
    if (train.size() > 1 || test.size() > 1) {
        const auto & many = train.size() > 1 ? train : test;
        throw Error(
            path + ": contains several sets (" + fs::path(many[0]).filename().string() + ", " +
            fs::path(many[1]).filename().string() + "); name the images file of one"
        );
    }
    auto source       = std::make_unique<IdxSource>();
    source->kind      = "idx " + path;
    source->in_memory = true;
    if (!train.empty()) {
        add_part(*source, train[0], false, source->first);
    }
    source->n_first = int64_t(source->items.size());
    if (!test.empty()) {
        add_part(*source, test[0], true, source->second);
    }
    if (test.empty() || options.val_fraction >= 1.0) {
        split_by_name(source->items, options.val_fraction);
    }

    int n_classes = 0;
    for (const ImageItem & item : source->items) {
        n_classes = std::max(n_classes, item.label + 1);
    }
    static const char * const kFashion[] = {"T-shirt/top", "Trouser",   "Pullover", "Dress",
                                            "Coat",        "Sandal",    "Shirt",    "Sneaker",
                                            "Bag",         "Ankle boot"};
    const std::string         full       = fs::absolute(path).string();
    const bool                fashion =
        n_classes == 10 && (contains(full, "fashion") || contains(full, "Fashion"));
    for (int i = 0; i < n_classes; ++i) {
        source->classes.push_back(fashion ? kFashion[i] : std::to_string(i));
    }
    return source;
}

}  // namespace gt
