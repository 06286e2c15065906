// ggml-train/exchange.h — how the ranks of a host, and hosts with one another, exchange data.
//
// LocalGroup: the ranks (one per device) of one host; everything is exact and complete.
// Peers: other hosts; only small messages travel, in rounds that a commit record closes.
// SharedRun: the run they have in common: joining, keeping up, shared checkpoints.
// comm/ implements both. No ggml header here. Read next: trainer.cpp, where both are used.
#pragma once

#include "ggml-train/base.h"

namespace gt {

// The ranks of one host. Every rank calls the same verbs in the same order (they are collective);
// a rank that fails ends the wait of all others with an Error.
class LocalGroup {
public:
    virtual ~LocalGroup() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;

    // Element-wise sum over ranks, in rank order; rank r receives the slice [offsets[r],
    // offsets[r + 1]) of it in `shard`. REQUIRES: offsets has size() + 1 entries.
    virtual void reduce_scatter(
        std::span<const float> full, std::span<const int64_t> offsets, std::span<float> shard
    ) = 0;

    // The opposite: every rank gives its slice, all receive the whole.
    virtual void all_gather(
        std::span<const float> shard, std::span<const int64_t> offsets, std::span<float> full
    ) = 0;

    // The sum without slices: every rank gives all of `data` and receives the sum there, the same bits.
    virtual void all_reduce(std::span<float> data) = 0;

    // Every rank receives the bytes of rank `root`.
    virtual void broadcast(std::span<uint8_t> data, int root) = 0;

    virtual void barrier() = 0;
};

// One host's contribution to a round.
struct Message {
    std::string host;
    uint64_t    weight = 1;  // samples behind it: its share in the mean
    Bytes       bytes;       // as optim/codec.h says
};

// Why our shared state (weights, rule state, outer momentum) can't be used any longer. The cure is
// always the same: take back what was left out, then SharedRun::join with an empty mark.
enum class Fault : uint8_t {
    none,
    diverged,  // the majority has another digest of the state that report() told
    forked,    // we applied a commit that lost against another one
    expired,   // we were away for so long that the rounds we miss are removed
};

// What the commit record of a round listed, in its order: the same on every host.
struct Round {
    uint64_t             round = 0;  // the step it belongs to; the next one is round + 1
    std::vector<Message> messages;
    bool     has_mine = false;  // ours is among them, or we had sent none; else take_back(mine)
    uint64_t mine     = 0;      // the round that our message was published for

    std::vector<std::string> in, late;      // for people: whose messages count, members left out
    uint64_t up_bytes = 0, down_bytes = 0;  // that rounds have cost us since the start

    Fault fault         = Fault::none;  // set: `messages` must not be applied, see above
    bool  drop_residual = false;  // an earlier life of ours sent what our residual still holds:
                                  // forget the residual, so that nothing is sent twice
    bool   validate = false;      // this round's validation is ours
    double pace_s   = 0;          // how long rounds take: what our micro-batches should fit in

    // Parts of the shared checkpoint that are ours to write: of the shared state as it is after
    // this round is applied, cut in n_parts. Give each to SharedRun::put_part.
    std::vector<int> write_parts;
    int              n_parts = 0;
};

// The other hosts. An empty message means "no round this step": collect returns at once.
class Peers {
public:
    virtual ~Peers() = default;

    // Our own name, which (with seed and step) decides our samples.
    virtual const std::string & host() const = 0;

    // Sends our message for a round on its way and returns without waiting.
    virtual void publish(uint64_t round, uint64_t weight, Bytes message) = 0;

    // Waits for the round's commit and returns its messages in commit order. Rounds are collected
    // in the order they were published in. With a round that was never published (not even an
    // empty message): the next commit, whichever it is.
    [[nodiscard]] virtual Round collect(uint64_t round) = 0;
};

// Where to start from: see SharedRun::join.
struct Joined {
    uint64_t step    = 0;  // behind the last round applied: the next to do, or one done already
    int      n_parts = 0;  // parts of the shared checkpoint to load first; 0: keep what we have
    std::vector<uint64_t> in_flight;  // steps of our messages that still travel: to be collected
    std::function<Bytes(int part)> fetch_part;  // throws Error if the store gives up

    std::vector<int> write_parts;  // at a run's very beginning: as in Round
    int              n_write_parts = 0;
};

// One line of the run's metrics, told after each applied round.
struct StepReport {
    uint64_t round        = 0;
    uint64_t state_digest = 0;  // of the shared state after that round; 0: not computed
    double   loss         = 0;
    double   tokens_s     = 0;
    double   waited_s     = 0;  // of the step, spent in collect
};

// The run that all hosts share: joining it, keeping up with it, its checkpoints.
//
//   Joined from = run.join(mark_of_our_checkpoint, true);   // load from.fetch_part(i) if any
//   for (step = from.step; step < n_steps;) {
//       gradient();
//       while (run.n_behind() > 0) { finish(peers.collect(oldest in flight, else step)); }
//       peers.publish(step, weight, optimizer.prepare(step, ...));
//       finish(peers.collect(step - overlap));
//   }
// where finish applies the round, sets step, hands over write_parts, and calls report.
class SharedRun {
public:
    virtual ~SharedRun() = default;

    // Finds our place in the run: from `mark` (of our own checkpoint, if the store still has all
    // rounds since), else from the last complete shared checkpoint, else, if `fresh` says that we
    // hold the run's initial weights, from its beginning; waits if there is nothing yet.
    [[nodiscard]] virtual Joined join(std::span<const uint8_t> mark, bool fresh) = 0;

    // Rounds that closed without us: to be collected and applied before the next publish. Also 1
    // until the run has taken us in.
    [[nodiscard]] virtual uint64_t n_behind() = 0;

    // Where we stand, to be kept in our own checkpoint next to the state it belongs to.
    [[nodiscard]] virtual Bytes mark() = 0;

    // Tells the others how it goes. A digest that differs comes back as Fault::diverged.
    virtual void report(const StepReport & report) = 0;

    // A part of the shared checkpoint, as Round::write_parts asked for; sent in the background.
    // `round`: as in the Round; for Joined::write_parts its step - 1.
    virtual void put_part(uint64_t round, int part, Bytes bytes) = 0;
};

// What comm/ makes: both in one.
class RunPeers : public Peers, public SharedRun {};

}  // namespace gt
