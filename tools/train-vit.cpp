// train-vit — trains a ViT on labelled pictures: a folder per class, IDX files, CIFAR batches.
//
//   new-model --preset vit-tiny --classes 37 -o vit.gguf
//   train-vit -m vit.gguf --data photos/
//   classify  -m vit-trained.gguf cat.jpg
//
// Read next: tools/picture-task.cpp (pictures as a task), tools/train-loop.cpp (a run),
// ggml-train/trainer.cpp (one step).
#include "tools/picture-task.h"

#include <filesystem>

using namespace gt;

namespace {

struct VitFlags : TrainFlags {
    PictureFlags pictures;
    NodesFlags   together;

    void visit(Flags & visit) {
        visit.group("What to train, on what");
        visit("model,m", model, "model to train (GGUF; new-model makes one)");
        visit("data", data, "a folder with a folder per class, IDX files, or CIFAR batches");
        pictures.visit_data(visit);
        visit.group("The run");
        visit_run(visit);
        visit.group("Pictures");
        pictures.visit_run(visit);
        visit.group("Together with other machines");
        together.visit(visit);
        visit.group("The session");
        visit_session(visit);
    }
};

// --data, else what our line in hosts.txt says.
std::string find_data(const VitFlags & f, const HostLine * line) {
    if (f.data.empty() && (!line || line->data.empty())) {
        throw UsageError("no data: name a folder with a folder per class, or IDX files, with --data"
        );
    }
    return f.data.empty() ? line->data : f.data;
}

int train_vit(VitFlags & f, Flags & flags) {
    // what we train, and with whom
    Together  together(f.together);
    TrainTask task;
    task.model = together.model(f.model, task.fresh);
    if (task.model.config.arch != "vit") {
        throw Error(f.model + " is a model of text; train it with train-gpt");
    }
    if (f.out.empty()) {
        f.out = std::filesystem::path(f.model).replace_extension("").string() + "-run";
    }
    PictureFlags defaults;
    Flags        own("", "", "");
    defaults.visit_run(own);
    const std::string checkpoint = find_run(f, flags, task.model.config, own.values());

    // on what
    PictureTask pictures(find_data(f, together.line()), f, f.pictures, task, together);
    Flags       mine("", "", "");
    f.pictures.visit_run(mine);
    settle(f, flags, task, together, mine.values());
    task.mixup     = f.pictures.augment.mixup > 0.0f;
    task.depth     = f.pictures.depth > 0.0f;
    const int code = train_loop(f, flags, task, together, checkpoint);
    if (code == 0 && !pictures.mistakes().empty()) {
        std::printf("worst mistakes: %s\n", pictures.mistakes().c_str());
    }
    return code;
}

}  // namespace

int main(int argc, char ** argv) {
    int       code   = 0;
    const int failed = run_tool("train-vit", [&] {
        VitFlags f;
        Flags    flags(
               "train-vit", "trains a ViT on labelled pictures", "-m MODEL --data PICTURES [flags]"
           );
        f.visit(flags);
        flags.parse(argc, argv);
        flags.require("model");
        code = train_vit(f, flags);
    });
    return failed ? failed : code;
}
