#include "ggml-train/checkpoint.h"

#include "ggml-train/file.h"
#include "ggml-train/gguf-keys.h"
#include "ggml-train/gguf-writer.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

namespace gt {

namespace fs = std::filesystem;

static constexpr uint32_t kCheckpointVersion = 3;

static std::string state_name(size_t i) {
    return "s." + std::to_string(i);
}
static std::string blob_name(size_t i) {
    return "b." + std::to_string(i);
}

// Bytes that are saved, of the whole host: the number of its ranks leaves no trace.
struct Blob {
    std::string name;
    Bytes       bytes;
};
static std::vector<Blob> full_blobs_of(const HostState & state) {
    std::vector<Blob> blobs;
    for (const HostBytes & blob : state.blobs) {
        blobs.push_back({blob.name, blob.value()});
    }
    std::erase_if(blobs, [](const Blob & blob) { return blob.bytes.empty(); });
    return blobs;
}

static void
set_strings(gguf_context * gguf, const char * key, const std::vector<std::string> & values) {
    std::vector<const char *> pointers;
    for (const std::string & value : values) {
        pointers.push_back(value.c_str());
    }
    gguf_set_arr_str(gguf, key, pointers.data(), pointers.size());
}

// --- save ----------------------------------------------------------------------------------------

static void write_keys(
    const Checkpoint & checkpoint, const std::vector<Blob> & full_blobs, gguf_context * gguf
) {
    if (checkpoint.keys != nullptr) {
        gguf_set_kv(gguf, checkpoint.keys);
    }
    write_config(*checkpoint.config, gguf);
    gguf_set_val_u32(gguf, "general.file_type", 0);
    gguf_set_val_u32(gguf, "gt.checkpoint.version", kCheckpointVersion);
    gguf_set_val_str(gguf, "gt.checkpoint.model", describe(*checkpoint.config).c_str());
    gguf_set_val_u64(gguf, "gt.checkpoint.step", checkpoint.step);

    std::vector<std::string> flags, tensors, counters, blobs;
    std::vector<uint64_t>    values;
    for (const auto & [name, text] : checkpoint.flags) {
        flags.push_back(name + "=" + text);
    }
    for (const HostTensor & tensor : checkpoint.state.tensors) {
        tensors.push_back(tensor.name);
    }
    for (const HostCounter & counter : checkpoint.state.counters) {
        counters.push_back(counter.name);
        values.push_back(*counter.copies[0]);
    }
    for (const Blob & blob : full_blobs) {
        blobs.push_back(blob.name);
    }
    set_strings(gguf, "gt.checkpoint.flags", flags);
    set_strings(gguf, "gt.checkpoint.tensors", tensors);
    set_strings(gguf, "gt.checkpoint.counters", counters);
    set_strings(gguf, "gt.checkpoint.blobs", blobs);
    gguf_set_arr_data(gguf, "gt.checkpoint.values", GGUF_TYPE_UINT64, values.data(), values.size());
}

// Paths of the folder's checkpoints, newest first; or of parts that a killed process left.
static std::vector<std::string>
list_checkpoints(const std::string & folder, const char * ending = ".gguf") {
    std::vector<std::string> paths;
    std::error_code          error;
    for (const auto & entry : fs::directory_iterator(folder, error)) {
        const std::string name = entry.path().filename().string();
        if (name.compare(0, 11, "checkpoint-") == 0 && entry.path().extension() == ending) {
            paths.push_back(entry.path().string());
        }
    }
    std::sort(paths.rbegin(), paths.rend());
    return paths;
}

// Piece by piece: the whole of a tensor need not lie together anywhere.
static void write_tensor(GgufWriter & writer, const HostTensor & tensor) {
    if (tensor.size() == 0) {
        writer.write(nullptr, 0);
    }
    for (const HostTensor::Piece & piece : tensor.pieces) {
        if (piece.size() > 0) {
            const HostView view = piece.view();
            writer.write(view.values().data(), view.values().size_bytes());
        }
    }
}

std::string save_checkpoint(const std::string & folder, const Checkpoint & checkpoint, int keep) {
    GT_CHECK(keep >= 1, "the checkpoint just written is kept");
    const std::string path =
        folder +
        format("/checkpoint-%010llu.gguf", static_cast<unsigned long long>(checkpoint.step));
    std::map<std::string, const HostTensor *> weights;
    for (const HostTensor & weight : checkpoint.state.weights) {
        weights[weight.name] = &weight;
    }
    {
        const std::vector<Blob> blobs = full_blobs_of(checkpoint.state);
        GgufWriter              writer(path);
        write_keys(checkpoint, blobs, writer.keys());
        const std::vector<TensorSpec> specs = tensor_specs(*checkpoint.config);
        for (const TensorSpec & spec : specs) {
            writer.declare(spec.name, spec.ne, GGML_TYPE_F32);
        }
        for (size_t i = 0; i < checkpoint.state.tensors.size(); ++i) {
            const auto n = static_cast<int64_t>(checkpoint.state.tensors[i].size());
            writer.declare(state_name(i), {n, 1, 1, 1}, GGML_TYPE_F32);
        }
        for (size_t i = 0; i < blobs.size(); ++i) {
            const auto n = static_cast<int64_t>(blobs[i].bytes.size());
            writer.declare(blob_name(i), {n, 1, 1, 1}, GGML_TYPE_I8);
        }
        for (const TensorSpec & spec : specs) {
            write_tensor(writer, *weights[spec.name]);
        }
        for (const HostTensor & tensor : checkpoint.state.tensors) {
            write_tensor(writer, tensor);
        }
        for (const Blob & blob : blobs) {
            writer.write(blob.bytes.data(), blob.bytes.size());
        }
        writer.commit(true);
    }
    const std::vector<std::string> all = list_checkpoints(folder);
    std::error_code                ignored;
    for (size_t i = keep; i < all.size(); ++i) {
        fs::remove(all[i], ignored);
    }
    for (const std::string & part : list_checkpoints(folder, ".part")) {
        fs::remove(part, ignored);
    }
    return path;
}

// --- load ----------------------------------------------------------------------------------------

namespace {

// A checkpoint opened and proven whole.
struct Opened {
    MappedFile       file;
    gguf_context_ptr gguf;

    explicit Opened(const std::string & path) : file(path) {
        // Whole first: a cut file is then called cut, whatever it breaks in the head.
        const std::string why = why_not_sealed(file.bytes());
        if (file.bytes().size() < 4 || std::memcmp(file.bytes().data(), "GGUF", 4) != 0) {
            throw Error(path + ": not a checkpoint");
        }
        if (!why.empty()) {
            throw Error(path + ": " + why);
        }
        gguf               = open_gguf(path);
        const auto version = find_int(gguf.get(), "gt.checkpoint.version", path);
        if (!version) {
            throw Error(path + ": not a checkpoint of ours");
        }
        if (*version != kCheckpointVersion) {
            throw Error(
                path + format(
                           ": version %lld of the format, this program reads %u",
                           static_cast<long long>(*version), kCheckpointVersion
                       )
            );
        }
    }

    std::span<const uint8_t> bytes(const std::string & name, ggml_type type) const {
        const int64_t id = gguf_find_tensor(gguf.get(), name.c_str());
        if (id < 0 || gguf_get_tensor_type(gguf.get(), id) != type) {
            return {};
        }
        const uint8_t * data = file.bytes().data() + gguf_get_data_offset(gguf.get()) +
                               gguf_get_tensor_offset(gguf.get(), id);
        return {data, gguf_get_tensor_size(gguf.get(), id)};
    }

    std::span<const float> tensor(const std::string & name) const {
        const auto data = bytes(name, GGML_TYPE_F32);
        return {reinterpret_cast<const float *>(data.data()), data.size() / sizeof(float)};
    }
};

// A tensor of the file and the memory it goes to.
struct Move {
    std::span<const float> from;
    const HostTensor *     to = nullptr;
};

void plan_move(
    const std::string &    path,
    std::span<const float> from,
    const HostTensor &     to,
    std::vector<Move> &    moves
) {
    if (from.size() != to.size()) {
        throw Error(format(
            "%s: %s has %zu values, this run needs %zu; go on with the flags of that run, or start "
            "over with --fresh",
            path.c_str(), to.name.c_str(), from.size(), to.size()
        ));
    }
    moves.push_back({from, &to});
}

CheckpointHead head_of(const Opened & opened, const std::string & path) {
    CheckpointHead head;
    head.step =
        static_cast<uint64_t>(find_int(opened.gguf.get(), "gt.checkpoint.step", path).value_or(0));
    for (const std::string & line : find_strings(opened.gguf.get(), "gt.checkpoint.flags", path)) {
        const size_t equal = line.find('=');
        if (equal != std::string::npos) {
            head.flags.emplace_back(line.substr(0, equal), line.substr(equal + 1));
        }
    }
    return head;
}

}  // namespace

FoundCheckpoint find_checkpoint(const std::string & folder, const ModelConfig & config) {
    FoundCheckpoint found;
    for (const std::string & path : list_checkpoints(folder)) {
        try {
            const Opened opened(path);
            const auto   model =
                find_string(opened.gguf.get(), "gt.checkpoint.model", path).value_or("");
            if (model != describe(config)) {
                throw Error(path + ": is of another model (" + model + ")");
            }
            found.path = path;
            found.step = head_of(opened, path).step;
            return found;
        } catch (const Error & error) {
            found.refused.push_back(error.what());
        }
    }
    if (!found.refused.empty()) {
        throw Error(
            "no usable checkpoint: " + found.refused[0] +
            "; start over with --fresh, which sets the old run aside"
        );
    }
    return found;
}

CheckpointHead read_checkpoint_head(const std::string & path) {
    return head_of(Opened(path), path);
}

void load_checkpoint(const std::string & path, Checkpoint & into) {
    const Opened      opened(path);
    std::vector<Move> moves;
    for (const HostTensor & weight : into.state.weights) {
        plan_move(path, opened.tensor(weight.name), weight, moves);
    }
    const auto names = find_strings(opened.gguf.get(), "gt.checkpoint.tensors", path);
    std::map<std::string, std::string> stored;
    for (size_t i = 0; i < names.size(); ++i) {
        stored[names[i]] = state_name(i);
    }
    for (const HostTensor & tensor : into.state.tensors) {
        plan_move(path, opened.tensor(stored[tensor.name]), tensor, moves);
    }
    const auto counters = find_strings(opened.gguf.get(), "gt.checkpoint.counters", path);
    if (names.size() != into.state.tensors.size() ||
        counters.size() != into.state.counters.size()) {
        throw Error(
            path + ": holds the state of another optimizer; go on with the flags of that run, or "
                   "start over with --fresh"
        );
    }
    const int64_t id     = gguf_find_key(opened.gguf.get(), "gt.checkpoint.values");
    const bool    values = id >= 0 && gguf_get_kv_type(opened.gguf.get(), id) == GGUF_TYPE_ARRAY &&
                        gguf_get_arr_type(opened.gguf.get(), id) == GGUF_TYPE_UINT64 &&
                        gguf_get_arr_n(opened.gguf.get(), id) == counters.size();
    std::map<std::string, uint64_t> counted;
    for (size_t i = 0; values && i < counters.size(); ++i) {
        counted[counters[i]] =
            static_cast<const uint64_t *>(gguf_get_arr_data(opened.gguf.get(), id))[i];
    }
    for (const HostCounter & counter : into.state.counters) {
        if (counted.count(counter.name) == 0) {
            throw Error(
                path + ": counter " + counter.name +
                " is missing; it holds the state of another optimizer"
            );
        }
    }
    std::map<std::string, std::span<const uint8_t>> saved;
    const auto blobs = find_strings(opened.gguf.get(), "gt.checkpoint.blobs", path);
    for (size_t i = 0; i < blobs.size(); ++i) {
        saved[blobs[i]] = opened.bytes(blob_name(i), GGML_TYPE_I8);
    }
    const std::vector<HostBytes> & targets = into.state.blobs;
    for (const auto & [name, bytes] : saved) {
        if (std::none_of(targets.begin(), targets.end(), [&, what = name](const HostBytes & b) {
                return b.name == what;
            })) {
            throw Error(
                path + ": holds a message in flight (" + name +
                ") that this run has no place for; go on with the --overlap and --replicator of "
                "that run"
            );
        }
    }
    // Everything fits: only now is memory changed.
    for (const Move & move : moves) {
        move.to->set(move.from);
    }
    for (const HostCounter & counter : into.state.counters) {
        for (uint64_t * copy : counter.copies) {
            *copy = counted[counter.name];
        }
    }
    for (const HostBytes & target : targets) {
        target.set(saved[target.name]);
    }
    CheckpointHead head = head_of(opened, path);
    into.step           = head.step;
    into.flags          = std::move(head.flags);
}

std::string set_aside(const std::string & folder) {
    if (!fs::exists(folder)) {
        return "";
    }
    for (int i = 1;; ++i) {
        const std::string name = folder + ".old-" + std::to_string(i);
        if (!fs::exists(name)) {
            std::error_code error;
            fs::rename(folder, name, error);
            if (error) {
                throw Error(folder + ": cannot be set aside: " + error.message());
            }
            return name;
        }
    }
}

}  // namespace gt
