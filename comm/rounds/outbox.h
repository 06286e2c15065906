// comm/rounds/outbox.h — our messages in flight: published, and not settled by a commit yet.
#pragma once

#include "comm/sequencer/commit-log.h"
#include "ggml-train/peers.h"

#include <deque>
#include <map>

namespace gt {

class WireReader;
class WireWriter;

// A round as its commit closed it, with its messages opened.
struct OpenedRound {
    Commit                             commit;
    std::vector<Message>               messages;  // those that opened: the same on every host
    bool                               in_shares = false;  // see Round
    std::map<std::string, MessageHead> heads;              // theirs, by host
    bool                               has_mine = true;  // ours is among them, or we had sent none
    uint64_t                           mine     = 0;     // step that our message was published for
    Fault                              fault    = Fault::none;
    bool                               drop_residual = false;
    bool is_settled_only = false;  // joining skipped this round: nothing to apply
};

struct SentMessage {
    uint64_t             index = 0, step = 0, incarnation = 0;
    std::optional<Key32> digest;  // of the value; unknown after a restart
    uint64_t             generation = 0;
    Phase                phase      = Phase::single;
};

class Outbox {
public:
    explicit Outbox(std::string host) : host_(std::move(host)) {}

    void   add(const SentMessage & sent) { sent_.push_back(sent); }
    size_t size() const { return sent_.size(); }

    uint64_t                last_index() const { return sent_.empty() ? 0 : sent_.back().index; }
    std::optional<uint64_t> first_step() const;
    std::vector<uint64_t>   steps() const;  // one per round of the trainer

    // Settles our message of the commit's round and returns it, if there is one: sets out.mine, and
    // out.has_mine to whether the commit lists it. REQUIRES: out.messages are opened.
    std::optional<SentMessage> settle(const Commit & commit, OpenedRound & out);

    // Settles the messages up to `index`, whose rounds are skipped because we start behind them.
    std::deque<OpenedRound> settle_skipped(const std::deque<ChainEntry> & chain, uint64_t index);

    // Takes back the messages of rounds from `first` to `last`: no commit will list them.
    std::deque<OpenedRound> take_back(uint64_t first, uint64_t last);

    // u16 n | n times: u64 index | u64 step | u64 incarnation
    void write(WireWriter & out) const;
    void read(WireReader & in);

private:
    std::string             host_;
    std::deque<SentMessage> sent_;
};

}  // namespace gt
