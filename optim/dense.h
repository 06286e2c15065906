// optim/dense.h — averages dense messages (full, diloco) in shares: a butterfly over any store.
//
// With n hosts, host j fetches share j of every message, averages it and publishes the mean; all then
// fetch n means instead of n whole messages. mean_share of each share, joined, is a message like any
// other, in fp32; applying a round of it alone gives, bit for bit, what applying all the messages
// themselves would. All are pure functions; any member can redo a share. Norms are not looked at:
// scaling to the median norm needs whole messages.
//
// A share: the 40 bytes of the message's head, then first and end group (8 bytes each), then those
// groups as in the message. A mean the same, its wire type fp32.
#pragma once

#include "optim/optim.h"

#include <optional>

namespace gt {

// Splits a message of the step into n shares of nearly equal size, cut between groups of 64 values.
// Throws Error if the message would be refused.
std::vector<Bytes> split_shares(
    const OptimOptions &           options,
    const std::vector<ParamView> & params,
    uint64_t                       step,
    std::span<const uint8_t>       message,
    int                            n
);

// The mean of the same share of several messages, in commit order. weights: samples of each.
// Returns nothing and the reason in `why` if a share is malformed or not like the others.
std::optional<Bytes> mean_share(
    const OptimOptions &           options,
    const std::vector<ParamView> & params,
    std::span<const Bytes>         shares,
    std::span<const uint64_t>      weights,
    std::string &                  why
);

// The message that the means, in order of their share, make up; nothing and the reason if they don't.
std::optional<Bytes> join_means(std::span<const Bytes> means, std::string & why);

}  // namespace gt
