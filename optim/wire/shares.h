// optim/wire/shares.h — averages dense updates (full, diloco) in shares: a butterfly over any store.
//
// With n hosts, host j fetches share j of every update, averages it and publishes the mean; then all
// fetch n means instead of n whole updates. The means joined are an update of the same wire type; applying it
// alone gives the result of applying all updates: bit for bit in fp32, else with a mean that is rounded once
// more. What that rounds away is lost: no residual keeps it. These are pure functions: any host can recompute
// a share, and the mean of a value does not depend on where shares are cut. Norms are not clipped: that of a
// whole update is not known here, and the norm of a share varies between honest hosts.
//
// A share: the 40 bytes of the update's head, then first and end group (8 bytes each), then those
// groups as in the update. A mean: the same.
#pragma once

#include "optim/math/chunk.h"

#include <optional>

namespace gt {

// Splits an update into n shares of nearly equal size, cut between groups of 64 values. Throws Error if
// the update is invalid.
std::vector<Bytes>
split_shares(const std::vector<ParamView> & params, std::span<const uint8_t> update, int n);

// The mean of the same share of several updates, in commit order. weights: samples of each.
// Returns nothing and the reason in `why` if a share is malformed or differs from the others.
std::optional<Bytes> mean_share(
    const std::vector<ParamView> & params,
    std::span<const Bytes>         shares,
    std::span<const uint64_t>      weights,
    std::string &                  why
);

// Joins the means, in order of their share, into an update; nothing and the reason if they don't fit.
std::optional<Bytes> join_means(std::span<const Bytes> means, std::string & why);

// All of it: what the hosts of a run make of a round. REQUIRES: the messages are valid, at least one.
Bytes mean_update(
    const std::vector<ParamView> & params, std::span<const Message> messages, int n_shares
);

}  // namespace gt
