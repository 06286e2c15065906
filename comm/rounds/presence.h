// comm/rounds/presence.h — how a host announces itself to the run, and when the run has admitted it.
#pragma once

#include "comm/store/store.h"
#include "comm/wire/commit.h"
#include "ggml-train/peers.h"

namespace gt {

class Presence {
public:
    // `observe`: follows the rounds and never announces itself.
    Presence(Store & store, const RunKeys & keys, std::string host, bool observe);

    // Writes a hello record with a new incarnation number, higher than all before: it is part of
    // every key that we write. Not while another process that may be alive has our name; throws
    // Displaced if it is.
    // has_stopped: no round has closed for long, so nothing of it was to be seen.
    void announce(const Commit * newest, bool has_stopped = false);

    void leave();

    // Asks for a shared checkpoint of `index` or later.
    void ask(uint64_t index);

    // We have put back what the store had lost, up to the commit of `index`.
    void restored(uint64_t index);

    // We are stuck behind the commit `place`: the store has lost messages that commits up to `newest`
    // list, or checkpoints.
    void stuck(uint64_t newest, uint64_t place, const Key32 & head);

    // Announces itself again, with a new incarnation: the store may have lost our hello.
    void forget() { state_ = State::absent; }

    enum class State : uint8_t {
        absent,     // has not announced itself
        held,       // another process, which may be alive, has our name
        announced,  // with incarnation()
    };
    State    state() const { return state_; }
    uint64_t incarnation() const { return incarnation_; }
    bool     is_member(const Commit * newest) const;

    // Our state comes from a checkpoint whose residual lacks only messages up to `last`.
    void resume(uint64_t last) { last_sent_ = last; }

    // Throws Displaced if `commit` says that the run has removed us, or that another process has our name.
    void require_our_name(const Commit & commit) const;

    // The value to resume from; `last` is the index of our last message. A previous incarnation may
    // have sent more than we know until the run admits us.
    uint64_t resume_index(uint64_t last) const {
        return last_sent_ && !was_admitted_ ? *last_sent_ : last;
    }

    // Takes the next commit in. Returns true if a previous incarnation sent what our residual still
    // contains.
    [[nodiscard]] bool admit(const Commit & commit, bool is_newest);

private:
    void tell(PresenceKey::Kind kind, uint64_t number, std::span<const uint8_t> body = {});

    // The newest incarnation of our name, if a process that may be alive has announced it.
    struct Holder {
        uint64_t incarnation = 0, since = 0;  // since: the newest commit when we found it
    };
    bool is_held(const Commit * newest, bool has_stopped) const;
    bool find_holder(const Commit * newest);

    Store &                 store_;
    const RunKeys &         keys_;
    RunPaths                paths_;
    std::string             host_;
    bool                    observe_;
    State                   state_       = State::absent;
    uint64_t                incarnation_ = 0;       // ours
    uint64_t                highest_     = 0;       // of our name
    Holder                  holder_;                // if held
    bool                    was_admitted_ = false;  // once
    std::optional<uint64_t> last_sent_;
};

}  // namespace gt
