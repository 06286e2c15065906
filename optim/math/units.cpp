#include "optim/math/units.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace gt {

namespace {

// Sets this thread's floating point mode to IEEE and restores it: some libraries flush denormals.
class IeeeMode {
public:
#if defined(__x86_64__)
    IeeeMode() : saved_(_mm_getcsr()) {
        _mm_setcsr(0x1f80);
    }
    ~IeeeMode() {
        _mm_setcsr(saved_);
    }

private:
    unsigned saved_;
#elif defined(__aarch64__)
    IeeeMode() {
        asm volatile("mrs %0, fpcr" : "=r"(saved_));
        asm volatile("msr fpcr, %0" : : "r"(uint64_t{0}));
    }
    ~IeeeMode() {
        asm volatile("msr fpcr, %0" : : "r"(saved_));
    }

private:
    uint64_t saved_ = 0;
#endif
};

}  // namespace

Units::Units(
    std::vector<ParamView> params, const ChunkTarget & chunk, bool whole_matrices, Workers & workers
)
    : params_(std::move(params)), workers_(workers), rooms_(workers.size()) {
    for (size_t t = 0; t < params_.size(); ++t) {
        const ParamView & param = params_[t];
        shapes_.push_back(shape_of(param));
        const TensorShape & shape = shapes_.back();
        const int64_t       step  = cut_rows(shape, chunk, whole_matrices);
        const int64_t       fine  = cut_rows(shape, chunk, false);
        const int64_t       n_own = (param.row_end - param.row_begin) * shape.cols;
        GT_CHECK(
            param.row_begin % step == 0 &&
                (param.row_end % step == 0 || param.row_end == shape.rows),
            "a shard must begin and end at multiples of cut_rows"
        );
        GT_CHECK(
            static_cast<int64_t>(param.weight.size()) == n_own &&
                (param.grad.empty() || static_cast<int64_t>(param.grad.size()) == n_own),
            "weight and gradient must have the rows of the shard"
        );
        for (int64_t row = 0; row < shape.rows; row += step) {
            const Unit unit{static_cast<int>(t), row, std::min(shape.rows, row + step)};
            if (unit.begin >= param.row_begin && unit.end <= param.row_end) {
                owned_.push_back(static_cast<int>(all_.size()));
                largest_ = std::max(largest_, size(unit));
            }
            all_.push_back(unit);
            for (int64_t at = unit.begin; at < unit.end; at += fine) {
                slices_.push_back({unit.tensor, at, std::min(unit.end, at + fine)});
            }
            first_slices_.push_back(static_cast<int>(slices_.size()));
        }
    }
    indices_.resize(all_.size());
    std::iota(indices_.begin(), indices_.end(), 0);
}

std::vector<std::vector<float>> Units::make_state() const {
    std::vector<std::vector<float>> state;
    for (const ParamView & param : params_) {
        state.emplace_back(param.weight.size(), 0.0f);
    }
    return state;
}

void Units::run(std::span<const int> which, const Work & fn) const {
    std::atomic<size_t> next{0};
    workers_.run([&](int worker, int) {
        const IeeeMode mode;
        LaneBuffer &   room = rooms_[worker];
        if (room.data() == nullptr) {
            room = LaneBuffer(largest_);
        }
        for (size_t i = next++; i < which.size(); i = next++) {
            fn(which[i], room.data());
        }
    });
}

}  // namespace gt
