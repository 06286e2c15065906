// comm/rounds/round-client.cpp — joining a run, publishing, and following its rounds.
#include "comm/rounds/round-client.h"

#include "comm/wire/wire.h"

namespace gt {

constexpr uint32_t kMarkMagic  = 0x334d5447;  // "GTM3"
constexpr size_t   kNearRounds = 2;   // a joining host announces itself when it is this far behind
constexpr int      kMaxFaults  = 3;   // a fault that returns this often is not an accident
constexpr size_t   kRemembered = 64;  // rounds whose commit and state the others' are compared with

template <class Value>
static void remember(std::map<uint64_t, Value> & values, uint64_t index, const Value & value) {
    values[index] = value;
    if (values.size() > kRemembered) {
        values.erase(values.begin());
    }
}

RoundClient::RoundClient(
    Store & store, const RunKeys & keys, const RoundClientOptions & options, Upload upload
)
    : keys_(keys), options_(options), upload_(std::move(upload)), paths_(keys.run),
      chain_(store, keys_), outbox_(options.host),
      presence_(store, keys_, options.host, options.observe),
      fetcher_(
          store,
          keys_,
          {.host = options.host, .lost_after = options.lost_after, .n_threads = options.n_fetch}
      ) {
    GT_CHECK(valid_host_name(options_.host), "invalid host name");
    GT_CHECK(keys_.can_read, "a host needs the run's secret, not a hub-key");
}

void RoundClient::publish(
    uint64_t step, Phase phase, uint64_t weight, std::span<const uint8_t> body
) {
    GT_CHECK(standing_ != Standing::joining, "publish before join");
    GT_CHECK(weight >= 1, "a message without samples");
    const uint64_t  index = next_index();
    const MessageId id{index, options_.host, incarnation()};
    MessageHead     head = head_of_next_;
    head.step            = step;
    head.phase           = phase;
    head.weight          = weight;
    head.base_index      = chain_.index();
    head.base            = chain_.head();
    head.n_body_bytes    = static_cast<uint32_t>(body.size());
    head.up_bytes        = up_bytes();
    head.down_bytes      = down_bytes();
    Bytes value          = make_message(keys_, id, head, body);
    up_bytes_ += value.size();
    outbox_.add({index, step, incarnation(), digest256(value), generation_, phase});
    fetcher_.keep(id, value);
    upload_(paths_.message(id), std::move(value), index);
}

void RoundClient::leave() {
    presence_.leave();
    presence_.forget();
}

void RoundClient::report(const Applied & applied) {
    head_of_next_.state_index  = chain_.index();
    head_of_next_.state_digest = applied.state_digest;
    remember(states_, chain_.index(), applied.state_digest);
    head_of_next_.loss     = static_cast<float>(applied.loss);
    head_of_next_.tokens_s = static_cast<float>(applied.tokens_s);
    head_of_next_.waited_s = static_cast<float>(applied.waited_s);
}

// Rounds that have closed without us. We may have joined behind our messages in flight.
uint64_t RoundClient::n_missed() const {
    const size_t n = chain_.ahead().size();
    return chain_.newest() >= next_index() ? chain_.newest() - next_index() + 1
                                           : n - std::min(n, outbox_.size());
}

// Nothing is wrong: from replaying to member.
void RoundClient::progress() {
    standing_ = n_missed() > 0                                ? Standing::replaying
                : presence_.is_member(chain_.newest_commit()) ? Standing::member
                                                              : Standing::waiting;
}

void RoundClient::stop(Fault fault) {
    standing_ = Standing::faulted;
    fault_    = fault;
}

uint64_t RoundClient::n_behind(Time now) {
    while (look_ahead({})) {
    }
    if (chain_.ahead().size() <= kNearRounds) {
        announce(chain_.newest_commit(), now);
    }
    if (!settled_.empty() || standing_ == Standing::faulted) {
        return 1;
    }
    if (standing_ != Standing::restoring) {
        progress();
    }
    if (standing_ == Standing::waiting || standing_ == Standing::restoring) {
        cope(fetcher_.while_waiting(chain_, now));
    }
    return standing_ == Standing::member ? 0 : std::max<uint64_t>(n_missed(), 1);
}

void RoundClient::announce(const Commit * newest, Time now) {
    const auto before = presence_.state();
    if (before == Presence::State::announced) {
        return;
    }
    presence_.announce(newest, newest && has_stopped(*newest, now));
    if (presence_.state() == Presence::State::held && before != Presence::State::held &&
        options_.log) {
        options_.log(
            "another process takes part as '" + options_.host +
            "'; waiting until it is silent or a message of it is listed"
        );
    }
}

void RoundClient::cope(Fetcher::Trouble trouble) {
    switch (trouble) {
        case Fetcher::Trouble::none:
            break;
        case Fetcher::Trouble::lost:
            standing_ = options_.observe ? standing_ : Standing::restoring;
            break;
        case Fetcher::Trouble::expired:
            stop(Fault::expired);
            break;
        case Fetcher::Trouble::forked:
            stop(Fault::forked);
            break;
        case Fetcher::Trouble::stuck:
            if (!options_.observe) {
                presence_.stuck(chain_.newest(), chain_.index(), chain_.head());
            }
            break;
    }
    if (standing_ == Standing::restoring) {
        restore();
    }
}

// The store has lost commits that we have applied: puts back what we hold, and tells the sequencer. All
// hosts hold the same chain, so the run continues behind the newest commit that one of them has read.
void RoundClient::restore() {
    const Commit * newest = chain_.newest_commit();
    if (!newest) {
        stop(Fault::forked);  // we hold a state, but not its commit
        return;
    }
    if (options_.restore) {
        options_.restore();
    }
    fetcher_.put_back();
    if (!chain_.put_back()) {
        stop(Fault::forked);
        return;
    }
    presence_.restored(newest->index);
    if (!presence_.is_member(newest)) {
        presence_.forget();
    }
    progress();
}

// Reads the next commit of the chain. False: it is not there yet, or it does not fit.
bool RoundClient::look_ahead(Millis wait) {
    if (standing_ == Standing::faulted) {
        return false;
    }
    const Chain::Read read = chain_.read(wait);
    if (read == Chain::Read::forked) {
        stop(Fault::forked);
    }
    return read == Chain::Read::appended;
}

// Messages in flight stay so until the next join.
OpenedRound RoundClient::faulty() const {
    OpenedRound out;
    out.fault            = fault_;
    const Commit * head  = chain_.head_commit();
    const auto     first = outbox_.first_step();
    out.commit.step      = first ? *first : head ? head->step : kNone;
    return out;
}

// What the other hosts say, sealed, about their history and state: a hub that tells them another story
// can't forge it. A minority may be wrong; a fault means that as many contradict us as agree.
Fault RoundClient::compare(const std::map<std::string, MessageHead> & heads) const {
    size_t n_equal = 0, n_base = 0, n_state = 0;
    for (const auto & [host, head] : heads) {
        const auto base = heads_.find(head.base_index);
        const auto ours = states_.find(head.state_index);
        if (base != heads_.end() && head.base != base->second) {
            ++n_base;
        } else if (ours != states_.end() && head.state_digest != 0 && head.state_digest != ours->second) {
            ++n_state;
        } else {
            ++n_equal;
        }
    }
    return n_base > 0 && n_base >= n_equal     ? Fault::forked
           : n_state > 0 && n_state >= n_equal ? Fault::diverged
                                               : Fault::none;
}

// A fault that returns after the state was loaded from the others is not cured by loading it again.
void RoundClient::count(Fault fault) {
    n_faults_ = fault == Fault::none ? 0 : n_faults_ + 1;
    if (n_faults_ < kMaxFaults) {
        return;
    }
    throw Error(
        fault == Fault::forked
            ? "the hub or store tells the other hosts another history than us; ask who runs it"
            : "this host computes another state than the others from the same messages; test its "
              "memory, and install the same version as on the other hosts"
    );
}

std::optional<OpenedRound> RoundClient::try_next(Millis wait, Time now) {
    // messages of skipped rounds are settled first
    if (!settled_.empty()) {
        OpenedRound out = std::move(settled_.front());
        settled_.pop_front();
        return out;
    }
    // read the next commit
    if (chain_.ahead().empty() && !look_ahead(wait) && standing_ != Standing::faulted) {
        announce(chain_.newest_commit(), now);
        cope(fetcher_.while_waiting(chain_, now));
    }
    if (standing_ == Standing::faulted) {
        return faulty();
    }
    if (chain_.ahead().empty()) {
        return std::nullopt;
    }
    fetcher_.found_commit();
    // fetch its messages
    if (!fetcher_.fetch(chain_.ahead().front().commit)) {
        standing_ = standing_ == Standing::restoring ? standing_ : Standing::stuck;
        cope(fetcher_.while_stuck(chain_, now));
        return std::nullopt;
    }
    const Commit & commit = chain_.ahead().front().commit;
    presence_.require_our_name(commit);  // before our messages are settled: the mark is good
    if (commit.n_undone > 0) {
        settled_ = outbox_.take_back(0, commit.index - 1);
        if (!settled_.empty()) {
            return try_next(wait, now);
        }
    }
    // open them, and settle our own
    OpenedRound out;
    out.commit      = commit;
    out.messages    = fetcher_.open(commit, out.heads);
    out.fault       = compare(out.heads);
    const auto sent = outbox_.settle(commit, out);
    if (sent && sent->generation == generation_ &&
        std::count(commit.diverged.begin(), commit.diverged.end(), options_.host) > 0) {
        out.fault = Fault::diverged;
    }
    if (out.fault != Fault::none || (sent && commit.message_of(options_.host))) {
        count(out.fault);
    }
    out.drop_residual = presence_.admit(commit, chain_.ahead().size() == 1);
    // step forward
    fetcher_.finish(commit.index);
    chain_.advance();
    remember(heads_, chain_.index(), chain_.head());
    if (out.fault != Fault::none) {
        stop(out.fault);
    } else if (standing_ != Standing::restoring) {
        progress();
    }
    return out;
}

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
    standing_ = Standing::replaying;
    if (chain_.ahead().size() <= kNearRounds) {
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
        replay += entry.commit.index > list.index ? entry.commit.n_bytes(list.n_bytes()) : 0;
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
    const Commit * head   = chain_.head_commit();
    const Bytes    commit = head ? encode_commit(keys_, *head) : Bytes();
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
        own_commit_ = ChainEntry{std::move(*parsed), head};
    }
    presence_.resume(last);
}

}  // namespace gt
