// ggml-train/run/checkpoint.h — everything a run needs to resume, in one GGUF file: weights (F32, under their
// names), optimizer state, counters, flags, step, and the model's keys, so that `export` needs nothing
// else. The position in the data is a function of the step (models/text/token-data.h).
//
// A checkpoint is written aside, flushed and renamed, and ends with a seal (gguf/gguf-write.h): a
// truncated or altered one is refused, and the one before it is used.
// Our own keys are gt.checkpoint.*. State tensors are stored as s.<index>, blobs (such as a message in
// flight) as b.<index>; keys hold their names.
#pragma once

#include "ggml-train/gguf/model-head.h"
#include "ggml-train/shard/host-state.h"

#include <optional>

namespace gt {

// The content to save, and the place to load it to: the spans point into the run's own memory.
struct Checkpoint {
    const ModelHead * model = nullptr;  // only saved

    uint64_t                                         step = 0;  // weight updates done
    std::vector<std::pair<std::string, std::string>> flags;     // as Flags::values gives them
    HostState state;  // weights (all, with the names of model->tensors) and optimizer state
};

// Writes `<folder>/checkpoint-<step>.gguf`, then removes all but the newest `keep`, and unfinished files
// of killed processes. Returns its path. REQUIRES: the caller holds the FolderLock.
std::string
save_checkpoint(const std::string & folder, const Checkpoint & checkpoint, int keep = 3);

struct FoundCheckpoint {
    std::string              path;  // empty: there is none
    uint64_t                 step = 0;
    std::vector<std::string> refused;  // newer ones that were skipped, each with the reason
};

// The newest valid checkpoint of this model in the folder. Throws an Error if there are checkpoints but
// none is valid: only the user may decide to start over.
FoundCheckpoint find_checkpoint(const std::string & folder, const ModelHead & model);

// The content of a checkpoint without the values of its tensors.
struct CheckpointHead {
    struct Part {
        std::string name;
        uint64_t    n_bytes = 0;
    };

    uint64_t                                         step = 0;
    std::string                                      model;  // ModelHead::text
    std::vector<std::pair<std::string, std::string>> flags;
    std::vector<Part>                                weights, state, blobs;
    std::vector<std::pair<std::string, uint64_t>>    counters;
};
CheckpointHead read_checkpoint_head(const std::string & path);

// Loads step, flags, and the memory that weights and state point to. If a tensor or counter does not
// fit, an Error names it and nothing is changed.
void load_checkpoint(const std::string & path, Checkpoint & into);

// Renames a run's folder to `<folder>.old-1` (or -2, ...) if it exists. Returns the new name, or "".
std::string set_aside(const std::string & folder);

}  // namespace gt
