// The graph of arch/vit.cpp in ONNX's operators; the only file that includes protobuf.
#include "models/convert/onnx.h"

#include "ggml-train/base/file.h"
#include "ggml-train/base/json.h"

#include <cmath>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <onnx/onnx_pb.h>
#pragma GCC diagnostic pop

namespace gt {

namespace {

using Ints = std::vector<int64_t>;

class OnnxVit {
public:
    explicit OnnxVit(const ModelFile & model) : model_(model), c_(model.config) {
        proto_.set_ir_version(8);  // of ONNX 1.12, which brought opset 17
        proto_.set_producer_name("ggml-train");
        proto_.add_opset_import()->set_version(17);
        graph_->set_name("vit");
        declare(graph_->add_input(), "pixels", {c_.channels, c_.image_size, c_.width()});
        declare(graph_->add_output(), "logits", {c_.n_classes});
        Json names = Json::array();
        for (const std::string & name : c_.class_names) {
            names.push(name);
        }
        auto * entry = proto_.add_metadata_props();
        entry->set_key("class_names");
        entry->set_value(names.text());
    }

    std::string bytes() {
        std::string x = embed("pixels");
        for (int64_t l = 0; l < c_.n_layer; ++l) {
            x = block(format("v.blk.%lld.", static_cast<long long>(l)), x);
        }
        head(x);
        std::string out;
        if (!proto_.SerializeToString(&out)) {
            throw Error("the model is larger than 2 GB, which ONNX files can't be");
        }
        return out;
    }

private:
    static void declare(onnx::ValueInfoProto * value, const char * name, const Ints & sizes) {
        value->set_name(name);
        auto * type = value->mutable_type()->mutable_tensor_type();
        type->set_elem_type(onnx::TensorProto::FLOAT);
        type->mutable_shape()->add_dim()->set_dim_param("batch");
        for (const int64_t size : sizes) {
            type->mutable_shape()->add_dim()->set_dim_value(size);
        }
    }

    // Adds a node with one output, and returns the output's name.
    std::string node(const char * op, std::initializer_list<std::string> inputs) {
        onnx::NodeProto * node = last_ = graph_->add_node();
        node->set_op_type(op);
        for (const std::string & input : inputs) {
            node->add_input(input);
        }
        node->add_output(format("%s_%d", op, graph_->node_size()));
        return node->output(0);
    }

    // Attributes of the last node.
    void set(const char * name, int64_t value) {
        auto * attribute = last_->add_attribute();
        attribute->set_name(name);
        attribute->set_type(onnx::AttributeProto::INT);
        attribute->set_i(value);
    }
    void set(const char * name, float value) {
        auto * attribute = last_->add_attribute();
        attribute->set_name(name);
        attribute->set_type(onnx::AttributeProto::FLOAT);
        attribute->set_f(value);
    }
    void set(const char * name, const Ints & values) {
        auto * attribute = last_->add_attribute();
        attribute->set_name(name);
        attribute->set_type(onnx::AttributeProto::INTS);
        for (const int64_t value : values) {
            attribute->add_ints(value);
        }
    }

    std::string
    floats(const std::string & name, const Ints & shape, std::span<const float> values) {
        auto * tensor = graph_->add_initializer();
        tensor->set_name(name);
        tensor->set_data_type(onnx::TensorProto::FLOAT);
        for (const int64_t n : shape) {
            tensor->add_dims(n);
        }
        tensor->set_raw_data(values.data(), values.size_bytes());
        return name;
    }
    std::string ints(const Ints & values) {
        auto * tensor = graph_->add_initializer();
        tensor->set_name(format("shape_%d", graph_->initializer_size()));
        tensor->set_data_type(onnx::TensorProto::INT64);
        tensor->add_dims(static_cast<int64_t>(values.size()));
        tensor->set_raw_data(values.data(), values.size() * sizeof(int64_t));
        return tensor->name();
    }
    std::string weight(const std::string & name, const Ints & shape) {
        return floats(name, shape, model_.at(name).data);
    }
    std::string one(float value) {
        return floats(format("scalar_%d", graph_->initializer_size()), {}, {&value, 1});
    }

    std::string reshape(const std::string & x, const Ints & shape) {
        return node("Reshape", {x, ints(shape)});
    }
    std::string permute(const std::string & x, const Ints & order) {
        const std::string y = node("Transpose", {x});
        set("perm", order);
        return y;
    }
    std::string norm(const std::string & x, const std::string & name) {
        const std::string w = weight(name + ".weight", {c_.n_embd});
        const std::string b = weight(name + ".bias", {c_.n_embd});
        const std::string y = node("LayerNormalization", {x, w, b});
        set("axis", int64_t{-1});
        set("epsilon", c_.norm_eps);
        return y;
    }
    // x times the matrix, which ONNX wants transposed, plus the bias.
    std::string linear(const std::string & x, const std::string & name) {
        const ModelTensor & matrix = model_.at(name + ".weight");
        const int64_t       K = matrix.spec.ne[0], M = matrix.spec.ne[1];
        std::vector<float>  turned(matrix.data.size());
        for (int64_t m = 0; m < M; ++m) {
            for (int64_t k = 0; k < K; ++k) {
                turned[static_cast<size_t>(k * M + m)] =
                    matrix.data[static_cast<size_t>(m * K + k)];
            }
        }
        const std::string y = node("MatMul", {x, floats(name + ".weight", {K, M}, turned)});
        return node("Add", {y, weight(name + ".bias", {M})});
    }
    std::string first_token(const std::string & x) {
        auto * index = graph_->add_initializer();
        index->set_name("first");
        index->set_data_type(onnx::TensorProto::INT64);
        const int64_t zero = 0;
        index->set_raw_data(&zero, sizeof(zero));
        const std::string y = node("Gather", {x, "first"});
        set("axis", int64_t{1});
        return y;
    }

    std::string embed(std::string x) {
        const int64_t C = c_.n_embd, P = c_.patch_size;
        if (!c_.image_std.empty()) {
            x = node("Sub", {x, floats("image_mean", {c_.channels, 1, 1}, c_.image_mean)});
            x = node("Div", {x, floats("image_std", {c_.channels, 1, 1}, c_.image_std)});
        }
        x = node(
            "Conv", {x, weight("v.patch_embd.weight", {C, c_.channels, P, P}),
                     weight("v.patch_embd.bias", {C})}
        );
        set("kernel_shape", Ints{P, P});
        set("strides", Ints{P, P});
        x = permute(reshape(x, {0, C, c_.n_patches()}), {0, 2, 1});  // [batch, patches, C]
        if (c_.has_class_token()) {
            const std::string batch = node("Shape", {x});
            set("start", int64_t{0});
            set("end", int64_t{1});
            const std::string sizes = node("Concat", {batch, ints({1, C})});
            set("axis", int64_t{0});
            const std::string token = node("Expand", {weight("v.class_embd", {1, 1, C}), sizes});
            x                       = node("Concat", {token, x});
            set("axis", int64_t{1});
        }
        x = node("Add", {x, weight("v.position_embd.weight", {1, c_.n_positions(), C})});
        return c_.pre_norm ? norm(x, "v.pre_ln") : x;
    }

    std::string attention(const std::string & x, const std::string & at) {
        const int64_t H = c_.n_head, D = c_.head_dim();
        const auto    heads = [&](const char * name, const Ints & order) {
            return permute(reshape(linear(x, at + name), {0, 0, H, D}), order);
        };
        const std::string q = heads("attn_q", {0, 2, 1, 3}), k = heads("attn_k", {0, 2, 3, 1});
        const std::string v     = heads("attn_v", {0, 2, 1, 3});
        const float       scale = 1.0f / std::sqrt(static_cast<float>(D));
        std::string       p     = node("Mul", {node("MatMul", {q, k}), one(scale)});
        p                       = node("Softmax", {p});
        set("axis", int64_t{-1});
        const std::string y = permute(node("MatMul", {p, v}), {0, 2, 1, 3});
        return linear(reshape(y, {0, 0, H * D}), at + "attn_out");
    }

    std::string mlp(const std::string & x, const std::string & at) {
        const std::string h   = linear(x, at + "ffn_up");
        const std::string erf = node("Erf", {node("Mul", {h, one(std::sqrt(0.5f))})});
        const std::string g   = node("Mul", {node("Add", {erf, one(1.0f)}), one(0.5f)});
        return linear(node("Mul", {h, g}), at + "ffn_down");
    }

    std::string block(const std::string & at, std::string x) {
        const auto add = [&](std::string y, const char * scale) {
            if (c_.layer_scale) {
                y = node("Mul", {y, weight(at + scale + ".weight", {c_.n_embd})});
            }
            return node("Add", {x, y});
        };
        x = add(attention(norm(x, at + "ln1"), at), "ls1");
        return add(mlp(norm(x, at + "ln2"), at), "ls2");
    }

    void head(std::string x) {
        x = c_.norm_pooled ? x : norm(x, "v.post_ln");
        if (c_.pooling == "cls") {
            x = first_token(x);
        } else {
            if (c_.has_class_token()) {
                x = node("Slice", {x, ints({1}), ints({c_.n_positions()}), ints({1})});
            }
            x = node("ReduceMean", {x});
            set("axes", Ints{1});
            set("keepdims", int64_t{0});
        }
        x                   = c_.norm_pooled ? norm(x, "v.post_ln") : x;
        const std::string w = weight("v.cls.weight", {c_.n_classes, c_.n_embd});
        node("Gemm", {x, w, weight("v.cls.bias", {c_.n_classes})});
        set("transB", int64_t{1});
        last_->set_output(0, "logits");
    }

    const ModelFile &   model_;
    const ModelConfig & c_;
    onnx::ModelProto    proto_;
    onnx::GraphProto *  graph_ = proto_.mutable_graph();
    onnx::NodeProto *   last_  = nullptr;
};

}  // namespace

void save_onnx(const std::string & path, const ModelFile & model) {
    const std::string bytes = OnnxVit(model).bytes();
    AsideFile         file(path);
    file.write(bytes.data(), bytes.size());
    file.commit();
}

}  // namespace gt
