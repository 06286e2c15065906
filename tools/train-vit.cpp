// train-vit — trains a ViT on labelled pictures: a folder per class, IDX files, CIFAR batches.
//
//   new-model --preset vit-tiny --classes 37 -o vit.gguf
//   train-vit -m vit.gguf --data photos/
//   classify  -m vit-trained.gguf cat.jpg
//
// Read next: models/classifier/picture-data.cpp (pictures as Data), tools/train/run.cpp (a run),
// ggml-train/trainer.cpp (one step).
#include "models/classifier/picture-data.h"
#include "tools/cli/invite.h"
#include "tools/train/run-devices.h"
#include "tools/train/run.h"
#include "tools/train/settle.h"
#include "tools/verbs.h"

#include <algorithm>

using namespace gt;

namespace {

// Flags that a recipe sets, unless they are given.
struct Recipe {
    const char *  name;
    Flags::Values values;
};
const Recipe kRecipes[] = {
    {"small-data",  // measured by tests/bench/vit-fashion.py
     {{"flip", "1"},
      {"pad", "1"},
      {"smoothing", "0.1"},
      {"schedule", "linear"},
      {"min-lr-ratio", "0"},
      {"rule", "muon"}}},
    {"fine-tune",  // by tests/bench/vit-classes.py
     {{"flip", "1"},
      {"pad", "1"},
      {"smoothing", "0.1"},
      {"stochastic-depth", "0.05"},
      {"weight-decay", "0.05"},
      {"schedule", "linear"},
      {"min-lr-ratio", "0"},
      {"rule", "muon"}}},
};

struct VitFlags : TrainFlags {
    AugmentOptions augment;
    ImageOptions   images;
    std::string    recipe = "none";
    float          depth = 0.0f, layer_decay = 1.0f;
    int64_t        freeze = 0;
    NodesFlags     nodes;
    LoraFlags      lora;

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
        visit(
            "recipe", recipe,
            "flags for a purpose, unless they are given: small-data trains a new model on few "
            "pictures, fine-tune a trained one on others",
            {"none", "small-data", "fine-tune"}
        );
        visit(
            "freeze", freeze, "number of first blocks that stay as they are, with the embedding",
            {}, 0, 1e9
        );
        visit(
            "layer-decay", layer_decay,
            "learning rate of a block, as a fraction of the next block's; 1: all equal", {}, 0.01, 1
        );
        visit.group("Augmentation of pictures (part of the run)");
        augment.visit(visit);
        visit.group("Adapter (LoRA)");
        lora.visit(visit);
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
            {"model", "data", "epochs", "hours", "batch", "lr", "recipe", "nodes", "join", "name",
             "status", "out", "fresh", "extend", "threads", "device"}
        );
    }
};

// The flags with those of the recipe that are not given.
VitFlags with_recipe(const VitFlags & given, const Flags & flags) {
    Flags::Values values;
    for (const Recipe & recipe : kRecipes) {
        for (const auto & [name, value] : recipe.values) {
            if (given.recipe == recipe.name && !flags.given(name)) {
                values.push_back({name, value});
            }
        }
    }
    return with_values(given, values);
}

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
    RunModel      model  = session.model(given.model, given.lora.config());
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
             .n_hosts      = session.n_hosts(),
             .up_rate      = given.nodes.up_rate(),
             .data_text    = images->summary()};
    const VitFlags run = settle(f, flags, in, session);
    run.lora.check(config.lora);
    in.mixup           = is_mixed(run.augment);
    in.depth           = run.depth > 0.0f;
    config.n_frozen    = run.freeze;
    config.layer_decay = run.layer_decay;
    if (run.freeze > config.n_layer) {
        throw UsageError(format(
            "--freeze %lld: the model has %lld blocks", static_cast<long long>(run.freeze),
            static_cast<long long>(config.n_layer)
        ));
    }
    const RunPlan plan = make_plan(run, flags, in, folder);
    if (plan.batch % run.augment.repeats != 0) {
        throw UsageError(format(
            "--repeats %d does not divide the batch of %lld", run.augment.repeats,
            static_cast<long long>(plan.batch)
        ));
    }
    const std::string mistakes = images->val().empty() ? "" : plan.out + "/mistakes.html";
    PictureData       data(
              *images, {.seed       = plan.seed,
                        .host       = session.host(),
                        .batch      = plan.batch,
                        .augment    = run.augment,
                        .depth      = run.depth,
                        .n_branches = 2 * config.n_layer,
                        .n_val      = plan.eval_batches * plan.batch,
                        .n_threads  = std::max(1, plan.threads / 2)}
          );
    const int code = run_training(plan, model, data, session);
    if (!data.last().answers.empty()) {
        write_mistakes(mistakes, *images, data.last(), plan.out + "/metrics.jsonl");
    }
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
    f = with_recipe(f, flags);  // checkpoints store the values that `flags` refers to
    static_cast<TrainFlags &>(f) = begin_session(f, flags, f.nodes);
    return train_vit(f, flags);
}
