// comm/rounds/round-client.cpp — publishing, and following the rounds.
#include "comm/rounds/round-client.h"

#include "comm/wire/wire.h"

namespace gt {

constexpr uint64_t kHelpRounds = 4;   // a host that is far behind looks whether it comes nearer
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
    uint64_t                 step,
    Phase                    phase,
    uint64_t                 weight,
    std::span<const uint8_t> body,
    uint64_t                 n_shard_bytes
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
    head.n_shard_bytes   = static_cast<uint32_t>(std::min<uint64_t>(n_shard_bytes, UINT32_MAX));
    Bytes value          = make_message(keys_, id, head, body);
    up_bytes_ += value.size();
    outbox_.add({index, step, incarnation(), digest256(value), generation_, phase});
    fetcher_.keep(id, value);
    upload_(paths_.message(id), std::move(value), index);
}

void RoundClient::leave() {
    presence_.leave();
    presence_.forget();
    n_replayed_ = 0;
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

// Announces this host when it is near. Farther behind only if replaying is hardly faster than rounds close,
// and then again and again, as long as that brings it nearer: the others wait for a new member.
void RoundClient::approach(Time now) {
    const size_t   far    = chain_.ahead().size();
    const uint64_t newest = chain_.newest();
    if (is_near() || n_replayed_ == 0) {
        far_       = far;
        look_at_   = newest + far;
        is_helped_ = false;
    }
    if (is_near()) {
        announce(chain_.newest_commit(), now);
        return;
    }
    const bool is_absent = presence_.state() != Presence::State::announced;
    if (newest < look_at_ || !(is_absent || is_helped_)) {
        return;
    }
    if (is_helped_ && far >= far_) {
        look_at_ = kNone;  // too slow for this run
        return;
    }
    if (is_helped_ || 2 * far > far_) {
        is_helped_ = true;
        presence_.forget();
        announce(chain_.newest_commit(), now);
    }
    far_     = far;
    look_at_ = newest + (is_helped_ ? kHelpRounds : far);
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
    approach(now);
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
    ++n_replayed_;
    remember(heads_, chain_.index(), chain_.head());
    if (out.fault != Fault::none) {
        stop(out.fault);
    } else if (standing_ != Standing::restoring) {
        progress();
    }
    return out;
}

}  // namespace gt
