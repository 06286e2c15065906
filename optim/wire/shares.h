// optim/wire/shares.h — averages the updates of a round in shares: a butterfly over any store.
//
// An update is cut between slices (math/units.h) into shares of nearly equal size. One host fetches share j
// of every update and publishes its mean; then all fetch the means instead of all updates. A mean is rounded
// once more, to mean_wire of the update's type. What that leaves out is lost: no residual keeps it. These are pure
// functions: any host can recompute a mean, and that of a slice does not depend on where shares are cut.
//
// Norms are clipped as those of whole updates (clip_scales): the sender tells the norm of its update with each
// share, and a share of a larger norm is refused. So a liar gains at most a factor of sqrt(number of shares).
//
// A share and a mean have the head of an update (codec.h) and in its content:
//
//   offset bytes
//        0     8  first slice
//        8     8  end slice
//       16     8  double; a share: the norm of the whole update; a mean: the effective number of updates
//       24     n  a share: the slices as in the update; a mean: of each slice the mean square of the updates'
//                 norms (double), then its mean (Replicator::write_mean)
#pragma once

#include "optim/wire/layout.h"

namespace gt {

// Splits an update into n shares. Throws Error if it does not fit the layout.
std::vector<Bytes> split_shares(const Layout & layout, std::span<const uint8_t> update, int n);

// The mean of the same share of several updates, in commit order; clip: see clip_scales. Malformed shares and
// those that differ from most in step, rate or slices are left out. Nothing: all are.
std::optional<Bytes>
mean_of_shares(const Layout & layout, std::span<const Message> shares, float clip);

// One slice of a mean.
struct SliceMean {
    const uint8_t * bytes       = nullptr;  // null: zero, its share was refused
    double          mean_square = 0.0;
};

// Reads the mean of share j of n into `slices`, one for each of the layout's. Returns the effective number of
// updates; or 0 and the reason in `why`: the slices are then unchanged. REQUIRES: its head was read.
double read_mean(
    const Layout &           layout,
    const Plan &             plan,
    std::span<const uint8_t> mean,
    int                      j,
    int                      n,
    std::vector<SliceMean> & slices,
    std::string &            why
);

// (sum of weights)^2 / sum of squared weights.
double n_effective(std::span<const Piece> pieces);

}  // namespace gt
