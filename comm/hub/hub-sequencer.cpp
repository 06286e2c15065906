// comm/hub/hub-sequencer.cpp — see hub-sequencer.h.
#include "comm/hub/hub-sequencer.h"

#include "comm/sequencer/commit-log.h"

#include <cmath>

namespace gt {

constexpr int    kCommitsPerTick = 16;
constexpr Millis kRollCall{20'000};  // hosts notice sooner that the store has lost rounds

void RollCall::begin(Store & store, const RunPaths & paths, const Commit & newest, Time now) {
    store_   = &store;
    paths_   = paths;
    next_    = newest.index + 1;
    give_up_ = now + kRollCall + Millis(newest.pace_ms);
    for (const CommitHost & host : newest.hosts) {
        if (host.member) {
            awaited_[host.name] = host.incarnation;
        }
    }
}

std::string RollCall::on_get(const std::string & host, const std::string & key) {
    const std::lock_guard lock(mutex_);
    const auto            asked = awaited_.contains(host) ? paths_.parse_commit(key) : std::nullopt;
    if (asked == next_) {
        awaited_.erase(host);
    }
    if (!asked || *asked <= next_ || is_told_) {
        return "";
    }
    is_told_ = true;
    return host + format(
                      " has read round %llu, which this folder does not have; waiting until hosts "
                      "put it back",
                      static_cast<unsigned long long>(*asked - 1)
                  );
}

void RollCall::end() {
    const std::lock_guard lock(mutex_);
    awaited_.clear();
}

// Who has left or begun again is not awaited.
bool RollCall::is_open(Time now) {
    const std::lock_guard lock(mutex_);
    std::erase_if(awaited_, [&](const auto & host) {
        return now >= give_up_ || store_->get(paths_.leave(host.first, host.second)) ||
               store_->get(paths_.hello(host.first, host.second + 1));
    });
    return !awaited_.empty();
}

HubSequencer::HubSequencer(const RunKeys & keys, const SequencerOptions & options)
    : keys_(keys), options_(options) {
    options_.on_refusal = [this](const std::string & text) { tell(text); };
    options_.on_message = [this](const SeenMessage & message) {
        Hub * hub = hub_;
        if (hub && std::isfinite(message.head.loss)) {
            const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
            const MessageHead & head = message.head;
            hub->add_metrics(
                message.host,
                format("step=%llu", number(head.step)) +
                    (head.loss > 0 ? format(" loss=%g", double(head.loss)) : ""
                    ) +  // 0: no step yet
                    format(
                        " tokens_s=%g waited_s=%g samples=%llu up_bytes=%llu down_bytes=%llu",
                        double(head.tokens_s), double(head.waited_s), number(head.weight),
                        number(head.up_bytes), number(head.down_bytes)
                    )
            );
        }
    };
}

void HubSequencer::tell(const std::string & text) {
    if (Hub * hub = hub_) {
        hub->fault(text);
    }
}

void HubSequencer::start(Store & store) {
    sequencer_ = std::make_unique<Sequencer>(store, keys_, options_);
    try {
        if (const auto chain = CommitLog(store, keys_).load(); !chain.empty()) {
            const Commit & newest = chain.back().commit;
            roll_call_.begin(store, RunPaths(keys_.run), newest, std::chrono::steady_clock::now());
            std::map<std::string, Key32> names;
            for (const CommitHost & host : newest.hosts) {
                names.emplace(host.name, host.key);
            }
            know(std::move(names));
        }
    } catch (const StoreError &) {
        // the chain has a gap: the sequencer waits until hosts have put back what is missing
    }
}

void HubSequencer::on_put(const std::string & key) {
    const auto presence = RunPaths(keys_.run).parse_presence(key);
    if (presence && presence->kind == PresenceKey::Kind::restored) {
        roll_call_.end();
    }
    if (has_polled_) {  // else it will read all presences
        sequencer_->note(key, std::chrono::steady_clock::now());
        know(sequencer_->names());
    }
}

void HubSequencer::know(std::map<std::string, Key32> names) {
    const std::lock_guard lock(names_mutex_);
    names_ = std::move(names);
}

std::optional<Key32> HubSequencer::key_of(const std::string & host) {
    const std::lock_guard lock(names_mutex_);
    const auto            found = names_.find(host);
    return found == names_.end() ? std::nullopt : std::optional(found->second);
}

void HubSequencer::on_get(const std::string & host, const std::string & key) {
    if (const std::string text = roll_call_.on_get(host, key); !text.empty()) {
        tell(text);
    }
}

void HubSequencer::tick(std::chrono::steady_clock::time_point now) {
    if (roll_call_.is_open(now)) {
        return;
    }
    has_polled_ = true;
    // a commit may make the next one due at once: its messages may be there already
    for (int n = 0; n < kCommitsPerTick && sequencer_->poll(now); n++) {
        know(sequencer_->names());
    }
}

}  // namespace gt
