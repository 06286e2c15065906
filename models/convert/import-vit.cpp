#include "models/convert/import-vit.h"

#include "models/convert/safetensors.h"
#include "models/convert/vit-config.h"
#include "models/convert/vit-names.h"
#include "models/init.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

namespace gt {

namespace {

class VitImport {
public:
    VitImport(const std::string & path, int64_t heads, int64_t classes)
        : path_(path), file_(path), outside_(read_vit_config(path)), heads_(heads),
          classes_(classes) {
        for (auto & [name, tensor] : parse_safetensors(file_.bytes(), path).tensors) {
            const std::string timm = to_timm_name(name);
            if (!tensors_.emplace(timm, tensor).second) {
                throw Error(path + ": two tensors are " + timm + "; is this one model?");
            }
        }
    }

    ModelFile make(uint64_t seed) {
        refuse_variants();
        ModelConfig config = sizes();
        check_config(config, path_);
        refuse_others(config);
        for (const TensorSpec & spec : base_specs(config)) {
            if (has_head_ || !spec.name.starts_with("v.cls.")) {
                check_shape(spec, config);
            }
        }
        ModelFile model = empty_model(config);
        for (ModelTensor & tensor : model.tensors) {
            if (tensor.spec.name.starts_with("v.cls.") && !has_head_) {
                init_tensor(tensor.spec, seed, tensor.data);
            } else {
                tensor.data = values_of(tensor.spec, config);
            }
        }
        const std::string stem = std::filesystem::path(path_).stem().string();
        gguf_set_val_str(
            model.keys.get(), "general.name", (outside_.name.empty() ? stem : outside_.name).c_str()
        );
        model.notes = notes_;
        return model;
    }

private:
    const SafeTensor * find(const std::string & name) const {
        const auto found = tensors_.find(name);
        return found == tensors_.end() ? nullptr : &found->second;
    }
    bool has(const std::string & name) const { return find(name) != nullptr; }

    const SafeTensor & need(const std::string & name, size_t n_dims) const {
        const SafeTensor * tensor = find(name);
        if (!tensor) {
            throw Error(
                path_ + ": tensor " + name +
                " is missing; is this a whole ViT of timm or Hugging Face?"
            );
        }
        if (tensor->shape.size() != n_dims || tensor->n_elements() == 0) {
            throw Error(path_ + ": tensor " + name + " is " + tensor->shape_text());
        }
        return *tensor;
    }

    // Features that change the result and that we do not compute.
    void refuse_variants() const {
        const std::pair<const char *, const char *> features[] = {
            {"reg_token", "register tokens"},
            {"attn_pool.latent", "attention pooling"},
            {"blocks.0.attn.q_norm.weight", "normalized queries"},
            {"blocks.0.attn.norm.weight", "a norm inside attention"},
            {"blocks.0.mlp.w12.weight", "SwiGLU"},
            {"blocks.0.mlp.weights_in.weight", "SwiGLU"}};
        for (const auto & [name, feature] : features) {
            if (has(name)) {
                throw Error(path_ + ": has " + feature + ", which we do not train");
            }
        }
        const std::string & act = outside_.activation;
        if ((!act.empty() && act != "gelu") ||
            outside_.name.find("quickgelu") != std::string::npos) {
            throw Error(outside_.path + ": the activation is not gelu, the only one that we train");
        }
    }

    ModelConfig sizes() {
        ModelConfig        c     = find_arch("vit").defaults;
        const SafeTensor & patch = need("patch_embed.proj.weight", 4);
        c.n_embd                 = patch.shape[0];
        c.channels               = patch.shape[1];
        c.patch_size             = patch.shape[2];
        if (patch.shape[3] != c.patch_size) {
            throw Error(path_ + ": patches are not square");
        }
        for (c.n_layer = 0;
             has(format("blocks.%lld.norm1.weight", static_cast<long long>(c.n_layer)));) {
            ++c.n_layer;
        }
        c.n_ff            = need("blocks.0.mlp.fc1.weight", 2).shape[0];
        c.layer_scale     = has("blocks.0.ls1.gamma");
        c.pre_norm        = has("norm_pre.weight");
        c.norm_pooled     = has("fc_norm.weight");
        c.pooling         = !has("cls_token")                                      ? "mean"
                            : c.norm_pooled || outside_.pooling.starts_with("avg") ? "avg"
                                                                                   : "cls";
        const bool  clip  = outside_.name.find("clip") != std::string::npos;
        const float usual = clip ? 1e-5f : 1e-6f;  // of timm
        c.norm_eps        = outside_.norm_eps > 0.0f ? outside_.norm_eps : usual;
        c.n_head = c.n_head_kv = n_heads(c);
        set_image_size(c);
        set_classes(c);
        if (outside_.deviation.size() == static_cast<size_t>(c.channels) &&
            outside_.mean.size() == outside_.deviation.size()) {
            c.image_mean = outside_.mean;
            c.image_std  = outside_.deviation;
            c.image_crop = outside_.crop > 0.0f ? std::min(outside_.crop, 1.0f) : 1.0f;
            c.image_stored =
                std::lround(static_cast<double>(std::max(c.image_size, c.width())) / c.image_crop);
        } else {
            notes_.push_back("no mean and deviation of pictures; train-vit measures them");
        }
        return c;
    }

    int64_t n_heads(const ModelConfig & c) {
        if (heads_ > 0 || outside_.heads > 0) {
            return heads_ > 0 ? heads_ : outside_.heads;
        }
        const auto is = [&](const char * part) {
            return outside_.name.find(part) != std::string::npos;
        };
        const bool by_sixteen =
            is("_huge") || is("_gigantic") || is("_so400m") || (is("_giant") && !is("dinov2"));
        if (!by_sixteen && c.n_embd % 64 != 0) {
            throw Error(path_ + ": nothing says how many heads the model has; add --heads N");
        }
        const int64_t n = by_sixteen ? 16 : c.n_embd / 64;
        notes_.push_back(format(
            "%lld heads, as timm's models of this width have; --heads N sets another number",
            static_cast<long long>(n)
        ));
        return n;
    }

    // The grid of positions decides; config.json only says which of several rectangles it is.
    void set_image_size(ModelConfig & c) {
        const SafeTensor & tensor = need("pos_embed", 3);
        if (tensor.shape[0] != 1 || tensor.shape[2] != c.n_embd) {
            throw Error(path_ + ": tensor pos_embed is " + tensor.shape_text());
        }
        const int64_t n = tensor.shape[1], P = c.patch_size;
        const int64_t cls    = has("cls_token") ? 1 : 0;
        const int64_t dist   = has("dist_token") ? 1 : 0;
        const int64_t height = outside_.image_height / P, width = outside_.image_width / P;
        for (const int64_t prefix : {cls + dist, int64_t{0}}) {  // 0: timm's no_embed_class
            const auto side = static_cast<int64_t>(std::lround(std::sqrt(n - prefix)));
            if (height > 0 && height * width == n - prefix) {
                c.image_size  = height * P;
                c.image_width = width == height ? 0 : width * P;
            } else if (n > prefix && side * side == n - prefix) {
                c.image_size = side * P;
            } else {
                continue;
            }
            n_prefix_ = prefix;
            return;
        }
        throw Error(format(
            "%s: %lld positions are no square of patches, and config.json names no image size that "
            "fits",
            path_.c_str(), static_cast<long long>(n)
        ));
    }

    void set_classes(ModelConfig & c) {
        const SafeTensor * head = find("head.weight");
        has_head_               = head && head->shape.size() == 2 && head->shape[1] == c.n_embd;
        if (!has_head_ && classes_ == 0) {
            throw Error(
                path_ +
                (head ? ": its classifier sees more than one token's channels"
                      : ": has no classifier") +
                "; add --classes N to make a new one"
            );
        }
        if (head && !has_head_) {
            notes_.push_back("the classifier is of another shape than ours; a new one was made");
        }
        c.n_classes = has_head_ ? head->shape[0] : classes_;
        if (static_cast<int64_t>(outside_.class_names.size()) == c.n_classes) {
            c.class_names = outside_.class_names;
        }
    }

    // A tensor that we do not compute with would change the model without a word.
    void refuse_others(const ModelConfig & config) {
        std::set<std::string> known;
        for (const TensorSpec & spec : base_specs(config)) {
            known.insert(timm_name(spec.name, config));
        }
        for (int64_t l = 0; l < config.n_layer; ++l) {
            for (const char * name : {"weight", "bias"}) {
                known.insert(format("blocks.%lld.attn.qkv.%s", static_cast<long long>(l), name));
            }
        }
        bool distilled = false;
        for (const auto & [name, tensor] : tensors_) {
            distilled       = distilled || name == "dist_token";
            const bool head = name.starts_with("head.") && !has_head_;
            if (!known.contains(name) && !is_for_training(name) && !head) {
                throw Error(path_ + ": tensor " + name + " is not part of a ViT as we train it");
            }
        }
        if (distilled) {
            notes_.push_back("the distillation token and its classifier were dropped");
        }
    }

    // Where the values of one of our tensors are: a whole tensor, or one of three parts of qkv.
    struct Source {
        std::string        name;
        const SafeTensor * tensor  = nullptr;  // null: a bias that the model was made without
        int64_t            part    = 0;
        int64_t            n_parts = 1;
    };

    Source source_of(const TensorSpec & spec, const ModelConfig & config) const {
        Source       source{.name = timm_name(spec.name, config)};
        const char * apart[] = {".attn.q_proj.", ".attn.k_proj.", ".attn.v_proj."};
        for (int i = 0; i < 3; ++i) {
            const size_t at = source.name.find(apart[i]);
            if (at != std::string::npos && !has(source.name)) {
                const std::string tail = source.name.substr(at + std::string(apart[i]).size());
                source = {source.name.substr(0, at) + ".attn.qkv." + tail, nullptr, i, 3};
                break;
            }
        }
        source.tensor   = find(source.name);
        const bool norm = source.name.find("norm") != std::string::npos;
        if (!source.tensor && (norm || !source.name.ends_with(".bias"))) {
            throw Error(
                path_ + ": tensor " + source.name +
                " is missing; is this a whole ViT of timm or Hugging Face?"
            );
        }
        return source;
    }

    // Before memory of that size is allocated.
    void check_shape(const TensorSpec & spec, const ModelConfig & config) const {
        const Source source = source_of(spec, config);
        if (!source.tensor || source.name == "pos_embed") {
            return;
        }
        const auto without_ones = [](std::vector<int64_t> shape) {
            while (shape.size() > 1 && shape[0] == 1) {
                shape.erase(shape.begin());
            }
            return shape;
        };
        std::vector<int64_t> shape = without_ones({spec.ne.rbegin(), spec.ne.rend()});
        shape[0] *= source.n_parts;
        if (without_ones(source.tensor->shape) != shape) {
            throw Error(
                path_ + ": tensor " + source.name + " is " + source.tensor->shape_text() +
                ", which does not fit the other tensors"
            );
        }
    }

    std::vector<float> values_of(const TensorSpec & spec, const ModelConfig & config) const {
        const Source source = source_of(spec, config);
        const auto   n      = static_cast<size_t>(spec.n_elements());
        if (!source.tensor) {
            return std::vector<float>(n);
        }
        if (source.name == "pos_embed") {
            return positions(spec, config);
        }
        const std::vector<float> all   = read_values(file_.bytes(), *source.tensor);
        const auto               begin = all.begin() + source.part * spec.n_elements();
        return {begin, begin + spec.n_elements()};
    }

    // Without the distillation token's; the class token's are zero if it has none.
    std::vector<float> positions(const TensorSpec & spec, const ModelConfig & config) const {
        const std::vector<float> all = read_values(file_.bytes(), need("pos_embed", 3));
        std::vector<float>       out(static_cast<size_t>(spec.n_elements()));
        const int64_t            C = config.n_embd, first = config.has_class_token() ? 1 : 0;
        if (n_prefix_ > 0 && first > 0) {
            std::copy_n(all.begin(), C, out.begin());
        }
        std::copy(all.begin() + n_prefix_ * C, all.end(), out.begin() + first * C);
        return out;
    }

    std::string                       path_;
    MappedFile                        file_;
    VitConfig                         outside_;
    int64_t                           heads_, classes_;
    std::map<std::string, SafeTensor> tensors_;  // by timm's name
    std::vector<std::string>          notes_;
    int64_t                           n_prefix_ = 0;  // positions before those of the patches
    bool                              has_head_ = true;
};

}  // namespace

bool is_safetensors(const std::string & path) {
    return path.ends_with(".safetensors");
}

ModelFile import_vit(const std::string & path, int64_t heads, int64_t classes, uint64_t seed) {
    return VitImport(path, heads, classes).make(seed);
}

}  // namespace gt
