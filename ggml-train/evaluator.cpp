#include "ggml-train/evaluator.h"

#include "ggml-train/shard/ranks.h"

#include <numeric>

namespace gt {

Evaluator::Evaluator(LocalGroup & ranks, StepRunner & graph) : ranks_(ranks), graph_(graph) {}

Evaluator::Call Evaluator::call(Call call) {
    ranks_.broadcast({reinterpret_cast<uint8_t *>(&call), sizeof(call)}, 0);
    return call;
}

Score Evaluator::validate(Data & data, bool last) {
    Score score;
    if (ranks_.rank() == 0) {
        score = data.validate(*this, last);
        call(Call::end);
    } else {
        for (Call next = call(Call::end); next != Call::end; next = call(Call::end)) {
            if (next == Call::follow) {
                graph_.follow();
            } else {
                share(nullptr);
            }
        }
    }
    graph_.release();
    return from_first(ranks_, [&] { return score; });
}

double Evaluator::mean_loss(const std::vector<Batch> & batches) {
    call(Call::mean_loss);
    return share(&batches);
}

// Collective. Each rank runs some of the batches, which rank 0 gives.
double Evaluator::share(const std::vector<Batch> * batches) {
    batches               = from_first(ranks_, [&] { return batches; });
    const auto    n       = static_cast<int64_t>(batches->size());
    const int64_t n_turns = (n + ranks_.size() - 1) / ranks_.size();

    std::vector<double> mine;
    for (int64_t turn = 0; turn < n_turns; ++turn) {
        const int64_t i = ranks_.rank() * n_turns + turn;
        mine.push_back(graph_.run(i < n ? (*batches)[i] : (*batches)[0].blank()));
    }
    // ranks hold consecutive batches: the sum runs over the batches in order
    double loss = 0.0, counted = 0.0;
    for (const std::vector<double> & losses : from_all(ranks_, mine)) {
        loss = std::accumulate(losses.begin(), losses.end(), loss);
    }
    for (const Batch & batch : *batches) {
        counted += static_cast<double>(batch.n_labels());
    }
    ranks_.barrier();  // rank 0 owns the batches
    return loss / counted;
}

double Evaluator::Leader::run(const Batch & batch, float scale, bool first) {
    evaluator_.call(Call::follow);
    return evaluator_.graph_.run(batch, scale, first);
}

size_t Evaluator::Leader::activation_bytes() const {
    return evaluator_.graph_.activation_bytes();
}

}  // namespace gt
