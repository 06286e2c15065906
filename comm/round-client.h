// comm/round-client.h — a host's side of the rounds, without threads, waits or clock of its own.
//
// Publishes sealed messages, follows the chain of commits one by one, fetches and opens what each
// lists. StorePeers (peers-store.h) adds the waiting; a simulation calls the same code with its own
// time. The invariants that tests hold it to:
//   - the commits it returns form one chain, each index once, in order;
//   - the messages of an index are those its commit lists, in its order, or a fault is returned;
//   - every published message is settled once: has_mine, or left out.
// Implemented in round-client.cpp (rounds), round-join.cpp (joining), round-repair.cpp (lost
// messages, long waits).
#pragma once

#include "comm/commit-log.h"
#include "comm/membership.h"
#include "ggml-train/exchange.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <set>

namespace gt {

struct RoundClientOptions {
    std::string host;
    Millis      lost_after{20'000};  // a listed message can't be fetched for so long: say so
    int         n_fetch = 4;         // messages fetched at the same time; 1: no threads
    bool        observe = false;     // follows the rounds, takes no part
};

// A round as its commit closed it, opened.
struct OpenedRound {
    Commit               commit;
    std::vector<Message> messages;                // what could be opened: the same on every host
    bool                 has_mine        = true;  // ours is among them, or there was none
    uint64_t             mine            = 0;     // step that our message was published for
    Fault                fault           = Fault::none;
    bool                 drop_residual   = false;
    bool                 is_settled_only = false;  // nothing to apply: joining skipped this round
};

class RoundClient {
public:
    // Puts a value for us, at once or later; must try until it succeeds or `index` is closed.
    using Upload = std::function<void(const std::string & key, Bytes value, uint64_t index)>;

    RoundClient(
        Store & store, const RunKeys & keys, const RoundClientOptions & options, Upload upload
    );

    // Where to start. Nothing: not yet, try again later.
    struct Start {
        uint64_t                      index = 0;
        uint64_t                      step  = kNone;  // of the last round applied there
        std::optional<CheckpointList> checkpoint;     // to be loaded first
        std::vector<std::string>      writers;        // of the first checkpoint, at the beginning
    };
    [[nodiscard]] std::optional<Start>
    try_join(std::span<const uint8_t> mark, bool fresh, Time now);

    // Rounds that closed without us; 1 until the run has taken us in. Looks at the store.
    uint64_t n_behind(Time now);

    void publish(uint64_t step, uint8_t phase, uint64_t weight, std::span<const uint8_t> body);

    // The next round, if its commit is there within `wait` and everything it lists is fetched.
    [[nodiscard]] std::optional<OpenedRound> try_next(Millis wait, Time now);

    // Digest of the shared state as it is now, after the last round returned; and metrics.
    void report(const StepReport & report);

    // The index that publish will take.
    uint64_t next_index() const {
        return std::max(pos_, in_flight_.empty() ? 0 : in_flight_.back().index) + 1;
    }

    Bytes                 mark() const;
    void                  leave();
    uint64_t              index() const { return pos_; }
    uint64_t              incarnation() const { return incarnation_; }
    uint64_t              newest() const { return pos_ + ahead_.size(); }
    size_t                n_in_flight() const { return in_flight_.size(); }
    std::vector<uint64_t> steps_in_flight() const;

    // Bytes of rounds, sent and received since the start; count adds what others move for them.
    uint64_t up_bytes() const { return up_bytes_; }
    uint64_t down_bytes() const { return down_bytes_; }
    void     count(uint64_t up, uint64_t down) {
            up_bytes_ += up;
            down_bytes_ += down;
    }
    uint64_t state_digest() const { return head_of_next_.state_digest; }
    uint64_t state_index() const { return head_of_next_.state_index; }

private:
    struct InFlight {
        uint64_t             index = 0, step = 0, incarnation = 0;
        std::optional<Key32> digest;  // of the value; unknown after a restart
        uint64_t             generation = 0;
        uint8_t              phase      = 0;
    };

    bool           look_ahead(Millis wait);
    bool           append(ChainEntry entry);
    bool           fetch(ChainEntry & entry);
    void           open(const ChainEntry & entry, OpenedRound & out);
    void           settle(const Commit & commit, OpenedRound & out);
    void           judge_membership(const Commit & commit, OpenedRound & out);
    void           while_waiting(Time now);
    void           while_stuck(ChainEntry & entry, Time now);
    void           say_hello(const Commit * newest);
    void           read_mark(std::span<const uint8_t> mark);
    void           settle_skipped(const std::deque<ChainEntry> & chain);
    const Commit * newest_commit() const;

    OpenedRound faulty(Fault fault);

    Store &            store_;
    RunKeys            keys_;
    RoundClientOptions options_;
    Upload             upload_;
    RunPaths           paths_;
    CommitLog          log_;

    // where we stand
    uint64_t               pos_ = 0;
    Key32                  head_{};
    std::optional<Commit>  head_commit_;  // of pos_; not known right after a checkpoint
    std::deque<ChainEntry> ahead_;        // closed, not yet returned
    uint64_t               epoch_      = 0;
    Fault                  fault_      = Fault::none;  // until the next join
    uint64_t               generation_ = 0;            // counts joins

    // who we are
    uint64_t                                  incarnation_ = 0;
    bool                                      has_hello_   = false;
    std::optional<std::pair<uint64_t, Key32>> own_;  // where the mark of our own checkpoint is
    std::optional<uint64_t> own_last_;  // residual holds what was not sent up to this index
    bool                    is_checked_ = false;

    std::deque<InFlight>    in_flight_;
    std::deque<OpenedRound> settled_;       // of rounds that joining skipped
    MessageHead             head_of_next_;  // what report() told
    uint64_t                up_bytes_ = 0, down_bytes_ = 0;

    // fetching ahead_.front()
    std::map<std::string, Bytes>                     fetched_;  // by host
    std::map<uint64_t, std::map<std::string, Bytes>> held_;     // last rounds, to put again
    std::optional<Time>                              waiting_since_, stuck_since_;
    Time                                             looked_{};
    bool                                             has_voted_ = false;
};

}  // namespace gt
