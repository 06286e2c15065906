// train-vit — trains a ViT on labelled pictures: a folder per class, IDX files, CIFAR batches.
//
//   new-model --preset vit-tiny --classes 37 -o vit.gguf
//   train-vit -m vit.gguf --data photos/
//   classify  -m vit-trained.gguf cat.jpg
//
// Read next: models/vision/picture-data.cpp (pictures as Data), tools/train/run.cpp (a run),
// ggml-train/trainer.cpp (one step).
#include "models/vision/picture-data.h"
#include "tools/cli/invite.h"
#include "tools/train/run-devices.h"
#include "tools/train/run.h"
#include "tools/train/settle.h"
#include "tools/verbs.h"

#include <algorithm>

using namespace gt;

namespace {

struct VitFlags : TrainFlags {
    AugmentOptions augment;
    ImageOptions   images;
    float          depth = 0.0f;
    NodesFlags     nodes;

    VitFlags() { pictures = true; }

    void visit_run(Flags & visit) {
        TrainFlags::visit_run(visit);
        visit.group("Pictures (part of the run)");
        visit(
            "val-fraction,val", images.val_fraction,
            "fraction kept for validation, if the data has no validation set", {}, 0, 0.99
        );
        visit(
            "stochastic-depth", depth, "drop probability of the last residual branch", {}, 0, 0.99
        );
        augment.visit(visit);
    }

    void visit(Flags & visit) {
        visit.group("Model and data");
        visit("model,m", model, "model to train (GGUF); with other hosts, omit it to take theirs");
        visit("data", data, "a folder with a folder per class, IDX files, or CIFAR batches");
        visit("cache", images.cache_path, "file of decoded pictures; default: in the run's folder");
        visit("cache-bytes", images.cache_bytes, "maximum size of the cache; 0: no cache");
        visit_run(visit);
        visit.group("Other hosts");
        nodes.visit(visit);
        visit_session(visit);
        visit.shown_first(
            {"model", "data", "epochs", "hours", "batch", "lr", "flip", "pad", "mixup", "nodes",
             "join", "name", "status", "out", "fresh", "extend", "threads", "device"}
        );
    }
};

// --data, else the data of our entry in hosts.txt.
std::string find_data(const VitFlags & f, const HostEntry * entry) {
    if (f.data.empty() && (!entry || entry->data.empty())) {
        throw UsageError("no data: name a folder with a folder per class, or IDX files, with --data"
        );
    }
    if (f.data.size() > 1) {
        throw UsageError("--data is given twice; put the pictures into one folder");
    }
    return f.data.empty() ? entry->data : f.data[0];
}

// Opens the pictures. The model learns class names and normalisation from them, the same on every host.
std::unique_ptr<ImageData>
open_images(const VitFlags & f, const std::string & folder, ModelFile & model, Session & session) {
    std::unique_ptr<ImageData> images;
    do {  // again if another host, with other pictures, has described them first
        ImageOptions options = f.images;
        options.classes      = model.config.class_names;
        if (options.cache_path.empty() && options.cache_bytes > 0) {
            options.cache_path = folder + "/pictures.cache";
        }
        images = std::make_unique<ImageData>(
            find_data(f, session.entry()), image_spec(model.config), options
        );
        learn_from_data(model.config, *images, model_name(f));
    } while (!session.offer(model));
    std::printf("%s", list_left_out(*images, folder + "/left-out.txt").c_str());
    return images;
}

int train_vit(const VitFlags & given, const Flags & flags) {
    // the model, and the other hosts
    check_flags(given, flags, given.nodes.alone());
    Session       session(given.nodes);
    RunModel      model  = session.model(given.model);
    ModelConfig & config = model.file.config;
    if (!takes_images(config)) {
        throw Error(model_name(given) + " is a model of text; train it with train-gpt");
    }
    const RunFolder folder = open_run(given, flags, run_values(VitFlags{}), model.file);

    // the data
    const VitFlags f      = with_values(given, folder.flags);
    const auto     images = open_images(f, folder.path, model.file, session);

    // the plan
    const auto    n_pictures = static_cast<int64_t>(images->train().size());
    const int64_t T          = config.n_positions();
    RunInput      in{
             .model        = &model,
             .T            = T,
             .n_samples    = n_pictures,
             .batch        = std::min<int64_t>(128, n_pictures),
             .micro        = std::max<int64_t>(1, 16384 / T),
             .epochs       = 20.0,
             .unit         = "images",
             .n_per_sample = 1,
             .logits       = true,
             .alone        = session.alone(),
             .up_rate      = given.nodes.up_rate(),
             .data_text    = images->summary()};
    const VitFlags run         = settle(f, flags, in, session);
    in.mixup                   = run.augment.mixup > 0.0f;
    in.depth                   = run.depth > 0.0f;
    const RunPlan     plan     = make_plan(run, flags, in, folder);
    const std::string mistakes = images->val().empty() ? "" : plan.out + "/mistakes.html";
    PictureData       data(
              *images, {.seed       = plan.seed,
                        .host       = session.host(),
                        .batch      = plan.batch,
                        .augment    = run.augment,
                        .depth      = run.depth,
                        .n_branches = 2 * config.n_layer,
                        .n_val      = plan.eval_batches * plan.batch,
                        .mistakes   = mistakes,
                        .n_threads  = std::max(1, plan.threads / 2)}
          );
    const int code = run_training(plan, model, data, session);
    if (code == 0 && !mistakes.empty()) {
        std::printf("worst mistakes: %s\n", mistakes.c_str());
    }
    return code;
}

}  // namespace

int gt::train_vit_main(Flags & flags, int argc, char ** argv) {
    VitFlags f;
    f.visit(flags);
    flags.parse(argc, argv);
    hide_invites(argc, argv);
    if (f.list_devices) {
        std::fputs(device_list().c_str(), stdout);
        return 0;
    }
    static_cast<TrainFlags &>(f) = begin_session(f, flags, f.nodes);
    return train_vit(f, flags);
}
