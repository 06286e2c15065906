// optim/math/units.h — a model's tensors divided into units, and a parallel loop over them.
//
// Results do not depend on the thread or rank that works on a unit, nor on the order.
#pragma once

#include "optim/math/chunk.h"
#include "optim/math/lanes.h"

#include <functional>

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

    // Units of the whole model, in message order; and the indices of those that this rank owns.
    const std::vector<Unit> & all() const { return all_; }
    const std::vector<int> &  owned() const { return owned_; }
    bool                      owns_all() const { return owned_.size() == all_.size(); }

    // Units of whole matrices cut further, into rows that have their own bytes in a message; and the first
    // of each unit's, the last entry is their number.
    const std::vector<Unit> & slices() const { return slices_; }
    const std::vector<int> &  first_slices() const { return first_slices_; }

    int64_t size(const Unit & unit) const {
        return (unit.end - unit.begin) * shapes_[unit.tensor].cols;
    }
    // Elements of this rank's shard of the tensor before the unit.
    int64_t offset(const Unit & unit) const {
        return (unit.begin - params_[unit.tensor].row_begin) * shapes_[unit.tensor].cols;
    }
    // Zeros in the shape of this rank's shards.
    std::vector<std::vector<float>> make_state() const;

    // Calls fn(i, room) for each unit i, owned by this rank, of the whole model or some, on all threads, with
    // IEEE rounding and denormals whatever mode other libraries have set. room: thread-local memory for
    // as many floats as the largest owned unit has.
    using Work = std::function<void(int i, float * room)>;
    void run_owned(const Work & fn) const { run(owned_, fn); }
    void run_all(const Work & fn) const { run(indices_, fn); }
    void run(std::span<const int> which, const Work & fn) const;

private:
    std::vector<ParamView> params_;
    Shapes                 shapes_;
    std::vector<Unit>      all_, slices_;
    std::vector<int>       owned_, indices_, first_slices_{0};
    int64_t                largest_ = 0;
    Workers &              workers_;

    mutable std::vector<LaneBuffer> rooms_;  // one per worker, allocated on first use
};

}  // namespace gt
