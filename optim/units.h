// optim/units.h — all tensors of a model in units, those of this rank, and threads to run over them.
//
// A unit is the smallest piece that a rank may own. Results do not depend on which thread or rank
// works on a unit, nor in which order.
#pragma once

#include "optim/lanes.h"
#include "optim/replicator.h"

namespace gt {

class Units {
public:
    Units(
        std::vector<ParamView> params,
        const ChunkTarget &    chunk,
        bool                   whole_matrices,
        Workers &              workers
    );

    const Shapes &                 shapes() const { return shapes_; }
    const std::vector<ParamView> & params() const { return params_; }

    // Units of the whole model, in message order; and which of them this rank owns.
    const std::vector<Unit> & all() const { return all_; }
    const std::vector<int> &  owned() const { return owned_; }
    bool                      owns_all() const { return owned_.size() == all_.size(); }

    int64_t size(const Unit & unit) const {
        return (unit.end - unit.begin) * shapes_[unit.tensor].cols;
    }
    // Elements of this rank's shard of the tensor that come before the unit.
    int64_t offset(const Unit & unit) const {
        return (unit.begin - params_[unit.tensor].row_begin) * shapes_[unit.tensor].cols;
    }
    // Zeros in the shape of this rank's shards.
    std::vector<std::vector<float>> make_state() const;

    // Calls fn(i, room) for each unit i of the model, or each that this rank owns, on all threads, each
    // with IEEE rounding and denormals whatever other libraries have set. room: memory of the thread
    // for as many floats as the largest unit owned has.
    using Work = std::function<void(int i, float * room)>;
    void run_owned(const Work & fn) const { run(owned_, fn); }
    void run_all(const Work & fn) const { run(indices_, fn); }

private:
    void run(std::span<const int> which, const Work & fn) const;

    std::vector<ParamView> params_;
    Shapes                 shapes_;
    std::vector<Unit>      all_;
    std::vector<int>       owned_, indices_;
    int64_t                largest_ = 0;
    Workers &              workers_;

    mutable std::vector<LaneBuffer> rooms_;  // one per worker, from its first use on
};

struct OptimOptions;

// Units as the options (chunk, rule) cut them; in optim.cpp.
Units make_units(const OptimOptions & options, std::vector<ParamView> params, Workers & workers);

}  // namespace gt
