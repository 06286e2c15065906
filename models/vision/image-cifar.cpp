// The binary version of CIFAR-10 and CIFAR-100: 32 x 32 RGB pictures, no header.
//
//   CIFAR-10    1 byte label, then 3 planes (red, green, blue) of 1024 bytes    data_batch_*.bin
//   CIFAR-100   1 byte coarse label, 1 byte fine label, then the planes         train.bin
//
// test_batch.bin and test.bin are the validation set. Class names come from the text file next to
// them. A batch whose size is not a whole number of pictures is skipped.
#include "models/vision/image-decode.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace fs = std::filesystem;

namespace gt {

namespace {

constexpr int    kSide  = 32;
constexpr size_t kPlane = kSide * kSide;

class CifarSource : public ImageSource {
public:
    std::optional<PictureView>
    read(int64_t i, int channels, Picture & scratch, std::string &) const override {
        const uint8_t * red = pixels.data() + size_t(i) * 3 * kPlane;
        scratch             = {kSide, kSide, channels, {}};
        scratch.pixels.resize(kPlane * size_t(channels));
        for (size_t k = 0; k < kPlane; ++k) {
            const int r = red[k], g = red[k + kPlane], b = red[k + 2 * kPlane];
            if (channels == 3) {
                scratch.pixels[3 * k]     = uint8_t(r);
                scratch.pixels[3 * k + 1] = uint8_t(g);
                scratch.pixels[3 * k + 2] = uint8_t(b);
            } else {
                scratch.pixels[k] = luma(r, g, b);
            }
        }
        return scratch.view();
    }

    Bytes pixels;  // all pictures, planes
};

}  // namespace

static std::vector<std::string> read_names(const fs::path & path) {
    std::vector<std::string> names;
    std::ifstream            file(path);
    for (std::string line; std::getline(file, line);) {
        while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) {
            line.pop_back();
        }
        if (!line.empty()) {
            names.push_back(line);
        }
    }
    return names;
}

// Reads one batch; each picture is preceded by n_labels label bytes, of which the last is used.
static void add_batch(CifarSource & source, const fs::path & path, size_t n_labels, int n_classes) {
    const std::string name   = path.filename().string();
    const size_t      record = n_labels + 3 * kPlane;
    std::string       why;
    const auto        file = read_picture_file(path.string(), 4ll << 30, why);
    if (file && file->size() % record != 0) {
        why = format("truncated: not a whole number of pictures of %zu bytes", record);
    }
    for (size_t at = 0; why.empty() && at < file->size(); at += record) {
        const int label = (*file)[at + n_labels - 1];
        if (label >= n_classes) {
            why = format("damaged: picture %zu has label %d", at / record, label);
        }
    }
    if (!why.empty()) {
        source.skipped.push_back({name, why});
        return;
    }
    const bool is_val = name.starts_with("test");
    for (size_t at = 0; at < file->size(); at += record) {
        const uint8_t * from = file->data() + at;
        source.items.push_back(
            {name + "#" + std::to_string(at / record), from[n_labels - 1], is_val, kSide, kSide}
        );
        source.pixels.insert(source.pixels.end(), from + n_labels, from + record);
    }
    source.digest = random_bits(source.digest, digest64(*file));
}

std::unique_ptr<ImageSource>
open_image_cifar(const std::string & path, const ImageOptions & options) {
    std::error_code ignored;
    fs::path        folder = path;
    for (const char * inner : {"cifar-10-batches-bin", "cifar-100-binary"}) {
        if (fs::is_directory(folder / inner, ignored)) {
            folder /= inner;
        }
    }
    std::vector<fs::path> batches;
    bool                  fine = false;
    if (fs::is_directory(folder, ignored)) {
        for (const auto & entry : fs::directory_iterator(folder, ignored)) {
            const std::string name = entry.path().filename().string();
            const bool        ten  = (name.starts_with("data_batch") || name == "test_batch.bin") &&
                             name.ends_with(".bin");
            const bool hundred = name == "train.bin" || name == "test.bin";
            if (ten || hundred) {
                batches.push_back(entry.path());
                fine = fine || hundred;
            }
        }
    }
    if (batches.empty()) {
        return nullptr;
    }
    std::sort(batches.begin(), batches.end());

    auto source       = std::make_unique<CifarSource>();
    source->kind      = "cifar " + path;
    source->in_memory = true;
    source->classes   = read_names(folder / (fine ? "fine_label_names.txt" : "batches.meta.txt"));
    const size_t n_classes = fine ? 100 : 10;
    if (source->classes.size() != n_classes && !fine) {
        source->classes = {"airplane", "automobile", "bird",  "cat",  "deer",
                           "dog",      "frog",       "horse", "ship", "truck"};
    }
    for (size_t i = source->classes.size(); i < n_classes; ++i) {
        source->classes.push_back(std::to_string(i));
    }
    for (const fs::path & batch : batches) {
        add_batch(*source, batch, fine ? 2 : 1, int(n_classes));
    }
    const bool has_val =
        std::any_of(source->items.begin(), source->items.end(), [](const ImageItem & i) {
            return i.is_val;
        });
    if (!has_val || options.val_fraction >= 1.0) {
        split_by_name(source->items, options.val_fraction);
    }
    return source;
}

}  // namespace gt
