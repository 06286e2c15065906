// ggml-train/checkpoint.h — everything a run needs to go on, in one GGUF: weights (F32, under their
// names), optimizer state, counters, flags, step, and the model's keys, so that `export` needs
// nothing else. Which samples come next is a function of the step (data.h).
//
// A checkpoint is written aside, flushed and renamed, and ends with a seal (gguf-writer.h): one that
// is cut, half-written or altered is refused and the one before it is used.
// Keys of our own: gt.checkpoint.*; the state tensors are named s.<index>, blobs (such as a message in
// flight) b.<index>; their own names are in keys.
#pragma once

#include "ggml-train/host-state.h"
#include "ggml-train/model-config.h"

#include <optional>

namespace gt {

// What is saved, and where it is loaded to: the spans point into the run's own memory.
struct Checkpoint {
    const ModelConfig *  config = nullptr;
    const gguf_context * keys   = nullptr;  // of the ModelFile; only saved

    uint64_t                                         step = 0;  // weight updates done
    std::vector<std::pair<std::string, std::string>> flags;     // as Flags::values gives them
    HostState
        state;  // weights (complete, names as in tensor_specs), optimizer, what else must go on
};

// Writes `<folder>/checkpoint-<step>.gguf`, then removes all but the newest `keep`, and what killed
// processes left unfinished. Returns its path. REQUIRES: nobody else saves there (FolderLock).
std::string
save_checkpoint(const std::string & folder, const Checkpoint & checkpoint, int keep = 3);

struct FoundCheckpoint {
    std::string              path;  // empty: there is none
    uint64_t                 step = 0;
    std::vector<std::string> refused;  // newer ones, each with the reason, for people
};

// The newest whole checkpoint of this model in the folder. Throws an Error if there are some but
// none is good: to start over must be a person's decision.
FoundCheckpoint find_checkpoint(const std::string & folder, const ModelConfig & config);

// Flags and step of a checkpoint, without its tensors.
struct CheckpointHead {
    uint64_t                                         step = 0;
    std::vector<std::pair<std::string, std::string>> flags;
};
CheckpointHead read_checkpoint_head(const std::string & path);

// Fills step, flags, and the memory that weights and state point to. An Error says which tensor or
// counter does not fit; then nothing was changed.
void load_checkpoint(const std::string & path, Checkpoint & into);

// Renames a run's folder (to `<folder>.old-1`, ...) if it exists. Returns its new name, or nothing.
std::string set_aside(const std::string & folder);

}  // namespace gt
