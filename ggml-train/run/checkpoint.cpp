#include "ggml-train/run/checkpoint.h"

#include "ggml-train/base/file.h"
#include "ggml-train/gguf/gguf-read.h"
#include "ggml-train/gguf/gguf-write.h"

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

// Bytes to save, joined over the ranks: a checkpoint does not depend on their number.
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
    gguf_set_kv(gguf, checkpoint.model->keys.get());
    gguf_set_val_u32(gguf, "general.file_type", 0);
    gguf_set_val_u32(gguf, "gt.checkpoint.version", kCheckpointVersion);
    gguf_set_val_str(gguf, "gt.checkpoint.model", checkpoint.model->text.c_str());
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

// Paths of the folder's checkpoints, newest first; or of files that a killed process left unfinished.
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

// Writes piece by piece: a tensor need not be contiguous anywhere.
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
        // Keys and the list of tensors come first, then the data in the same order.
        const std::vector<Blob> blobs = full_blobs_of(checkpoint.state);
        GgufWriter              writer(path);
        write_keys(checkpoint, blobs, writer.keys());
        const std::vector<TensorSpec> & specs = checkpoint.model->tensors;
        for (const TensorSpec & spec : specs) {
            writer.declare(spec.name, spec.ne, GGML_TYPE_F32);
        }
        for (const auto & [spec, values] : checkpoint.model->constants) {
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
        for (const auto & [spec, values] : checkpoint.model->constants) {
            writer.write(values.data(), values.size() * sizeof(float));
        }
        for (const HostTensor & tensor : checkpoint.state.tensors) {
            write_tensor(writer, tensor);
        }
        for (const Blob & blob : blobs) {
            writer.write(blob.bytes.data(), blob.bytes.size());
        }
        writer.commit(true);
    }
    // Remove old checkpoints, and files that were never finished.
    const std::vector<std::string> all = list_checkpoints(folder);
    std::error_code                ignored;
    for (size_t i = keep; i < all.size(); ++i) {
        if (all[i] != path) {  // after a return to an earlier step it is not the newest
            fs::remove(all[i], ignored);
        }
    }
    for (const std::string & part : list_checkpoints(folder, ".part")) {
        fs::remove(part, ignored);
    }
    return path;
}

// --- load ----------------------------------------------------------------------------------------

namespace {

// A checkpoint whose seal and version are right.
struct Opened {
    MappedFile       file;
    gguf_context_ptr gguf;

    explicit Opened(const std::string & path) : file(path) {
        // Check the seal first, so that a truncated file is reported as truncated.
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
                           ": checkpoint version %lld, this program reads %u; use the program that "
                           "wrote it",
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

// Everything to copy from a file into the run. All of it is checked before any memory changes.
struct LoadPlan {
    struct Tensor {
        std::span<const float> from;
        const HostTensor *     to = nullptr;
    };
    std::vector<Tensor>                             tensors;
    std::map<std::string, uint64_t>                 counters;
    std::map<std::string, std::span<const uint8_t>> blobs;
};

constexpr char kOtherFlags[] = "resume with the flags of that run, or start over with --fresh";

void plan_tensor(
    const std::string & path, std::span<const float> from, const HostTensor & to, LoadPlan & plan
) {
    if (from.size() != to.size()) {
        throw Error(format(
            "%s: %s has %zu values, this run needs %zu; %s", path.c_str(), to.name.c_str(),
            from.size(), to.size(), kOtherFlags
        ));
    }
    plan.tensors.push_back({from, &to});
}

void plan_tensors(
    const Opened & opened, const std::string & path, const HostState & state, LoadPlan & plan
) {
    for (const HostTensor & weight : state.weights) {
        plan_tensor(path, opened.tensor(weight.name), weight, plan);
    }
    const auto names = find_strings(opened.gguf.get(), "gt.checkpoint.tensors", path);
    std::map<std::string, std::string> stored;
    for (size_t i = 0; i < names.size(); ++i) {
        stored[names[i]] = state_name(i);
    }
    for (const HostTensor & tensor : state.tensors) {
        plan_tensor(path, opened.tensor(stored[tensor.name]), tensor, plan);
    }
    if (names.size() != state.tensors.size()) {
        throw Error(path + ": from a run with another optimizer; " + kOtherFlags);
    }
}

// Empty if the checkpoint's values do not fit its names.
std::vector<std::pair<std::string, uint64_t>>
counters_of(const Opened & opened, const std::string & path) {
    const gguf_context * gguf  = opened.gguf.get();
    const auto           names = find_strings(gguf, "gt.checkpoint.counters", path);
    const int64_t        id    = gguf_find_key(gguf, "gt.checkpoint.values");
    if (id < 0 || gguf_get_kv_type(gguf, id) != GGUF_TYPE_ARRAY ||
        gguf_get_arr_type(gguf, id) != GGUF_TYPE_UINT64 ||
        gguf_get_arr_n(gguf, id) != names.size()) {
        return {};
    }
    const auto * values = static_cast<const uint64_t *>(gguf_get_arr_data(gguf, id));
    std::vector<std::pair<std::string, uint64_t>> counters;
    for (size_t i = 0; i < names.size(); ++i) {
        counters.emplace_back(names[i], values[i]);
    }
    return counters;
}

void plan_counters(
    const Opened & opened, const std::string & path, const HostState & state, LoadPlan & plan
) {
    const auto names = find_strings(opened.gguf.get(), "gt.checkpoint.counters", path);
    if (names.size() != state.counters.size()) {
        throw Error(path + ": from a run with another optimizer; " + kOtherFlags);
    }
    for (const auto & [name, value] : counters_of(opened, path)) {
        plan.counters[name] = value;
    }
    for (const HostCounter & counter : state.counters) {
        if (!plan.counters.contains(counter.name)) {
            throw Error(
                path + ": from a run with another optimizer: counter " + counter.name +
                " is missing; " + kOtherFlags
            );
        }
    }
}

void plan_blobs(
    const Opened & opened, const std::string & path, const HostState & state, LoadPlan & plan
) {
    const auto names = find_strings(opened.gguf.get(), "gt.checkpoint.blobs", path);
    for (size_t i = 0; i < names.size(); ++i) {
        const auto is_it = [&](const HostBytes & target) { return target.name == names[i]; };
        if (std::none_of(state.blobs.begin(), state.blobs.end(), is_it)) {
            throw Error(
                path + ": has a message in flight (" + names[i] +
                "), which this run cannot hold; resume with the --overlap and --replicator of that "
                "run"
            );
        }
        plan.blobs[names[i]] = opened.bytes(blob_name(i), GGML_TYPE_I8);
    }
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

// Adds what only a reader of the whole head needs: tensors, blobs and counters.
void add_parts(const Opened & opened, const std::string & path, CheckpointHead & head) {
    const gguf_context * gguf = opened.gguf.get();
    head.model                = find_string(gguf, "gt.checkpoint.model", path).value_or("");
    head.counters             = counters_of(opened, path);

    // Stored names of state and blobs; every other tensor is a weight.
    std::map<std::string, std::string> state, blobs;
    for (const std::string & name : find_strings(gguf, "gt.checkpoint.tensors", path)) {
        state.emplace(state_name(state.size()), name);
    }
    for (const std::string & name : find_strings(gguf, "gt.checkpoint.blobs", path)) {
        blobs.emplace(blob_name(blobs.size()), name);
    }
    for (int64_t i = 0; i < gguf_get_n_tensors(gguf); ++i) {
        const std::string stored  = gguf_get_tensor_name(gguf, i);
        const uint64_t    n_bytes = gguf_get_tensor_size(gguf, i);
        if (const auto found = state.find(stored); found != state.end()) {
            head.state.push_back({found->second, n_bytes});
        } else if (const auto blob = blobs.find(stored); blob != blobs.end()) {
            head.blobs.push_back({blob->second, n_bytes});
        } else {
            head.weights.push_back({stored, n_bytes});
        }
    }
}

}  // namespace

FoundCheckpoint find_checkpoint(const std::string & folder, const ModelHead & model) {
    FoundCheckpoint found;
    for (const std::string & path : list_checkpoints(folder)) {
        try {
            const Opened opened(path);
            const auto   text =
                find_string(opened.gguf.get(), "gt.checkpoint.model", path).value_or("");
            if (text != model.text) {
                throw Error(path + ": from a run of another model (" + text + ")");
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
            "; start over with --fresh, which renames the old folder"
        );
    }
    return found;
}

CheckpointHead read_checkpoint_head(const std::string & path) {
    const Opened   opened(path);
    CheckpointHead head = head_of(opened, path);
    add_parts(opened, path, head);
    return head;
}

void load_checkpoint(const std::string & path, Checkpoint & into) {
    const Opened opened(path);
    LoadPlan     plan;
    plan_tensors(opened, path, into.state, plan);
    plan_counters(opened, path, into.state, plan);
    plan_blobs(opened, path, into.state, plan);

    // Everything fits: change the run's memory.
    for (const LoadPlan::Tensor & tensor : plan.tensors) {
        tensor.to->set(tensor.from);
    }
    for (const HostCounter & counter : into.state.counters) {
        for (uint64_t * copy : counter.copies) {
            *copy = plan.counters[counter.name];
        }
    }
    for (const HostBytes & target : into.state.blobs) {
        target.set(plan.blobs[target.name]);
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
                throw Error(folder + ": cannot be renamed: " + error.message());
            }
            return name;
        }
    }
}

}  // namespace gt
