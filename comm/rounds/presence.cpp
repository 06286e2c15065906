// comm/rounds/presence.cpp — see presence.h.
#include "comm/rounds/presence.h"

#include "comm/wire/wire.h"

#include <algorithm>

namespace gt {

constexpr uint64_t kMostInFlight = 2;  // messages that a process may have sent before it ended

Presence::Presence(Store & store, const RunKeys & keys, std::string host, bool observe)
    : store_(store), keys_(keys), paths_(keys.run), host_(std::move(host)), observe_(observe) {}

void Presence::announce(const Commit * newest, bool has_stopped) {
    if (observe_) {
        return;
    }
    if (newest) {
        require_our_name(*newest);
    }
    if (state_ == State::held && is_held(newest, has_stopped)) {
        return;
    }
    state_ = find_holder(newest) ? State::held : State::absent;
    if (state_ == State::held && is_held(newest, has_stopped)) {
        return;
    }
    const PresenceKey hello{PresenceKey::Kind::hello, host_, highest_ + 1};
    const Bytes       record = make_record(keys_, head_of(hello), keys_.process);
    if (store_.put(paths_.presence(hello), record, true)) {
        incarnation_ = hello.incarnation;
        state_       = State::announced;
    }
}

// Looks for the newest incarnation of our name. True: a process that may be alive has announced it.
bool Presence::find_holder(const Commit * newest) {
    const CommitHost * me    = newest ? newest->find(host_) : nullptr;
    const uint64_t     known = me ? me->incarnation : 0;
    uint64_t           hello = 0, leave = 0;
    for (const std::string & key : store_.list(paths_.presences(host_))) {
        const auto presence = paths_.parse_presence(key);
        if (presence && presence->is_start() && presence->incarnation < known + kMaxStarts) {
            uint64_t & last = presence->kind == PresenceKey::Kind::hello ? hello : leave;
            last            = std::max(last, presence->incarnation);
        }
    }
    highest_ = std::max({incarnation_, known, hello, leave});
    const PresenceKey key{PresenceKey::Kind::hello, host_, hello};
    const auto        value = hello > leave ? store_.get(paths_.presence(key)) : std::nullopt;
    Author            author;
    const auto body = value ? parse_record(keys_, head_of(key), *value, &author) : std::nullopt;
    holder_         = {hello, newest ? newest->index : 0};
    return body && author.key == public_key(keys_.host_seed) &&
           !std::ranges::equal(*body, keys_.process);
}

// False: nobody counts on the holder any more.
bool Presence::is_held(const Commit * newest, bool has_stopped) const {
    const std::string remedy = "; stop one of the two, or give this one its own name with --name";
    if (!newest) {
        throw Displaced("another process waits as '" + host_ + "' for the run to begin" + remedy);
    }
    const CommitHost * me = newest->find(host_);
    if (me && me->incarnation == holder_.incarnation && me->last_listed != kNone &&
        me->last_listed > holder_.since + kMostInFlight) {
        throw Displaced(
            format(
                "another process takes part as '%s', last listed in round %llu", host_.c_str(),
                static_cast<unsigned long long>(me->last_listed)
            ) +
            remedy
        );
    }
    const bool is_gone = me && (me->incarnation > holder_.incarnation ||
                                (me->incarnation == holder_.incarnation && !me->member));
    return !is_gone && !has_stopped;
}

void Presence::require_our_name(const Commit & commit) const {
    const CommitHost * me = observe_ ? nullptr : commit.find(host_);
    if (!me) {
        return;
    }
    if (me->removed) {
        throw Displaced(
            "'" + host_ + "' was removed from the run (hub --remove); ask who runs the hub"
        );
    }
    if (me->key != public_key(keys_.host_seed)) {
        throw Displaced(
            "the run knows another machine as '" + host_ +
            "': choose another name with --name, or copy that machine's ggml-train/host-key from "
            "its config folder"
        );
    }
    if (state_ == State::announced && me->incarnation > incarnation_) {
        throw Displaced(
            "another process takes part as '" + host_ +
            "'; give each its own name with --name, or stop the other one"
        );
    }
}

void Presence::tell(PresenceKey::Kind kind, uint64_t number, std::span<const uint8_t> body) {
    const PresenceKey key{kind, host_, number};
    store_.put(paths_.presence(key), make_record(keys_, head_of(key), body));
}

void Presence::leave() {
    if (state_ == State::announced) {
        tell(PresenceKey::Kind::leave, incarnation_);
    }
}

void Presence::ask(uint64_t index) {
    tell(PresenceKey::Kind::ask, index);
}

void Presence::restored(uint64_t index) {
    if (state_ == State::announced) {
        tell(PresenceKey::Kind::hello, incarnation_, keys_.process);
    }
    tell(PresenceKey::Kind::restored, index);
}

void Presence::stuck(uint64_t newest, uint64_t place, const Key32 & head) {
    WireWriter body;
    body.u64(place);
    body.raw(head);
    tell(PresenceKey::Kind::stuck, newest, body.bytes());
}

bool Presence::is_member(const Commit * newest) const {
    const CommitHost * me = newest ? newest->find(host_) : nullptr;
    return observe_ || (me && me->member && me->incarnation == incarnation_);
}

bool Presence::admit(const Commit & commit, bool is_newest) {
    const CommitHost * me = commit.find(host_);
    if (!me || state_ != State::announced) {
        return false;
    }
    if (me->incarnation < incarnation_) {
        return false;  // not admitted yet
    }
    bool drop_residual = false;
    if (!was_admitted_) {
        // From here on no message of a previous incarnation can be listed. If one was listed after
        // our state was saved, our residual still contains what it carried.
        was_admitted_ = true;
        drop_residual = last_sent_ && me->last_listed != kNone && me->last_listed > *last_sent_;
    }
    if (!me->member && is_newest) {
        forget();  // removed after a long silence: announce again
    }
    return drop_residual;
}

}  // namespace gt
