// export — writes a checkpoint or a model as a GGUF of weights only, in a chosen type; or a ViT for other programs.
//
//   export runs/small -o small-trained.gguf              the newest checkpoint of a run
//   export model.gguf --type q8_0 -o model-q8_0.gguf
//   export runs/chat --merge base.gguf -o merged.gguf    an adapter, merged into its model
//   export runs/pets -o timm/model.safetensors           a ViT for timm, with config.json beside it
//   export runs/pets -o pets.onnx                        the same for ONNX Runtime
//   export --nodes hosts.txt -o trained.gguf             the model of a run, from its store
//
// Read next: models/model-file.cpp, tools/train/fetch-run.cpp.
#include "ggml-train/base/file.h"
#include "ggml-train/run/checkpoint.h"
#include "models/convert/export-vit.h"
#include "models/convert/import-vit.h"
#include "models/convert/onnx.h"
#include "models/merge.h"
#include "tools/cli/invite.h"
#include "tools/cli/output.h"
#include "tools/train/fetch-run.h"
#include "tools/verbs.h"

#include <algorithm>
#include <filesystem>

using namespace gt;

namespace fs = std::filesystem;

// A file, or the newest valid checkpoint of a run's folder.
static std::string find_input(const std::string & path) {
    if (!fs::is_directory(path)) {
        return path;
    }
    std::vector<std::string> checkpoints;
    for (const auto & entry : fs::directory_iterator(path)) {
        if (entry.path().filename().string().compare(0, 11, "checkpoint-") == 0 &&
            entry.path().extension() == ".gguf") {
            checkpoints.push_back(entry.path().string());
        }
    }
    std::sort(checkpoints.rbegin(), checkpoints.rend());
    for (const std::string & checkpoint : checkpoints) {
        try {
            load_model(checkpoint);
            std::printf("from %s\n", checkpoint.c_str());
            return checkpoint;
        } catch (const Error & error) {
            std::fprintf(stderr, "export: skipped: %s\n", error.what());
        }
    }
    throw Error(path + ": this folder has no valid checkpoint");
}

// A ViT in a format of other programs, by the name of the file. Returns what was written; empty: it is a GGUF.
static std::string save_elsewhere(
    const std::string & out, const ModelFile & model, const std::string & type, bool force
) {
    const bool onnx = out.ends_with(".onnx");
    if (!onnx && !is_safetensors(out)) {
        return "";
    }
    if (!takes_images(model.config) || model.config.lora.enabled()) {
        throw UsageError(out + ": only a ViT is written in this format; name a .gguf");
    }
    if (type != "f32") {
        throw UsageError(out + ": this format is written as f32; drop --type");
    }
    if (onnx) {
        save_onnx(out, model);
        return "ONNX, opset 17: pixels [batch, channels, height, width] in [0, 1] -> logits";
    }
    check_output((fs::path(out).parent_path() / "config.json").string(), {}, force);
    return "config for timm: " + save_timm(out, model);
}

int gt::export_main(Flags & flags, int argc, char ** argv) {
    std::vector<std::string> inputs;
    bool                     force = false;
    std::string              out, type = "f32", name, nodes, join, merge;
    flags.positional("INPUT", inputs, "a checkpoint, a run's folder, or a model file");
    flags("out,o", out, "the file to write: .gguf; of a ViT also .safetensors, for timm, or .onnx");
    flags(
        "type", type, "type of matrices; norms, biases and positions stay f32",
        {"f32", "f16", "bf16", "q8_0"}
    );
    flags("merge", merge, "the model (GGUF) that the input is an adapter for: write them as one");
    flags("name", name, "general.name in the file");
    flags("nodes", nodes, "hosts.txt: fetch the model of that run from its store");
    flags("force", force, "replace an existing file");
    flags(
        "join", join,
        "an invitation from hub --invite, its file, or - for standard input; instead of --nodes"
    );
    flags.parse(argc, argv);
    hide_invites(argc, argv);
    const bool from_store = !nodes.empty() || !join.empty();
    if (inputs.size() + (from_store ? 1 : 0) != 1) {
        throw UsageError("name one checkpoint, run folder or model file, or --nodes hosts.txt");
    }
    flags.require("out");
    check_output(out, inputs, force);
    if (!merge.empty()) {
        if (from_store || !name.empty()) {
            throw UsageError("--merge takes a file or a run's folder; without --nodes and --name");
        }
        const auto notes = save_merged(out, merge, find_input(inputs[0]), parse_weight_type(type));
        for (const std::string & note : notes) {
            std::printf("%s\n", note.c_str());
        }
        std::printf(
            "%s: %s with the adapter, %s, %s\n", out.c_str(), merge.c_str(), type.c_str(),
            bytes_text(fs::file_size(out)).c_str()
        );
        return 0;
    }
    const ModelFile model =
        from_store ? fetch_run(join.empty() ? read_hosts(nodes) : parse_invite(read_invite(join)))
                   : load_model(find_input(inputs[0]));
    if (!name.empty()) {
        gguf_set_val_str(model.keys.get(), "general.name", name.c_str());
    }
    std::vector<std::string> notes = model.notes;
    if (const std::string written = save_elsewhere(out, model, type, force); !written.empty()) {
        notes.push_back(written);
    } else {
        for (const std::string & note : save_model(out, model, parse_weight_type(type))) {
            notes.push_back(note);
        }
    }
    for (const std::string & note : notes) {
        std::printf("%s\n", note.c_str());
    }
    std::printf(
        "%s: %s, %s, %s\n", out.c_str(), describe(model.config).c_str(), type.c_str(),
        bytes_text(fs::file_size(out)).c_str()
    );
    return 0;
}
