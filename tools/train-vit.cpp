// train-vit — trains a ViT on labelled pictures: a folder per class, IDX files, CIFAR batches.
//
//   new-model --preset vit-tiny --classes 37 -o vit.gguf
//   train-vit -m vit.gguf --data photos/
//   classify  -m vit-trained.gguf cat.jpg
//
// Read next: tools/train-loop.cpp (a run), ggml-train/classifier.h (what pictures become).
#include "ggml-train/classifier.h"
#include "tools/train-loop.h"

#include <filesystem>

using namespace gt;

namespace {

struct VitFlags : TrainFlags {
    AugmentOptions augment;
    ImageOptions   pictures;
    double         epochs = 0.0;
    float          depth  = 0.0f;
    NodesFlags     together;

    // Flags of the run that only pictures have.
    void visit_own(Flags & visit) {
        visit("epochs", epochs, "walks through all pictures instead of --steps; 0: 20");
        visit("val", pictures.val_fraction, "share kept for validation, where the data has no split");
        visit("stochastic-depth", depth, "share of the last residual branches dropped");
        augment.visit(visit);
    }

    void visit(Flags & visit) {
        visit.group("What to train, on what");
        visit("model,m", model, "model to train (GGUF; new-model makes one)");
        visit("data", data, "a folder with a folder per class, IDX files, or CIFAR batches");
        visit("cache", pictures.cache_path, "file for decoded pictures; default: in the run's folder");
        visit("cache-bytes", pictures.cache_bytes, "larger than this: not cached; 0: no cache");
        visit.group("The run");
        visit_run(visit);
        visit.group("Pictures");
        visit_own(visit);
        visit.group("Together with other machines");
        together.visit(visit);
        visit.group("The session");
        visit_session(visit);
    }
};

void choose_picture_defaults(VitFlags & f, const ModelConfig & config, int64_t n_pictures) {
    f.batch = f.batch ? f.batch : std::min<int64_t>(128, n_pictures);
    f.micro = f.micro ? f.micro : std::min(f.batch, std::max<int64_t>(1, 16384 / config.n_positions()));
    if (f.steps == 0 && f.tokens == 0 && f.hours == 0.0) {
        f.epochs = f.epochs > 0.0 ? f.epochs : 20.0;
        f.steps  = std::max<int64_t>(1, static_cast<int64_t>(f.epochs * static_cast<double>(n_pictures) / static_cast<double>(f.batch)));
    }
    choose_defaults(f, config, config.n_positions(), n_pictures);
}

int train_vit(VitFlags & f, Flags & flags) {
    // what we train
    Together  together(f.together);
    TrainTask task;
    task.model           = together.model(f.model, task.fresh);
    task.unit            = "images";
    task.n_per_sample    = 1;
    ModelConfig & config = task.model.config;
    if (config.arch != "vit") {
        throw Error(f.model + " is a model of text; train it with train-gpt");
    }
    f.out = f.out.empty() ? std::filesystem::path(f.model).replace_extension("").string() + "-run" : f.out;
    Flags    own("", "", "");
    VitFlags any;
    any.visit_own(own);
    const std::string checkpoint = find_run(f, flags, config, own.values());

    // on what
    f.pictures.classes = config.class_names;
    if (f.pictures.cache_path.empty() && f.pictures.cache_bytes > 0) {
        f.pictures.cache_path = f.out + "/pictures.cache";
    }
    const ImageData data(f.data.empty() && together.line() ? together.line()->data : f.data, image_spec(config), f.pictures);
    std::printf("%s\n%s", data.summary().c_str(), list_left_out(data, f.out + "/left-out.txt").c_str());
    learn_from_data(config, data, f.model);
    choose_picture_defaults(f, config, static_cast<int64_t>(data.train().size()));
    task.T     = config.n_positions();
    task.mixup = f.augment.mixup > 0.0f;
    task.depth = f.depth > 0.0f;

    // batches are made ahead of the step, on threads of their own
    std::unique_ptr<ImageLoader> train, val;
    const int                    n_threads = std::max(1, f.threads / 2);
    task.train = [&](uint64_t step, const std::string & host, int64_t begin, int64_t end) {
        if (!train) {
            const LoaderOptions options{
                .seed = f.seed, .host = host, .batch = static_cast<int>(f.batch), .begin = static_cast<int>(begin),
                .end = static_cast<int>(end), .augment = f.augment, .n_threads = n_threads};
            train = std::make_unique<ImageLoader>(data, options, step);
        }
        Batch batch = to_batch(train->at(step));
        if (task.depth) {
            batch.depth = depth_factors(f.depth, f.seed, step, host, begin, end, 2 * config.n_layer);
        }
        return batch;
    };
    task.waited   = [&] { return train ? std::chrono::duration<double>(train->waited()).count() : 0.0; };
    task.evaluate = [&](StepGraph & logits, bool last) -> Score {
        if (data.val().empty()) {
            return {.loss = -1.0};
        }
        if (!val) {
            const LoaderOptions options{.batch = static_cast<int>(f.micro), .val = true, .augment = {}, .n_threads = n_threads};
            val = std::make_unique<ImageLoader>(data, options);
        }
        const Evaluation result = evaluate_pictures(logits, *val, last ? 0 : f.eval_batches);
        if (last) {  // all of the validation set, and its worst mistakes for people
            write_mistakes(f.out + "/mistakes.html", data, result);
        }
        return {result.loss, result.accuracy};
    };
    const int code = train_loop(f, flags, task, together, checkpoint);
    if (code == 0 && !data.val().empty()) {
        std::printf("worst mistakes: %s/mistakes.html\n", f.out.c_str());
    }
    return code;
}

}  // namespace

int main(int argc, char ** argv) {
    int       code   = 0;
    const int failed = run_tool("train-vit", [&] {
        VitFlags f;
        Flags    flags("train-vit", "trains a ViT on labelled pictures", "-m MODEL --data PICTURES [flags]");
        f.visit(flags);
        flags.parse(argc, argv);
        flags.require("model");
        code = train_vit(f, flags);
    });
    return failed ? failed : code;
}
