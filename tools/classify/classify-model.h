// tools/classify/classify-model.h — a trained classifier ready to answer; see classify.cpp.
#pragma once

#include "models/blocks.h"
#include "models/classifier/classifier.h"
#include "models/model-file.h"

namespace gt {

struct Classifier {
    ModelFile                    file;
    Backend                      backend;
    std::unique_ptr<Transformer> model;
    StepGraph                    graph;  // logits of B pictures
    std::vector<std::string>     names;  // one per class

    Classifier(const std::string & path, int n_threads, int64_t B)
        : file(load(path)), backend("cpu", n_threads),
          model(make_model(backend, file.config, false)), graph(backend, fill(), options(B)),
          names(file.config.class_names) {
        for (int64_t i = static_cast<int64_t>(names.size()); i < file.config.n_classes; ++i) {
            names.push_back("class " + std::to_string(i));
        }
    }

private:
    static ModelFile load(const std::string & path) {
        ModelFile file = load_model(path);
        if (!takes_images(file.config)) {
            throw Error(path + " is a model of text; sample from it with generate");
        }
        if (file.config.lora.enabled()) {
            throw Error(path + " is an adapter; write it and its model as one with export --merge");
        }
        if (file.config.image_std.empty() || file.config.image_stored == 0) {
            throw Error(
                path + " does not say how it sees pictures: it is not trained yet; see train-vit"
            );
        }
        return file;
    }

    GraphOptions options(int64_t B) const {
        return {
            .B           = B,
            .T           = file.config.n_positions(),
            .image_size  = file.config.image_size,
            .image_width = file.config.image_width,
            .channels    = file.config.channels,
            .goal        = GraphOptions::Goal::logits};
    }

    Transformer & fill() {
        for (const ModelTensor & tensor : file.tensors) {
            model->weights().set(model->weights().at(tensor.spec.name), tensor.data);
        }
        return *model;
    }
};

}  // namespace gt
