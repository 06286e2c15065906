#include "models/classifier/classifier.h"

#include "models/classifier/mistakes.h"

#include <algorithm>
#include <cmath>
#include <fstream>

namespace gt {

ImageSpec image_spec(const ModelConfig & config) {
    ImageSpec spec{
        .size     = static_cast<int>(config.image_size),
        .width    = static_cast<int>(config.image_width),
        .channels = static_cast<int>(config.channels),
        .crop     = config.image_crop,
        .stored   = static_cast<int>(config.image_stored)};
    for (size_t c = 0; c < std::min<size_t>(3, config.image_std.size()); ++c) {
        spec.mean[c]      = c < config.image_mean.size() ? config.image_mean[c] : 0.0f;
        spec.deviation[c] = config.image_std[c];
    }
    return spec;
}

void learn_from_data(ModelConfig & config, const ImageData & data, const std::string & where) {
    const size_t n = data.classes().size();
    if (static_cast<int64_t>(n) != config.n_classes) {
        throw Error(format(
            "%s has %lld classes, the data %zu; create a model with new-model --classes %zu "
            "(--from %s keeps the other weights)",
            where.c_str(), static_cast<long long>(config.n_classes), n, n, where.c_str()
        ));
    }
    const ImageSpec & spec     = data.spec();
    const size_t      channels = static_cast<size_t>(spec.channels);
    config.class_names         = data.classes();
    config.image_mean.assign(spec.mean, spec.mean + channels);
    config.image_std.assign(spec.deviation, spec.deviation + channels);
    config.image_crop   = spec.crop;
    config.image_stored = spec.stored;
}

std::string list_left_out(const ImageData & data, const std::string & path) {
    std::ofstream list(path);
    std::string   text;
    size_t        n = 0;
    for (const SkippedFile & file : data.skipped()) {
        const std::string line = file.name + " (" + file.reason + ")\n";
        list << line;
        text += ++n <= 20 ? "skipped: " + line : "";
    }
    return n <= 20 ? text : text + format("skipped: %zu more, see %s\n", n - 20, path.c_str());
}

Batch to_batch(const ImageBatch & pictures) {
    return {
        .n_samples  = static_cast<int64_t>(pictures.labels.size()),
        .tokens     = {},
        .images     = pictures.images,
        .labels     = pictures.labels,
        .mix_labels = pictures.mix_labels,
        .mix        = pictures.mix,
        .depth      = {}};
}

std::vector<float> depth_factors(
    float               rate,
    uint64_t            seed,
    uint64_t            step,
    const std::string & host,
    int64_t             n,
    int64_t             n_branches
) {
    std::vector<float> factors;
    for (int64_t i = 0; i < n; ++i) {
        const uint64_t key = sample_key(seed, step, host, static_cast<uint64_t>(i));
        for (int64_t k = 0; k < n_branches; ++k) {
            const float drop = rate * static_cast<float>(k + 1) / static_cast<float>(n_branches);
            const float u =
                random_uniform(random_bits(key, static_cast<uint64_t>(k), 0x6465707468));
            factors.push_back(u < drop ? 0.0f : 1.0f / (1.0f - drop));
        }
    }
    return factors;
}

std::vector<float> softmax(std::span<const float> logits) {
    const float         top = *std::max_element(logits.begin(), logits.end());
    std::vector<double> exps;
    double              sum = 0.0;
    for (float x : logits) {
        exps.push_back(std::exp(static_cast<double>(x) - top));
        sum += exps.back();
    }
    std::vector<float> shares;
    for (double e : exps) {
        shares.push_back(static_cast<float>(e / sum));
    }
    return shares;
}

Evaluation evaluate_pictures(StepRunner & graph, ImageLoader & loader, int64_t n_batches) {
    Evaluation result;
    size_t     n_right = 0;
    n_batches = n_batches > 0 ? std::min(n_batches, loader.n_batches()) : loader.n_batches();
    for (int64_t b = 0; b < n_batches; ++b) {
        const ImageBatch & pictures = loader.at(static_cast<uint64_t>(b));
        graph.run(to_batch(pictures));
        const std::vector<float> logits = graph.logits();
        const size_t             V      = logits.size() / pictures.labels.size();
        for (size_t i = 0; i < pictures.labels.size(); ++i) {
            if (pictures.labels[i] < 0) {
                continue;
            }
            const auto         row    = std::span(logits).subspan(i * V, V);
            std::vector<float> shares = softmax(row);
            const auto         best   = std::max_element(row.begin(), row.end()) - row.begin();
            const auto         label  = static_cast<size_t>(pictures.labels[i]);
            result.answers.push_back(
                {pictures.items[i], pictures.labels[i], static_cast<int32_t>(best),
                 shares[static_cast<size_t>(best)]}
            );
            n_right += static_cast<size_t>(best) == label;
            result.loss -= std::log(std::max(1e-30, static_cast<double>(shares[label])));
        }
    }
    const double n  = std::max<double>(1.0, static_cast<double>(result.answers.size()));
    result.loss     = result.loss / n;
    result.accuracy = static_cast<double>(n_right) / n;
    return result;
}

Confusion confusion_of(const Evaluation & evaluation, size_t n_classes) {
    Confusion matrix(n_classes, std::vector<int64_t>(n_classes));
    for (const Answer & answer : evaluation.answers) {
        ++matrix[static_cast<size_t>(answer.label)][static_cast<size_t>(answer.predicted)];
    }
    return matrix;
}

void write_mistakes(
    const std::string & path,
    const ImageData &   data,
    const Evaluation &  evaluation,
    const std::string & metrics
) {
    constexpr size_t    kMistakes = 60;
    std::vector<Answer> wrong;
    for (const Answer & answer : evaluation.answers) {
        if (answer.predicted != answer.label) {
            wrong.push_back(answer);
        }
    }
    std::stable_sort(wrong.begin(), wrong.end(), [](const Answer & a, const Answer & b) {
        return a.confidence > b.confidence;
    });
    wrong.resize(std::min(kMistakes, wrong.size()));
    std::vector<Mistake> mistakes;
    for (const Answer & answer : wrong) {
        Picture    scratch;
        const auto view = data.load(answer.item, scratch);
        if (!view) {
            continue;
        }
        const auto name = [&](int32_t k) { return data.classes()[static_cast<size_t>(k)]; };
        mistakes.push_back(
            {{view->width,
              view->height,
              view->channels,
              {view->pixels, view->pixels + view->n_bytes()}},
             data.item(answer.item).name,
             name(answer.label),
             name(answer.predicted),
             answer.confidence}
        );
    }
    const auto &      classes = data.classes();
    const std::string title   = format(
          "%zu pictures, accuracy %.2f %%", evaluation.answers.size(), 100.0 * evaluation.accuracy
      );
    write_mistake_page(
        path, title,
        curves_html(metrics) + confusion_html(confusion_of(evaluation, classes.size()), classes),
        mistakes
    );
}

}  // namespace gt
