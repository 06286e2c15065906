// classify — says what is on pictures; or, given labelled ones, how often a model is right.
//
//   classify -m vit-trained.gguf cat.jpg dog.png
//   classify -m vit-trained.gguf photos/            accuracy and confusion matrix
//   classify -m vit-trained.gguf cat.jpg --explain cat-attention.png
//
// Read next: models/classifier/classifier.h (which training's validation uses too).
#include "ggml-train/base/file.h"
#include "models/classifier/explain.h"
#include "models/classifier/mistakes.h"
#include "tools/classify/classify-model.h"
#include "tools/classify/classify-report.h"
#include "tools/cli/flags.h"
#include "tools/verbs.h"

#include <algorithm>
#include <filesystem>
#include <thread>

using namespace gt;

namespace {

struct ClassifyFlags {
    std::string              model, split = "auto", mistakes, explain;
    std::vector<std::string> paths;
    double                   val = 0.1;
    int64_t                  top = 5, batch = 64;
    int                      threads = 0;
    bool                     json    = false;

    void visit(Flags & visit) {
        visit("model,m", model, "the model (GGUF, trained by train-vit)");
        visit("top", top, "number of classes printed per picture", {}, 1);
        visit("json", json, "one JSON object per picture, or one for a folder");
        visit(
            "split,part", split,
            "labelled pictures to classify; validation: those that train-vit kept for validation; "
            "auto: these if the data has a validation set, else all",
            {"auto", "validation", "all"}
        );
        visit("val-fraction,val", val, "the --val-fraction of train-vit", {}, 0, 0.99);
        visit(
            "mistakes", mistakes,
            "write the confusion matrix and worst mistakes on labelled pictures to this HTML file"
        );
        visit(
            "explain", explain,
            "write where the model looks on a picture to this PNG file: the attention of its last "
            "block"
        );
        visit("batch", batch, "batch size", {}, 1);
        visit("threads,t", threads, "CPU threads; 0: all cores", {}, 0, 4096);
        visit.positional(
            "PICTURE", paths, "pictures; or a labelled folder, IDX files, CIFAR batches"
        );
    }
};

void write_explanation(const std::string & path, Classifier & c, std::span<const float> pixels) {
    const auto attention = last_attention(c.backend, *c.model, pixels);
    const auto patch     = static_cast<int>(c.file.config.patch_size);
    const auto png =
        encode_png(attention_picture(image_spec(c.file.config), pixels, attention, patch).view());
    AsideFile file(path);
    file.write(png.data(), png.size());
    file.commit();
    std::fprintf(stderr, "attention of the last block: %s\n", path.c_str());
}

// False if the picture can't be read; the reason is printed.
bool classify_picture(const ClassifyFlags & f, Classifier & c, const std::string & path) {
    const ImageSpec spec = image_spec(c.file.config);
    Batch           batch{.n_samples = 1};
    batch.images.resize(spec.n_values());
    try {
        read_model_input(path, spec, batch.images);
    } catch (const Error & error) {
        std::fprintf(stderr, "classify: %s\n", error.what());
        return false;
    }
    c.graph.run(batch);
    std::printf("%s\n", answer_text(path, c.graph.logits(), c.names, f.top, f.json).c_str());
    if (!f.explain.empty()) {
        write_explanation(f.explain, c, batch.images);
    }
    return true;
}

void classify_labelled(
    const ClassifyFlags & f, Classifier & c, const std::string & path, int n_threads
) {
    const ImageSpec spec = image_spec(c.file.config);
    const auto      open = [&](double val) {
        return std::make_unique<ImageData>(
            path, spec,
            ImageOptions{
                     .classes = c.names, .val_fraction = val, .cache_path = "", .n_threads = n_threads}
        );
    };
    auto data = open(f.split == "validation" ? f.val : f.split == "all" ? 1.0 : 0.0);
    if (data->val().empty()) {  // the data has no validation set
        data = open(1.0);
    }
    ImageLoader loader(
        *data, {.batch = static_cast<int>(c.graph.options().B), .val = true, .n_threads = n_threads}
    );
    const Evaluation result = evaluate_pictures(c.graph, loader);
    std::printf("%s\n", report_text(path, result, c.names, f.json).c_str());
    for (const SkippedFile & file : data->skipped()) {
        std::fprintf(stderr, "skipped: %s (%s)\n", file.name.c_str(), file.reason.c_str());
    }
    if (!f.mistakes.empty()) {
        write_mistakes(f.mistakes, *data, result);
        std::fprintf(stderr, "worst mistakes: %s\n", f.mistakes.c_str());
    }
}

// A folder, or a file that is one of a labelled set, is not a picture.
bool is_labelled(const std::string & path) {
    return std::filesystem::is_directory(path) || path.find("-ubyte") != path.npos ||
           path.ends_with(".bin");
}

}  // namespace

int gt::classify_main(Flags & flags, int argc, char ** argv) {
    ClassifyFlags f;
    f.visit(flags);
    flags.parse(argc, argv);
    flags.require("model");
    if (f.paths.empty()) {
        throw UsageError("name a picture, or a folder of labelled ones");
    }
    if (!f.explain.empty() && (f.paths.size() != 1 || is_labelled(f.paths[0]))) {
        throw UsageError("--explain takes one picture");
    }
    const int  n_threads = f.threads > 0
                               ? f.threads
                               : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    const bool labelled  = std::any_of(f.paths.begin(), f.paths.end(), is_labelled);
    Classifier one(f.model, n_threads, 1);
    auto       many =
        labelled ? std::make_unique<Classifier>(f.model, n_threads, std::max<int64_t>(1, f.batch))
                       : nullptr;
    bool all_read = true;
    for (const std::string & path : f.paths) {
        if (is_labelled(path)) {
            classify_labelled(f, *many, path, n_threads);
        } else {
            all_read = classify_picture(f, one, path) && all_read;
        }
    }
    return all_read ? 0 : 1;
}
