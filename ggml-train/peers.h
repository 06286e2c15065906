// ggml-train/peers.h — interface: the other hosts of a run. Hosts send one small message per round;
// a commit record closes the round and lists the messages that count. comm/rounds implements it.
//
//   Joined from = peers.join(mark_of_our_checkpoint, true);  // load peers.slice(i), if there are any
//   for (step = from.step; step < n_steps;) {
//       while (auto round = peers.missed(nothing_in_flight)) { apply(*round); }
//       gradient();
//       while (auto round = peers.missed(true)) { apply(*round); }
//       peers.publish(step, n_samples, optimizer.prepare(step, lr).message);  // unless it is empty
//       apply(peers.collect(step - overlap));
//   }
//
// apply() updates the weights, then calls peers.applied(). All calls come from one thread (rank 0);
// uploads run in the background. Read next: trainer.cpp, where it is used.
#pragma once

#include "ggml-train/base/base.h"

#include <optional>

namespace gt {

// One host's contribution to a round.
struct Message {
    std::string host;
    uint64_t    weight = 1;  // its samples: its weight in the mean
    Bytes       bytes;       // format: optim/wire/codec.h
};

// A committed round as the optimizer applies it: the same messages in the same order on every host.
struct Round {
    uint64_t             step = 0;  // the trainer's step; the next one is step + 1
    std::vector<Message> messages;
    bool                 in_shares =
        false;  // they are the means of the shares of all messages (optim/wire/shares.h)
    bool     has_mine = false;  // ours is among them, or we sent none; else take_back(mine)
    uint64_t mine     = 0;      // step that our message was published for
};

// A host that has ever joined, as its message of a round reports it.
struct HostReport {
    std::string name;
    bool        is_member = false, in = false;  // in: its message counts; else the rest is 0
    uint64_t    samples = 0, up_bytes = 0, down_bytes = 0;
    double      loss = 0.0, tokens_s = 0.0;  // of its step before; loss 0: unknown
};

// The same round as the log and the pace see it.
struct RoundInfo {
    std::vector<std::string> in, late;  // hosts whose messages count; members that missed the round
    uint64_t                 up_bytes = 0, down_bytes = 0;  // traffic of all rounds since the start
    double                   pace_s   = 0.0;                // duration of recent rounds; 0: unknown
    double                   age_s    = 0.0;                // since it was there to be collected
    bool                     validate = false;              // this host validates after this round
    std::vector<HostReport>  hosts;                         // all, for the status page
};

// Slices of the shared checkpoint that this host must write: of the shared state after the round,
// cut into n_slices. They are passed to Peers::applied.
struct SliceOrder {
    std::vector<int> ours;
    int              n_slices = 0;
};

// Why our shared state (weights, rule state, outer momentum) is invalid. The cure is always the same:
// take back messages that were left out, then join with an empty mark.
enum class Fault : uint8_t {
    none,
    diverged,  // the majority reported another state digest
    forked,    // we applied a commit that lost against another one
    expired,   // the rounds that we miss have been deleted
};

// A closed round and everything that comes with it.
struct Collected {
    Round      round;
    RoundInfo  info;
    SliceOrder slices;
    Fault      fault         = Fault::none;  // set: `round.messages` must not be applied
    bool       is_stopped    = false;        // the user wants to stop: nothing was collected
    bool       drop_residual = false;  // a previous incarnation already sent part of this residual;
                                       // clear it, or it would be applied twice
};

// The run has removed this host, or another process has its name. Thrown by missed() and collect(): the
// state is that of the last round that was applied, and can be saved.
class Displaced : public Error {
public:
    using Error::Error;
};

// Where to start: see Peers::join.
struct Joined {
    uint64_t step         = 0;        // the next step; may be behind the loaded checkpoint's
    int      n_slices     = 0;        // slices of the shared checkpoint to load; 0: keep our state
    uint64_t state_digest = 0;        // of the state that was loaded; 0: unknown
    std::vector<uint64_t> in_flight;  // steps of our messages that are still to be collected
    SliceOrder            write;      // at the very start of a run: the initial state
};

// What a host reports after it applied a round, or after it joined.
struct Applied {
    uint64_t step         = 0;  // of the round; after join: Joined::step - 1
    uint64_t state_digest = 0;  // of the shared state; 0: nothing to report, only slices
    double   loss         = 0.0;
    double   tokens_s     = 0.0;
    double   waited_s     = 0.0;  // of the step, spent waiting for other hosts

    struct Slice {
        int   index = 0;
        Bytes bytes;
    };
    std::vector<Slice>
        slices;  // as the SliceOrder of that round asked for; uploaded in the background
};

class Peers {
public:
    virtual ~Peers() = default;

    // Finds our place in the run: after `mark` (saved with our own checkpoint) if the store still has
    // all rounds since then, else after the last complete shared checkpoint, else at the beginning if
    // we hold the initial weights (`fresh`). Waits if none of these is possible yet.
    [[nodiscard]] virtual Joined join(std::span<const uint8_t> mark, bool fresh) = 0;

    // Slice i of the shared checkpoint that join() named. Nothing: it has been removed meanwhile, or
    // can't be read; join again.
    [[nodiscard]] virtual std::optional<Bytes> slice(int i) = 0;

    // Our place in the run, to be saved with our own checkpoint.
    [[nodiscard]] virtual Bytes mark() = 0;

    // Starts sending our message for a step, and returns. A step without a message has no round.
    virtual void publish(uint64_t step, uint64_t n_samples, Bytes message) = 0;

    // The next round that closed without a message of ours; null if there is none. To be applied
    // before the next publish. admission: also waits until the run has admitted this host. May let a
    // message in flight travel on in the background: then null until its round is collected.
    [[nodiscard]] virtual std::optional<Collected> missed(bool admission) = 0;

    // Waits for the round of a published step. Steps are collected in the order in which they were
    // published.
    [[nodiscard]] virtual Collected collect(uint64_t step) = 0;

    // Leaves the run for a while; uploads end first. The next call of missed(true) returns to it: the
    // rounds in between are then missed ones.
    virtual void pause() = 0;

    // Reports the state after a round. If the majority has another digest, a later round returns
    // Fault::diverged.
    virtual void applied(Applied applied) = 0;
};

}  // namespace gt
