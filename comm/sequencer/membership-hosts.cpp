// comm/sequencer/membership-hosts.cpp — Membership: who has which name, and which hosts a commit lists.
#include "comm/sequencer/membership.h"

#include <algorithm>

namespace gt {

bool Membership::pin(const std::string & host, const Key32 & key) {
    if (const CommitHost * known = head_ ? head_->find(host) : nullptr) {
        return known->key == key;
    }
    make_room(host);
    return hellos_.try_emplace(host, Hello{0, key}).first->second.key == key;
}

// Names that are invented without end do not keep hosts out: the oldest one is forgotten.
void Membership::make_room(const std::string & host) {
    if (hellos_.size() < kMaxHosts || hellos_.contains(host)) {
        return;
    }
    const auto oldest = std::ranges::min_element(hellos_, {}, [&](const auto & hello) {
        const auto seen = seen_.find(hello.first);
        return seen == seen_.end() ? Time{} : seen->second;
    });
    leaves_.erase(oldest->first);
    seen_.erase(oldest->first);
    hellos_.erase(oldest);
}

std::map<std::string, Key32> Membership::names() const {
    std::map<std::string, Key32> names;
    for (const auto & [host, hello] : hellos_) {
        names.emplace(host, hello.key);
    }
    for (const CommitHost & host : head_ ? head_->hosts : std::vector<CommitHost>()) {
        names[host.name] = host.key;
    }
    return names;
}

void Membership::hello(const std::string & host, uint64_t incarnation, Time now) {
    const CommitHost * known = head_ ? head_->find(host) : nullptr;
    if (is_next_incarnation(incarnation, known ? known->incarnation : 0)) {
        make_room(host);
        Hello & hello = hellos_[host];
        if (incarnation > hello.incarnation) {
            hello.incarnation = incarnation;
            seen_[host]       = now;
        }
    }
}

void Membership::leave(const std::string & host, uint64_t incarnation) {
    if (hellos_.contains(host) || (head_ && head_->find(host))) {
        leaves_[host] = std::max(leaves_[host], incarnation);
    }
}

void Membership::remove(const std::string & host) {
    if (removed_.size() < kMaxHosts) {
        removed_.insert(host);
    }
}

// One predicate for "a commit is due" and "the commit admits": a hello that only the first accepts
// would be answered by empty commits without end.
bool Membership::would_admit(const std::string & name, uint64_t incarnation, Time now) const {
    const CommitHost * known = head_ ? head_->find(name) : nullptr;
    const auto         leave = leaves_.find(name);
    const auto         room  = [&] {
        return !head_ || head_->hosts.size() < kMaxHosts ||
               std::any_of(head_->hosts.begin(), head_->hosts.end(), [&](const CommitHost & host) {
                   return is_forgettable(host, now);
               });
    };
    return incarnation > (known ? known->incarnation : 0) && !removed_.contains(name) &&
           !(known && known->removed) && (leave == leaves_.end() || leave->second < incarnation) &&
           (known || room());
}

// A host that has gone and was never listed: nothing of it needs to be remembered.
bool Membership::is_forgettable(const CommitHost & host, Time now) const {
    const auto hello = hellos_.find(host.name);
    return host.last_listed == kNone && !host.removed && !is_live(host, now) &&
           !arrived_.contains(host.name) &&
           (hello == hellos_.end() || hello->second.incarnation <= host.incarnation);
}

void Membership::update_hosts(Commit & commit, Time now) const {
    commit.hosts = head_->hosts;
    std::vector<std::string> members;
    for (const auto & [name, hello] : hellos_) {  // new hosts
        if (commit.find(name) || !would_admit(name, hello.incarnation, now)) {
            continue;
        }
        if (commit.hosts.size() >= kMaxHosts) {
            const auto gone = std::ranges::find_if(commit.hosts, [&](const CommitHost & host) {
                return host.incarnation != 0 && is_forgettable(host, now);
            });
            if (gone == commit.hosts.end()) {
                break;
            }
            commit.hosts.erase(gone);
        }
        commit.hosts.push_back({.name = name, .key = hello.key});
    }
    // members, and new incarnations of known hosts
    for (CommitHost & host : commit.hosts) {
        const bool listed = commit.message_of(host.name) != nullptr;
        host.member       = is_live(host, now);
        host.removed |= removed_.contains(host.name);
        host.history = static_cast<uint8_t>(host.history << 1 | (listed ? 1 : 0));
        if (listed && commit.phase != Phase::outputs) {  // these carry means, no residual
            host.last_listed = commit.index;
        }
        const auto hello = hellos_.find(host.name);
        if (hello != hellos_.end() && would_admit(host.name, hello->second.incarnation, now)) {
            host.incarnation = hello->second.incarnation;
            host.member      = true;
            host.since       = commit.index;
            host.history     = 0;
        }
        if (host.member) {
            members.push_back(host.name);
        }
    }
    if (!members.empty()) {
        commit.validator = members[commit.index % members.size()];
    }
}

}  // namespace gt
