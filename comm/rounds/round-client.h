// comm/rounds/round-client.h — a host's side of the protocol, without threads or a clock of its own.
//
// Publishes sealed messages, follows the chain of commits one by one, fetches and opens the messages
// that each lists. StorePeers (peers-store.h) adds waiting and threads; a simulation calls the same
// code with virtual time. Invariants that the tests check:
//   - the commits it returns form one chain, each index once, in order;
//   - the messages of an index are those its commit lists, in its order, or a fault is returned;
//   - every published message is settled once: listed, or left out.
// round-join.cpp finds the place to start. Parts: Chain (commits), Outbox (our messages), Presence (membership), Fetcher (messages).
#pragma once

#include "comm/rounds/chain.h"
#include "comm/rounds/fetcher.h"
#include "comm/rounds/outbox.h"
#include "comm/rounds/presence.h"

#include <algorithm>
#include <functional>

namespace gt {

struct RoundClientOptions {
    std::string host;
    Millis      lost_after{20'000};   // a listed message is lost after this time
    Millis      ask_timeout{60'000};  // for a newer checkpoint, while no round closes
    int         n_fetch = 4;          // messages fetched at the same time; 1: no threads
    bool        observe = false;      // follows the rounds, takes no part

    std::function<void()> restore;  // the store is lost: puts back what is not ours to know
    std::function<void(const std::string & line)> log;
};

class RoundClient {
public:
    enum class Standing : uint8_t {
        joining,    // has no place in the chain yet
        replaying,  // applies rounds that have closed
        waiting,    // until the run admits this host
        member,     // the next round is to have its message
        stuck,      // what the next commit lists can't be fetched
        restoring,  // puts back what the store has lost
        faulted,    // its state is invalid: it must join again
    };

    // Puts a value, now or later; must retry until it succeeds or round `index` is closed.
    using Upload = std::function<void(const std::string & key, Bytes value, uint64_t index)>;

    RoundClient(
        Store & store, const RunKeys & keys, const RoundClientOptions & options, Upload upload
    );

    // Where to start. Nothing: not yet, retry later.
    struct Start {
        uint64_t                      index = 0;
        uint64_t                      step  = kNone;  // of the last round applied there
        std::optional<CheckpointList> checkpoint;     // to load first
        std::vector<std::string>      writers;        // of the first checkpoint, at the beginning
    };
    [[nodiscard]] std::optional<Start>
    try_join(std::span<const uint8_t> mark, bool fresh, Time now);

    // The last try_join found neither a shared checkpoint to load nor a state of ours that is valid.
    bool lacks_checkpoint() const { return lacks_checkpoint_; }

    // The shared checkpoint of `index` can't be read: do not start there again.
    void distrust(uint64_t index) { least_checkpoint_ = index + 1; }

    // The rounds and checkpoints before `index` have been removed. Reads the store.
    bool is_removed(uint64_t index) const { return chain_.log().floor() > index; }

    // Rounds that closed without us; 1 until the run has admitted us. Reads the store.
    uint64_t n_behind(Time now);

    // n_shard_bytes: of the outputs that the body lists.
    void publish(
        uint64_t                 step,
        Phase                    phase,
        uint64_t                 weight,
        std::span<const uint8_t> body,
        uint64_t                 n_shard_bytes = 0
    );

    // The next round, if its commit is there within `wait` and everything it lists is fetched.
    [[nodiscard]] std::optional<OpenedRound> try_next(Millis wait, Time now);

    // Digest of the shared state after the last round returned, and metrics: sent with the next
    // message.
    void report(const Applied & applied);

    Standing standing() const { return standing_; }

    // The index that publish will use.
    uint64_t next_index() const { return std::max(chain_.index(), outbox_.last_index()) + 1; }

    Bytes                 mark() const;
    void                  leave();  // until n_behind is called again
    uint64_t              index() const { return chain_.index(); }
    uint64_t              incarnation() const { return presence_.incarnation(); }
    uint64_t              newest() const { return chain_.newest(); }
    size_t                n_in_flight() const { return outbox_.size() + settled_.size(); }
    std::vector<uint64_t> steps_in_flight() const { return outbox_.steps(); }

    // Bytes of rounds, sent and received since the start. count() adds those of shards.
    uint64_t up_bytes() const { return up_bytes_; }
    uint64_t down_bytes() const { return down_bytes_ + fetcher_.n_bytes(); }
    void     count(uint64_t up, uint64_t down) {
            up_bytes_ += up;
            down_bytes_ += down;
    }
    uint64_t state_digest() const { return head_of_next_.state_digest; }
    uint64_t state_index() const { return head_of_next_.state_index; }

private:
    std::optional<Key32> find_start(
        const std::deque<ChainEntry> & chain, bool has_mark, bool fresh, Start & start
    ) const;
    bool needs_newer(const std::deque<ChainEntry> & chain, const CheckpointList & list, Time now);
    uint64_t    n_missed() const;
    bool        is_near() const { return chain_.ahead().size() <= 2; }  // announces itself
    void        approach(Time now);
    void        progress();
    void        stop(Fault fault);
    void        announce(const Commit * newest, Time now);
    bool        look_ahead(Millis wait);
    void        cope(Fetcher::Trouble trouble);
    void        restore();
    bool        has_stopped(const Commit & newest, Time now);
    bool        restore_own(const std::deque<ChainEntry> & chain, Time now);
    OpenedRound faulty() const;
    Fault       compare(const std::map<std::string, MessageHead> & heads) const;
    void        count(Fault fault);
    void        read_mark(std::span<const uint8_t> mark);

    RunKeys            keys_;
    RoundClientOptions options_;
    Upload             upload_;
    RunPaths           paths_;
    Chain              chain_;
    Outbox             outbox_;
    Presence           presence_;
    Fetcher            fetcher_;

    Standing                                  standing_   = Standing::joining;
    Fault                                     fault_      = Fault::none;  // if faulted: why
    uint64_t                                  generation_ = 0;            // number of joins
    int                                       n_faults_   = 0;  // in a row, between listed messages
    std::map<uint64_t, Key32>                 heads_;           // digests of commits, by index
    std::map<uint64_t, uint64_t>              states_;          // digests of our state, by index
    std::optional<std::pair<uint64_t, Key32>> own_;         // index and head of our own checkpoint
    std::optional<ChainEntry>                 own_commit_;  // of that index
    std::optional<Time>                       offered_;     // when it was put back
    uint64_t                                  n_replayed_ = 0;  // since joining or returning
    uint64_t far_ = 0, look_at_ = 0;     // rounds to replay when we looked; when to look again
    bool     is_helped_        = false;  // the others wait for us
    bool     lacks_checkpoint_ = false;
    std::optional<uint64_t> asked_;  // for a checkpoint of this index or later
    uint64_t                least_checkpoint_ = 0, newest_then_ = kNone;
    Time                    moved_{};       // when the newest commit became newest_then_
    std::deque<OpenedRound> settled_;       // of rounds that joining skipped
    MessageHead             head_of_next_;  // as report() set it
    uint64_t                up_bytes_ = 0, down_bytes_ = 0;
};

}  // namespace gt
