// tools/inspect/inspect-gguf.cpp — models, vocabularies and checkpoints; see inspect.h.
#include "ggml-train/base/text.h"
#include "ggml-train/gguf/gguf-read.h"
#include "ggml-train/run/checkpoint.h"
#include "models/model-file.h"
#include "models/text/tokenizer.h"
#include "tools/inspect/inspect.h"

#include <algorithm>
#include <map>

namespace gt {

namespace {

std::string tokenizer_text(const gguf_context * gguf, const std::string & path) {
    const auto kind = find_string(gguf, "tokenizer.ggml.model", path);
    if (!kind) {
        return "none";
    }
    const uint64_t digest = tokenizer_digest(gguf);
    const auto     pre    = find_string(gguf, "tokenizer.ggml.pre", path);
    std::string    text   = *kind;
    if (digest == tokenizer_digest(byte_vocabulary().get())) {
        text = "bytes";
    } else if (pre) {
        text += " (" + *pre + ")";
    }
    const int64_t n = find_array_size(gguf, "tokenizer.ggml.tokens", path).value_or(0);
    return text + format(", %lld tokens, digest ", static_cast<long long>(n)) + digest_text(digest);
}

void print_tensors(const gguf_context * gguf) {
    std::map<std::string, int64_t> types;
    uint64_t                       n_bytes   = 0;
    size_t                         longest   = 0;
    const int64_t                  n_tensors = gguf_get_n_tensors(gguf);
    for (int64_t i = 0; i < n_tensors; ++i) {
        ++types[ggml_type_name(gguf_get_tensor_type(gguf, i))];
        n_bytes += gguf_get_tensor_size(gguf, i);
        longest = std::max(longest, std::string(gguf_get_tensor_name(gguf, i)).size());
    }
    std::string counts;
    for (const auto & [type, n] : types) {
        counts += format(", %lld %s", static_cast<long long>(n), type.c_str());
    }
    print_row(
        "tensors",
        format("%lld, ", static_cast<long long>(n_tensors)) + bytes_text(n_bytes) + counts
    );
    for (int64_t i = 0; i < n_tensors; ++i) {
        print_row(
            "", format(
                    "%-*s  %-5s  %s", static_cast<int>(longest), gguf_get_tensor_name(gguf, i),
                    ggml_type_name(gguf_get_tensor_type(gguf, i)),
                    shape_text(gguf_get_tensor_ne(gguf, i)).c_str()
                )
        );
    }
}

void print_model(const gguf_context * gguf, const std::string & path) {
    const bool has_weights = gguf_get_n_tensors(gguf) > 0;
    print_row("kind", has_weights ? "model (GGUF)" : "vocabulary (GGUF without weights)");
    if (has_weights) {
        const ModelConfig config = read_config(gguf, path);
        print_row("architecture", config.arch);
        print_row("model", describe(config));
        for (size_t i = 0; i < config.class_names.size(); ++i) {
            print_row(i == 0 ? "classes" : "", config.class_names[i]);
        }
    }
    print_row("tokenizer", tokenizer_text(gguf, path));
    if (has_weights) {
        print_tensors(gguf);
    }
}

std::string parts_text(const std::vector<CheckpointHead::Part> & parts) {
    uint64_t n_bytes = 0;
    for (const CheckpointHead::Part & part : parts) {
        n_bytes += part.n_bytes;
    }
    return format("%zu tensors, ", parts.size()) + bytes_text(n_bytes);
}

void print_checkpoint(const gguf_context * gguf, const std::string & path) {
    const CheckpointHead head = read_checkpoint_head(path);
    print_row("kind", "checkpoint of a run (GGUF)");
    print_row("model", head.model);
    print_row("tokenizer", tokenizer_text(gguf, path));
    print_row("step", std::to_string(head.step));
    print_row("weights", parts_text(head.weights));
    print_row("state", parts_text(head.state));
    print_row("counters", std::to_string(head.counters.size()));
    for (const auto & [name, value] : head.counters) {
        print_row("", format("%-24s  ", name.c_str()) + std::to_string(value));
    }
    print_row("blobs", std::to_string(head.blobs.size()));
    for (const CheckpointHead::Part & blob : head.blobs) {
        print_row("", format("%-24s  ", blob.name.c_str()) + bytes_text(blob.n_bytes));
    }
    print_row("flags", std::to_string(head.flags.size()));
    for (const auto & [name, value] : head.flags) {
        // an invitation contains the run's key
        const bool secret = name == "join" && !value.empty();
        print_row("", format("%-24s  ", name.c_str()) + (secret ? "(secret)" : value));
    }
}

}  // namespace

void inspect_gguf(const std::string & path) {
    const gguf_context_ptr gguf = open_gguf(path);
    if (gguf_find_key(gguf.get(), "gt.checkpoint.version") >= 0) {
        print_checkpoint(gguf.get(), path);
    } else {
        print_model(gguf.get(), path);
    }
}

}  // namespace gt
