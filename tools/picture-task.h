// tools/picture-task.h — pictures as a training task: flags of their own, batches made ahead of the
// step, validation with its worst mistakes. Read next: ggml-train/classifier.h, image-loader.h.
#pragma once

#include "ggml-train/classifier.h"
#include "tools/train-loop.h"

namespace gt {

struct PictureFlags {
    AugmentOptions augment;
    ImageOptions   images;
    double         epochs = 0.0;
    float          depth  = 0.0f;

    // What is computed: belongs to the run.
    template <class Visit>
    void visit_run(Visit && visit) {
        visit("epochs", epochs, "walks through all pictures instead of --steps; 0: 20");
        visit("val", images.val_fraction, "share kept for validation, if the data has no split");
        visit("stochastic-depth", depth, "share of the last residual branches dropped");
        augment.visit(visit);
    }

    template <class Visit>
    void visit_data(Visit && visit) {
        visit("cache", images.cache_path, "file of decoded pictures; default: in the run's folder");
        visit("cache-bytes", images.cache_bytes, "larger than this: not cached; 0: no cache");
    }
};

class PictureTask {
public:
    // Opens the pictures, says what they are, and chooses the flags that depend on them. The model
    // in `task` learns class names and normalisation, the same on every host of the run.
    // REQUIRES: the first three outlive this.
    PictureTask(
        const std::string & path,
        TrainFlags &        train,
        PictureFlags &      own,
        TrainTask &         task,
        Together &          together
    );

    // Where the worst mistakes are once the run is over; empty without validation.
    std::string mistakes() const;

private:
    Batch batch(uint64_t step, const std::string & host, int64_t begin, int64_t end);
    Score evaluate(StepRunner & logits, bool last);

    TrainFlags &                 f_;
    PictureFlags &               own_;
    TrainTask &                  task_;
    std::unique_ptr<ImageData>   data_;
    std::unique_ptr<ImageLoader> train_, val_;
};

}  // namespace gt
