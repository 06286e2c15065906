// optim/wire/inbox.h — the valid messages of a round, or their means in shares, and the mean of all.
#pragma once

#include "optim/wire/shares.h"

namespace gt {

// Refers to the layout and to the messages of the round.
class Inbox {
public:
    // Checks every message. Invalid ones have no effect; `refused` lists them. clip: see clip_scales; means
    // are made of clipped messages.
    Inbox(const Layout & layout, const Round & round, float clip);

    bool                             empty() const { return updates_.empty(); }
    bool                             in_shares() const { return in_shares_; }
    float                            lr() const { return lr_; }            // of most messages
    const std::vector<std::string> & refused() const { return refused_; }  // "host: reason"

    // A unit's bytes in each message, in commit order. REQUIRES: not in_shares.
    std::vector<Piece> pieces(int unit) const;

    // Writes the mean of the round for a unit. REQUIRES: not empty.
    void merge(int unit, float * update) const;

    // The factor that gives a unit's mean the norm that its messages have by themselves (their
    // root-mean-square). Independent parts of n messages cancel in the mean, up to a factor of sqrt(n),
    // which is also the limit. REQUIRES: update is from merge.
    float restored_norm(int unit, std::span<const float> update) const;

    // What it is made of: the mean square of the messages' norms, and the effective number of messages.
    double mean_square(int unit) const;
    double n_effective() const { return n_effective_; }

private:
    std::string check_head(const UpdateHead & head, const Round & round, const Message & message);
    std::string check_content(const Message & message, std::vector<double> & norms2) const;

    void read_updates(const Round & round, std::vector<std::string> & why, float clip);
    void read_means(const Round & round, std::vector<std::string> & why);

    const Layout &       layout_;
    bool                 in_shares_;
    float                lr_          = 0.0f;
    double               n_effective_ = 0.0;
    Plan                 plan_;
    std::vector<int64_t> offsets_;  // of all units in a message
    std::vector<Piece>   updates_;  // whole messages

    std::vector<std::vector<double>> norms2_;  // of each message, by unit
    std::vector<SliceMean>           means_;   // in shares, by slice

    std::vector<std::string> refused_;
};

}  // namespace gt
