// ggml-train/evaluator.h — validation on all ranks of a host, directed by rank 0.
#pragma once

#include "ggml-train/data.h"
#include "ggml-train/graph/graph.h"
#include "ggml-train/local-group.h"

namespace gt {

class Evaluator {
public:
    Evaluator(LocalGroup & ranks, StepRunner & graph);

    // Collective. Runs data.validate on rank 0, which calls the functions below; the other ranks
    // serve those calls. All ranks return the score.
    Score validate(Data & data, bool last);

    // Mean loss over the labels of several batches, summed in their order. The ranks share the
    // batches. REQUIRES: the graph has Goal::loss.
    double mean_loss(const std::vector<Batch> & batches);

    // The graph of rank 0. The other ranks lend it their weights for every run.
    StepRunner & graph() { return leader_; }

private:
    enum class Call : uint8_t { end, follow, mean_loss };

    // Forwards to the graph, after a Call::follow to the other ranks.
    class Leader : public StepRunner {
    public:
        explicit Leader(Evaluator & evaluator) : evaluator_(evaluator) {}

        double             run(const Batch & batch, float scale = 1.0f, bool first = true) override;
        void               follow() override { evaluator_.graph_.follow(); }
        std::vector<float> logits() const override { return evaluator_.graph_.logits(); }
        size_t             activation_bytes() const override;
        const GraphOptions & options() const override { return evaluator_.graph_.options(); }

    private:
        Evaluator & evaluator_;
    };

    Call   call(Call call);  // of rank 0
    double share(const std::vector<Batch> * batches);

    LocalGroup & ranks_;
    StepRunner & graph_;
    Leader       leader_{*this};
};

}  // namespace gt
