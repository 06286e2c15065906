// comm/rounds/presence.cpp — see presence.h.
#include "comm/rounds/presence.h"

#include "comm/wire/wire.h"

#include <algorithm>

namespace gt {

Presence::Presence(Store & store, const RunKeys & keys, std::string host, bool observe)
    : store_(store), keys_(keys), paths_(keys.run), host_(std::move(host)), observe_(observe) {}

void Presence::announce(const Commit * newest) {
    if (observe_) {
        return;
    }
    const CommitHost * me = newest ? newest->find(host_) : nullptr;
    if (me) {
        require_our_name(*me);
    }
    const uint64_t known   = me ? me->incarnation : 0;
    uint64_t       highest = std::max(incarnation_, known);
    for (const std::string & key : store_.list(paths_.presences(host_))) {
        const auto presence = paths_.parse_presence(key);
        if (presence && presence->is_start() && is_next_incarnation(presence->incarnation, known)) {
            highest = std::max(highest, presence->incarnation);
        }
    }
    const PresenceKey hello{PresenceKey::Kind::hello, host_, highest + 1};
    const Bytes       record = make_signed_record(keys_, head_of(hello), nonce_);
    if (store_.put(paths_.presence(hello), record, true)) {
        incarnation_  = hello.incarnation;
        is_announced_ = true;
    }
}

void Presence::require_our_name(const CommitHost & me) const {
    if (me.removed) {
        throw Error(
            "'" + host_ + "' was removed from the run (hub --remove); ask who runs the hub"
        );
    }
    if (me.key != public_key(keys_.host_seed)) {
        throw Error(
            "the run knows another machine as '" + host_ +
            "': choose another name with --name, or copy that machine's ggml-train/host-key from "
            "its config folder"
        );
    }
}

void Presence::tell(PresenceKey::Kind kind, uint64_t number, std::span<const uint8_t> body) {
    const PresenceKey key{kind, host_, number};
    store_.put(paths_.presence(key), make_signed_record(keys_, head_of(key), body));
}

void Presence::leave() {
    if (is_announced_) {
        tell(PresenceKey::Kind::leave, incarnation_);
    }
}

void Presence::ask(uint64_t index) {
    tell(PresenceKey::Kind::ask, index);
}

void Presence::restored(uint64_t index) {
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
    if (!me || !is_announced_) {
        return false;
    }
    require_our_name(*me);
    if (me->incarnation > incarnation_) {
        throw Error(
            "another machine takes part as '" + host_ +
            "'; give each its own name with --name, or stop the other one"
        );
    }
    if (me->incarnation < incarnation_) {
        return false;  // not admitted yet
    }
    bool drop_residual = false;
    if (!is_admitted_) {
        // From here on no message of a previous incarnation can be listed. If one was listed after
        // our state was saved, our residual still contains what it carried.
        is_admitted_  = true;
        drop_residual = last_sent_ && me->last_listed != kNone && me->last_listed > *last_sent_;
    }
    if (!me->member && is_newest) {
        is_announced_ = false;  // removed after a long silence: announce again
    }
    return drop_residual;
}

}  // namespace gt
