// comm/rounds/round-join.cpp — RoundClient: where a host starts, and its place as it is saved.
#include "comm/rounds/round-client.h"
#include "comm/wire/wire.h"

namespace gt {

constexpr uint32_t kMarkMagic = 0x334d5447;  // "GTM3"

std::optional<RoundClient::Start>
RoundClient::try_join(std::span<const uint8_t> mark, bool fresh, Time now) {
    if (!mark.empty() && !own_) {
        read_mark(mark);
    }
    auto chain = chain_.log().load();
    if (!mark.empty() && restore_own(chain, now)) {
        return std::nullopt;
    }
    if (chain.empty()) {  // the run waits for hosts: be one of them
        announce(nullptr, now);
        return std::nullopt;
    }
    const bool has_own = !mark.empty() && own_commit_;
    if (has_own && chain.front().commit.previous == own_commit_->digest) {
        chain.push_front(*own_commit_);
    }
    Start                      start;
    const Commit &             newest = chain.back().commit;
    const std::optional<Key32> head   = find_start(chain, !mark.empty(), fresh, start);
    lacks_checkpoint_ = !head || (start.checkpoint && start.index < least_checkpoint_);
    if (!head || (start.checkpoint && needs_newer(chain, *start.checkpoint, now))) {
        if (!head && newest.index == 0) {
            announce(&newest, now);
        }
        if (has_own && has_stopped(newest, now)) {
            presence_.stuck(newest.index, own_commit_->commit.index, own_commit_->digest);
            moved_ = now;
        }
        return std::nullopt;
    }
    asked_.reset();
    uint64_t last_valid = newest.index + 1;
    if (standing_ == Standing::faulted && fault_ == Fault::forked) {
        --last_valid;  // a message in the open round was begun on another chain
        presence_.forget();
    }
    ++generation_;
    head_of_next_ = {};
    states_.clear();
    heads_ = {{start.index, *head}};
    fetcher_.reset();
    for (OpenedRound & round : outbox_.settle_skipped(chain, start.index)) {
        settled_.push_back(std::move(round));
    }
    for (OpenedRound & round : outbox_.take_back(last_valid + 1, kNone)) {
        settled_.push_back(std::move(round));
    }
    chain_.start(start.index, *head, std::move(chain));
    standing_   = Standing::replaying;
    n_replayed_ = 0;
    if (is_near()) {
        announce(chain_.newest_commit(), now);
    }
    return start;
}

// Our own checkpoint is newer than the store, which is lost or was restored from an older copy: puts its
// commit back. The sequencer continues behind the newest one that hosts have put back.
bool RoundClient::restore_own(const std::deque<ChainEntry> & chain, Time now) {
    if (!own_commit_ || options_.observe ||
        (!chain.empty() && chain.back().commit.index >= own_commit_->commit.index)) {
        return false;
    }
    if (!offered_ || now - *offered_ > options_.lost_after / 2) {
        if (options_.restore) {
            options_.restore();
        }
        if (!chain_.log().put_back(*own_commit_)) {
            own_commit_.reset();  // another one is in its place
            return false;
        }
        presence_.restored(own_commit_->commit.index);
        offered_ = now;
    }
    announce(&own_commit_->commit, now);
    return true;
}

// Digest of the commit to start behind, and in `start` how. In this order: our own checkpoint, the
// beginning with the initial weights, the last complete shared checkpoint. Nothing: none of them.
std::optional<Key32> RoundClient::find_start(
    const std::deque<ChainEntry> & chain, bool has_mark, bool fresh, Start & start
) const {
    const auto at = [&](uint64_t index) -> const ChainEntry * {
        const auto it = std::find_if(chain.begin(), chain.end(), [&](const ChainEntry & entry) {
            return entry.commit.index == index;
        });
        return it == chain.end() ? nullptr : &*it;
    };
    const uint64_t     complete_at = chain.back().commit.complete_at;
    const ChainEntry * listing     = complete_at == kNone ? nullptr : at(complete_at);
    const ChainEntry * own         = has_mark ? at(own_->first) : nullptr;
    if (own && own->digest == own_->second) {
        start.index = own_->first;
        start.step  = own->commit.step;
        return own_->second;
    }
    if (fresh && at(0) && (!listing || listing->commit.complete->index == 0)) {
        start.writers = chain.front().commit.writers;
        return chain.front().digest;
    }
    if (listing) {
        start.checkpoint = listing->commit.complete;
        start.index      = start.checkpoint->index;
        start.step       = start.checkpoint->step;
        return start.checkpoint->head;
    }
    return std::nullopt;
}

// Replaying the rounds since this checkpoint takes longer than loading a newer one: asks for it, and
// waits while rounds close. So a joining host never has more to replay than a checkpoint's size and what
// comes while it loads.
bool RoundClient::needs_newer(
    const std::deque<ChainEntry> & chain, const CheckpointList & list, Time now
) {
    uint64_t       replay = 0;
    const Commit & newest = chain.back().commit;
    for (const ChainEntry & entry : chain) {
        replay += entry.commit.index > list.index ? entry.commit.n_bytes() : 0;
    }
    const bool is_readable = list.index >= least_checkpoint_;
    const bool is_new      = replay <= list.n_bytes() || (asked_ && list.index >= *asked_);
    if (options_.observe || (is_readable && is_new)) {
        return false;
    }
    if (!asked_) {
        presence_.ask(newest.index);
        asked_ = newest.index;
    }
    const bool has_members =
        std::any_of(newest.hosts.begin(), newest.hosts.end(), [](const auto & host) {
            return host.member;
        });
    return !is_readable || (has_members && !has_stopped(newest, now));
}

// No round has closed for long.
bool RoundClient::has_stopped(const Commit & newest, Time now) {
    if (newest.index != newest_then_) {
        newest_then_ = newest.index;
        moved_       = now;
    }
    return now - moved_ > std::max(options_.ask_timeout, 4 * Millis(newest.pace_ms));
}

// u32 magic | u64 run | u64 index | digest head | u64 last index whose message is not in the residual
// | u32 size and bytes of the commit of that index, 0: unknown | messages in flight (outbox.h)
Bytes RoundClient::mark() const {
    WireWriter out;
    out.u32(kMarkMagic);
    out.u64(keys_.run);
    out.u64(chain_.index());
    out.raw(chain_.head());
    out.u64(presence_.resume_index(next_index() - 1));
    const Bytes commit = chain_.head_value();
    out.u32(static_cast<uint32_t>(commit.size()));
    out.raw(commit);
    outbox_.write(out);
    return out.take();
}

void RoundClient::read_mark(std::span<const uint8_t> mark) {
    WireReader  in(mark);
    const bool  is_mark = in.u32() == kMarkMagic;
    const auto  run     = in.u64();
    const auto  index   = in.u64();
    const Key32 head    = in.key();
    const auto  last    = in.u64();
    const auto  commit  = in.raw(in.u32());
    Outbox      outbox(options_.host);
    outbox.read(in);
    if (!is_mark || !in.at_end()) {
        throw Error("the checkpoint's position in the run can't be read; start over with --fresh");
    }
    if (run != keys_.run) {
        throw Error(
            "the checkpoint belongs to another run; use --fresh, or the hosts.txt of that run"
        );
    }
    own_    = {index, head};
    outbox_ = std::move(outbox);
    if (auto parsed = parse_commit(keys_, index, commit); parsed && digest256(commit) == head) {
        own_commit_ = ChainEntry{std::move(*parsed), head, Bytes(commit.begin(), commit.end())};
    }
    presence_.resume(last);
}

}  // namespace gt
