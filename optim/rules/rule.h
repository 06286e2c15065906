// optim/rules/rule.h — interface: update -> new weights. The rules are sgd, adamw and muon, one file each.
//
// Merged updates must give the same bits on all hosts: rules use only + - * / sqrt in a fixed order.
// Read next: adamw.cpp.
#pragma once

#include "ggml-train/optimizer.h"

namespace gt {

// One tensor's shard, and the settings of its kind.
struct RuleTensor {
    std::string      name;
    std::span<float> weight;
    int64_t          rows = 1, cols = 1;  // of the shard
    ParamKind        kind  = ParamKind::matrix;
    float            lr    = 1.0f;  // factor on the learning rate
    float            decay = 0.0f;  // weight decay; decoupled, before the update
};

class UpdateRule {
public:
    virtual ~UpdateRule() = default;

    // Begins a step with this learning rate.
    virtual void begin(float lr) = 0;

    // Updates weight[offset, offset + n) of a tensor by `scale` times the update u.
    // Threads may work on different ranges at the same time. REQUIRES: begin was called.
    virtual void update(int tensor, int64_t offset, int64_t n, const float * u, float scale) = 0;

    // Ends a step on a device, where a rule may put off what several tensors can share.
    virtual void finish() {}

    // The momentum of a tensor, which a round of local steps corrects; empty: nothing is corrected.
    virtual std::span<float> momentum(int) { return {}; }

    // Adds the rule's state. shared: updates are merged ones, so the state is equal on all hosts.
    virtual void add_state(OptimizerState & state, bool shared) = 0;
};

struct AdamOptions {
    float beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f;
    bool q8 = false;  // moments of 8 bits (moments.h), but for those of vectors and narrow matrices
};
// Scalars of AdamW's step t (from 1): lr / (1 - b1^t) and 1 / sqrt(1 - b2^t).
struct AdamStep {
    float rate = 0.0f, root = 1.0f;
};
AdamStep adam_step(const AdamOptions & options, uint64_t t, float lr);

// Whether a tensor's moments have 8 bits; the floats that hold one of them; and those of 8 bits that come before a
// weight. REQUIRES: it is the first of a row.
bool    has_q8_moments(const AdamOptions & options, const RuleTensor & tensor);
size_t  moments_size(const AdamOptions & options, const RuleTensor & tensor);
int64_t q8_moments_before(const RuleTensor & tensor, int64_t weight);

struct MuonOptions {
    float momentum = 0.0f;  // Nesterov; it also smooths sparse updates
    int   n_steps  = 5;     // Newton-Schulz iterations
};

// m += c · rms(m) · d, where d is the difference between the step that should have been made and the one that
// was, in units of the root-mean-square of a step.
void correct_momentum(std::span<float> m, float c, const float * d);

// The factor on an orthogonal matrix of the tensor's shape.
float muon_growth(const RuleTensor & tensor);

std::unique_ptr<UpdateRule> make_sgd(std::vector<RuleTensor> tensors);
std::unique_ptr<UpdateRule>
make_adamw(std::vector<RuleTensor> tensors, const AdamOptions & options);

// Matrices by the orthogonalised update, other tensors by its sign. REQUIRES: whole matrices.
std::unique_ptr<UpdateRule> make_muon(std::vector<RuleTensor> tensors, const MuonOptions & options);

}  // namespace gt
