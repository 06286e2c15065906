// A folder per class: photos/cat/1.jpg, photos/dog/... Class folders are searched recursively.
// photos/train/<class> and photos/val/<class> (or valid, validation, test) define a split; otherwise
// split_by_name makes one.
#include "models/vision/image-decode.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <set>

namespace fs = std::filesystem;

namespace gt {

namespace {

struct Candidate {
    std::string relative;
    std::string class_name;
    bool        is_val = false;
    PictureInfo info;
    uint64_t    size = 0, changed = 0;  // in bytes; mtime
};

class FolderSource : public ImageSource {
public:
    FolderSource(std::string root, const ImageOptions & options)
        : root_(std::move(root)), max_pixels_(options.max_pixels),
          max_file_bytes_(options.max_file_bytes) {}

    std::optional<PictureView>
    read(int64_t i, int channels, Picture & scratch, std::string & why) const override {
        const std::string & name = items[size_t(i)].name;
        const auto          file = read_picture_file(root_ + "/" + name, max_file_bytes_, why);
        if (!file || !decode_picture(*file, name, channels, max_pixels_, scratch, why)) {
            return {};
        }
        return scratch.view();
    }

private:
    std::string root_;
    int64_t     max_pixels_;
    int64_t     max_file_bytes_;
};

}  // namespace

static bool is_hidden(const fs::path & path) {
    return path.filename().string().starts_with(".");
}

// Sorted, so that every host has the same order.
static std::vector<fs::path> entries(const fs::path & folder) {
    std::vector<fs::path> found;
    std::error_code       ignored;
    for (const auto & entry :
         fs::directory_iterator(folder, fs::directory_options::skip_permission_denied, ignored)) {
        if (!is_hidden(entry.path())) {
            found.push_back(entry.path());
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

static void collect_files(
    const fs::path &         folder,
    const std::string &      prefix,
    Candidate                like,
    std::vector<Candidate> & out
) {
    for (const fs::path & path : entries(folder)) {
        const std::string name = prefix + "/" + path.filename().string();
        std::error_code   ignored;
        if (fs::is_directory(path, ignored)) {
            if (!fs::is_symlink(path, ignored)) {  // links could form a cycle
                collect_files(path, name, like, out);
            }
            continue;
        }
        like.relative = name;
        if (!fs::is_regular_file(path, ignored)) {
            like.info.problem = "not a regular file";
        }
        out.push_back(like);
    }
}

// Adds the files in the class folders of `root`/`split`.
static void collect_classes(
    const fs::path & root, const std::string & split, bool is_val, std::vector<Candidate> & out
) {
    std::error_code ignored;
    for (const fs::path & path : entries(split.empty() ? root : root / split)) {
        const std::string leaf = path.filename().string();
        const std::string name = split.empty() ? leaf : split + "/" + leaf;
        Candidate         like{.class_name = leaf, .is_val = is_val};
        if (fs::is_directory(path, ignored)) {
            collect_files(path, name, like, out);
        } else {
            like.relative     = name;
            like.info.problem = "outside the class folders";
            out.push_back(like);
        }
    }
}

// Reads the headers of all files in parallel.
static void
probe_all(const fs::path & root, const ImageOptions & options, std::vector<Candidate> & all) {
    std::atomic<size_t> next = 0;
    Workers(std::max(1, options.n_threads)).run([&](int, int) {
        for (size_t i = next++; i < all.size(); i = next++) {
            Candidate &    file = all[i];
            const fs::path path = root / file.relative;
            if (!file.info.problem.empty()) {
                continue;
            }
            file.info = probe_picture(path.string(), options.max_pixels, options.max_file_bytes);
            std::error_code ignored;
            const auto      changed = fs::last_write_time(path, ignored).time_since_epoch();
            file.size               = fs::file_size(path, ignored);
            file.changed            = static_cast<uint64_t>(changed.count());
        }
    });
}

// Class names: the given ones, else the sorted names of the folders with pictures.
static std::map<std::string, int> number_classes(
    const std::vector<Candidate> & all, const ImageOptions & options, ImageSource & source
) {
    source.classes = options.classes;
    if (source.classes.empty()) {
        std::set<std::string> names;
        for (const Candidate & file : all) {
            if (file.info.problem.empty()) {
                names.insert(file.class_name);
            }
        }
        source.classes.assign(names.begin(), names.end());
    }
    std::map<std::string, int> labels;
    for (size_t i = 0; i < source.classes.size(); ++i) {
        labels.emplace(source.classes[i], int(i));
    }
    return labels;
}

std::unique_ptr<ImageSource>
open_image_folder(const std::string & path, const ImageOptions & options) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
        return nullptr;
    }
    auto source  = std::make_unique<FolderSource>(path, options);
    source->kind = "folder " + path;

    std::vector<Candidate> all;
    bool                   has_val = false;
    if (fs::is_directory(fs::path(path) / "train", ignored)) {
        collect_classes(path, "train", false, all);
        for (const char * name : {"val", "valid", "validation", "test"}) {
            if (!has_val && fs::is_directory(fs::path(path) / name, ignored)) {
                collect_classes(path, name, true, all);
                has_val = true;
            }
        }
    } else {
        collect_classes(path, "", false, all);
    }
    probe_all(path, options, all);
    const auto labels = number_classes(all, options, *source);

    for (const Candidate & file : all) {
        const auto label = labels.find(file.class_name);
        if (!file.info.problem.empty()) {
            source->skipped.push_back({file.relative, file.info.problem});
        } else if (label == labels.end()) {
            source->skipped.push_back(
                {file.relative, "the model has no class named " + file.class_name}
            );
        } else {
            source->items.push_back(
                {file.relative, label->second, file.is_val, file.info.width, file.info.height}
            );
            source->digest = random_bits(source->digest, digest64(file.relative), file.size);
            source->times  = random_bits(source->times, file.changed);
        }
    }
    if (options.val_fraction >= 1.0 || !has_val) {
        split_by_name(source->items, options.val_fraction);
    }
    return source;
}

}  // namespace gt
