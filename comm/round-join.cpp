// comm/round-join.cpp — finding our place in a run: from our own mark, a checkpoint or its start.
#include "comm/round-client.h"
#include "comm/wire.h"

#include <algorithm>

namespace gt {

constexpr uint32_t kMarkMagic = 0x324d5447;  // "GTM2"

// u32 magic | u64 run | u64 index | u64 step | digest head | u64 last index whose message is not in the
// residual | u16 n | n in flight: u64 index | u64 step | u64 incarnation
Bytes RoundClient::mark() const {
    WireWriter out;
    out.u32(kMarkMagic);
    out.u64(keys_.run);
    out.u64(pos_);
    out.u64(head_commit_ ? head_commit_->step : kNone);
    out.raw(head_);
    // until the run has taken us in, an earlier life may have sent what our residual still holds
    out.u64(own_last_ && !is_checked_ ? *own_last_ : next_index() - 1);
    out.u16(in_flight_.size());
    for (const InFlight & sent : in_flight_) {
        out.u64(sent.index);
        out.u64(sent.step);
        out.u64(sent.incarnation);
    }
    return out.take();
}

// Takes over position and messages in flight of an earlier life.
void RoundClient::read_mark(std::span<const uint8_t> mark) {
    WireReader in(mark);
    const bool magic = in.u32() == kMarkMagic;
    const auto run   = in.u64();
    const auto index = in.u64();
    in.u64();  // step: for people
    const Key32          head = in.key();
    const auto           last = in.u64();
    std::deque<InFlight> in_flight;
    for (size_t n = in.u16(); n > 0 && in.ok(); --n) {
        InFlight sent;
        sent.index       = in.u64();
        sent.step        = in.u64();
        sent.incarnation = in.u64();
        in_flight.push_back(sent);
    }
    if (!magic || !in.at_end()) {
        throw Error("the checkpoint's place in the run can't be read; start with --fresh");
    }
    if (run != keys_.run) {
        throw Error("the checkpoint is of another run; start with --fresh or take its hosts.txt");
    }
    own_       = {index, head};
    in_flight_ = std::move(in_flight);
    own_last_  = last;
}

std::optional<RoundClient::Start>
RoundClient::try_join(std::span<const uint8_t> mark, bool fresh, Time now) {
    auto chain = log_.load();
    if (chain.empty()) {
        if (!has_hello_) {
            say_hello(nullptr);
        }
        return std::nullopt;
    }
    if (!mark.empty() && !own_) {
        read_mark(mark);
    }
    const uint64_t       first  = chain.front().commit.index;
    const Commit &       newest = chain.back().commit;
    Start                start;
    std::optional<Key32> head;
    const auto           at = [&](uint64_t index) -> const ChainEntry * {
        return index >= first && index - first < chain.size() ? &chain[index - first] : nullptr;
    };
    const ChainEntry * listing = newest.complete_at == kNone ? nullptr : at(newest.complete_at);
    const ChainEntry * own     = !mark.empty() ? at(own_->first) : nullptr;
    if (own && own->digest == own_->second) {
        start.index = own_->first;
        start.step  = own->commit.step;
        head        = own_->second;
    } else if (fresh && first == 0 && (!listing || listing->commit.complete->index == 0)) {
        start.writers = chain.front().commit.writers;
        head          = chain.front().digest;
    } else if (listing) {
        start.checkpoint = listing->commit.complete;
        start.index      = start.checkpoint->index;
        start.step       = start.checkpoint->step;
        head             = start.checkpoint->head;
    }
    if (!head) {
        // nothing to start from yet; while the run waits for hosts, we are one of them
        if (!has_hello_ && first == 0 && newest.index == 0) {
            say_hello(&newest);
        }
        return std::nullopt;
    }
    ++generation_;
    pos_   = start.index;
    head_  = *head;
    epoch_ = newest.epoch;
    fault_ = Fault::none;
    fetched_.clear();
    waiting_since_.reset();
    stuck_since_.reset();
    head_of_next_ = {};
    settle_skipped(chain);
    head_commit_.reset();
    if (const ChainEntry * entry = at(pos_)) {
        head_commit_ = entry->commit;
    }
    ahead_.clear();
    for (ChainEntry & entry : chain) {
        if (entry.commit.index > pos_) {
            ahead_.push_back(std::move(entry));
        }
    }
    if (ahead_.size() <= 2 && !has_hello_) {
        say_hello(newest_commit());
    }
    (void) now;
    return start;
}

// Messages that were in flight for rounds we will not see, since we start behind them.
void RoundClient::settle_skipped(const std::deque<ChainEntry> & chain) {
    while (!in_flight_.empty() && in_flight_.front().index <= pos_) {
        const InFlight sent = in_flight_.front();
        OpenedRound    out;
        out.is_settled_only = true;
        out.commit.index    = sent.index;
        const auto entry    = std::find_if(chain.begin(), chain.end(), [&](const ChainEntry & e) {
            return e.commit.index == sent.index;
        });
        if (entry != chain.end()) {
            settle(entry->commit, out);
            out.fault = fault_ = Fault::none;  // joining has just cured it
        } else {
            in_flight_.pop_front();  // unknown: better lost than sent twice
        }
        out.commit.step = out.mine = sent.step;
        settled_.push_back(std::move(out));
    }
}

// Each life has its own number, higher than all before: it is part of every key we write.
void RoundClient::say_hello(const Commit * newest) {
    if (options_.observe) {
        return;
    }
    uint64_t highest = incarnation_;
    if (newest && newest->find(options_.host)) {
        highest = std::max(highest, newest->find(options_.host)->incarnation);
    }
    for (const std::string & key : store_.list(paths_.presences(options_.host))) {
        if (const auto presence = parse_presence(paths_, key)) {
            highest = std::max(highest, presence->incarnation);
        }
    }
    const uint64_t   life = highest + 1;
    const RecordHead head{Kind::presence, 0, options_.host, life};
    if (store_.put(paths_.hello(options_.host, life), make_record(keys_, head, {}), true)) {
        incarnation_ = life;
        has_hello_   = true;
    }
}

void RoundClient::leave() {
    if (has_hello_) {
        const RecordHead head{Kind::presence, 1, options_.host, incarnation_};
        store_.put(paths_.leave(options_.host, incarnation_), make_record(keys_, head, {}));
    }
}

}  // namespace gt
