#include "tools/picture-task.h"

namespace gt {

static ImageOptions
image_options(const TrainFlags & f, PictureFlags & own, const TrainTask & task) {
    own.images.classes = task.model.config.class_names;
    if (own.images.cache_path.empty() && own.images.cache_bytes > 0) {
        own.images.cache_path = f.out + "/pictures.cache";
    }
    return own.images;
}

static void choose_sizes(TrainFlags & f, PictureFlags & own, int64_t T, int64_t n_pictures) {
    f.batch = f.batch ? f.batch : std::min<int64_t>(128, n_pictures);
    f.micro = f.micro ? f.micro : std::min(f.batch, std::max<int64_t>(1, 16384 / T));
    if (f.steps == 0 && f.tokens == 0 && f.hours == 0.0) {
        own.epochs = own.epochs > 0.0 ? own.epochs : 20.0;
        const double steps =
            own.epochs * static_cast<double>(n_pictures) / static_cast<double>(f.batch);
        f.steps = std::max<int64_t>(1, static_cast<int64_t>(steps));
    }
}

PictureTask::PictureTask(
    const std::string & path,
    TrainFlags &        train,
    PictureFlags &      own,
    TrainTask &         task,
    Together &          together
)
    : f_(train), own_(own), task_(task) {
    ModelConfig & config = task.model.config;
    do {  // a second time if another host, with other pictures, said first how to see them
        data_ =
            std::make_unique<ImageData>(path, image_spec(config), image_options(train, own, task));
        learn_from_data(config, *data_, f_.model);
    } while (!together.offer(task.model));
    const int64_t n_pictures = static_cast<int64_t>(data_->train().size());
    std::printf(
        "%s\n%s", data_->summary().c_str(), list_left_out(*data_, f_.out + "/left-out.txt").c_str()
    );
    choose_sizes(f_, own_, config.n_positions(), n_pictures);
    choose_defaults(f_, config, config.n_positions(), n_pictures);

    task.T            = config.n_positions();
    task.unit         = "images";
    task.n_per_sample = 1;
    task.data_digest  = data_->digest();
    task.train = [this](uint64_t step, const std::string & host, int64_t begin, int64_t end) {
        return batch(step, host, begin, end);
    };
    task.evaluate = [this](StepRunner & logits, bool last) { return evaluate(logits, last); };
    task.waited   = [this] {
        return train_ ? std::chrono::duration<double>(train_->waited()).count() : 0.0;
    };
}

Batch PictureTask::batch(uint64_t step, const std::string & host, int64_t begin, int64_t end) {
    if (!train_) {  // only now all settings of the run are known
        const LoaderOptions options{
            .seed      = f_.seed,
            .host      = host,
            .batch     = static_cast<int>(f_.batch),
            .begin     = static_cast<int>(begin),
            .end       = static_cast<int>(end),
            .augment   = own_.augment,
            .n_threads = std::max(1, f_.threads / 2)};
        train_ = std::make_unique<ImageLoader>(*data_, options, step);
    }
    Batch          made = to_batch(train_->at(step));
    const uint64_t n    = 2 * static_cast<uint64_t>(task_.model.config.n_layer);
    if (task_.depth) {
        made.depth =
            depth_factors(own_.depth, f_.seed, step, host, begin, end, static_cast<int64_t>(n));
    }
    return made;
}

Score PictureTask::evaluate(StepRunner & logits, bool last) {
    if (data_->val().empty()) {
        return {.loss = -1.0};
    }
    if (!val_) {
        const LoaderOptions options{
            .batch     = static_cast<int>(logits.options().B),
            .val       = true,
            .augment   = {},
            .n_threads = std::max(1, f_.threads / 2)};
        val_ = std::make_unique<ImageLoader>(*data_, options);
    }
    const int64_t    B         = logits.options().B;
    const int64_t    n_batches = last ? 0 : (f_.eval_batches * f_.batch + B - 1) / B;
    const Evaluation result    = evaluate_pictures(logits, *val_, n_batches);
    if (last) {  // all of the validation set, and its worst mistakes for people
        write_mistakes(mistakes(), *data_, result);
    }
    return {result.loss, result.accuracy};
}

std::string PictureTask::mistakes() const {
    return data_->val().empty() ? "" : f_.out + "/mistakes.html";
}

}  // namespace gt
