#include "ggml-train/shard/host-state.h"

namespace gt {

void HostTensor::Piece::set(std::span<const float> values) const {
    for (const Floats & copy : copies) {
        copy.write(values);
    }
}

size_t HostTensor::size() const {
    size_t n = 0;
    for (const Piece & piece : pieces) {
        n += piece.size();
    }
    return n;
}

void HostTensor::set(std::span<const float> values) const {
    GT_CHECK(values.size() == size(), name.c_str());
    for (const Piece & piece : pieces) {
        piece.set(values.first(piece.size()));
        values = values.subspan(piece.size());
    }
}

Bytes HostBytes::value() const {
    std::vector<Bytes> all;
    for (const Bytes * part : parts) {
        all.push_back(*part);
    }
    return join && !all[0].empty() ? join(all) : all[0];
}

void HostBytes::set(std::span<const uint8_t> bytes) const {
    for (Bytes * part : parts) {
        part->assign(bytes.begin(), bytes.end());
    }
}

HostTensor whole_tensor(std::string name, std::span<float> values, bool shared) {
    return {.name = std::move(name), .pieces = {{.copies = {{values}}}}, .shared = shared};
}

static HostTensor join_tensor(const std::vector<StateTensor> & parts, bool cut) {
    HostTensor tensor{.name = parts[0].name, .pieces = {}, .shared = parts[0].shared};
    for (const StateTensor & part : parts) {
        GT_CHECK(part.name == tensor.name, "ranks have the same tensors in the same order");
        if (cut || tensor.pieces.empty()) {
            tensor.pieces.push_back({});
        }
        HostTensor::Piece & piece = tensor.pieces.back();
        piece.copies.push_back(part.floats());
        piece.derived.insert(piece.derived.end(), part.derived.begin(), part.derived.end());
    }
    return tensor;
}

HostState join_state(
    LocalGroup & ranks, const std::vector<ParamView> & params, OptimizerState mine, bool cut
) {
    for (size_t i = 0; i < params.size(); ++i) {  // weights first
        mine.tensors.insert(
            mine.tensors.begin() + static_cast<int64_t>(i),
            {params[i].name, params[i].weight, true, params[i].device}
        );
    }
    const std::vector<OptimizerState> all = from_all(ranks, mine);
    HostState                         host;
    for (size_t i = 0; i < mine.tensors.size(); ++i) {
        std::vector<StateTensor> parts;
        for (const OptimizerState & rank : all) {
            parts.push_back(rank.tensors[i]);
        }
        (i < params.size() ? host.weights : host.tensors).push_back(join_tensor(parts, cut));
    }
    for (size_t i = 0; i < mine.counters.size(); ++i) {
        host.counters.push_back({mine.counters[i].name, {}, mine.counters[i].shared});
        for (const OptimizerState & rank : all) {
            host.counters.back().copies.push_back(rank.counters[i].value);
        }
    }
    for (size_t i = 0; i < mine.blobs.size(); ++i) {
        const StateBytes & blob = mine.blobs[i];
        host.blobs.push_back({blob.name, {}, blob.shared, blob.join});
        for (const OptimizerState & rank : all) {
            host.blobs.back().parts.push_back(rank.blobs[i].bytes);
        }
    }
    return host;
}

}  // namespace gt
