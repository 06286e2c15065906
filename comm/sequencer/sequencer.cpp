// comm/sequencer/sequencer.cpp — one pass: presences, messages, checkpoint slices, commit.
#include "comm/sequencer/sequencer.h"

#include "comm/sequencer/run-settings.h"
#include "comm/wire/held-copy.h"
#include "comm/wire/wire.h"

#include <algorithm>
#include <utility>

namespace gt {

constexpr int kTurns = 8;  // candidates take over at different times, not all at once

Sequencer::Sequencer(Store & store, const RunKeys & keys, const SequencerOptions & options)
    : store_(store), keys_(keys), options_(options), paths_(keys.run), log_(store_, keys_),
      membership_(options.membership), retention_(store_, keys_) {
    GT_CHECK(valid_host_name(options_.name), "invalid name of a sequencer");
}

bool Sequencer::poll(Time now) {
    try {
        return pass(now);
    } catch (const BadCommit & bad) {
        if (state_ == State::following || !log_.discard(bad)) {
            throw;
        }
        refuse(format("the value of commit %llu", static_cast<unsigned long long>(bad.index)));
        return false;
    }
}

bool Sequencer::pass(Time now) {
    if (state_ == State::loading) {
        load(now);
    }
    if (state_ == State::following && !follow(now)) {
        return false;
    }
    // read what hosts have put
    look_for_settings();
    const Millis each = membership_.head() ? options_.presence_poll
                                           : std::min(options_.presence_poll, Millis(1'000));
    if (!looked_ || now - *looked_ >= each) {
        look_for_presences(now);
        (void) log_.read(membership_.open_index());  // a bad value there would stop hosts: see poll
    }
    if (must_restore()) {
        restart();
        load(now);
    }
    const double pace_ms = membership_.head() ? double(membership_.head()->pace_ms) : 0;
    if (now - membership_.opened() >= Millis(static_cast<int64_t>(options_.early * pace_ms))) {
        look_for_messages(now);
    }
    look_for_slices();
    // make room, then write a commit
    retention_.work();
    const bool closed = close(now);
    if (closed && options_.early == 0) {
        look_for_messages(now);  // of the next round
    }
    return closed;
}

void Sequencer::load(Time now) {
    // hosts may have put back commits that the store had lost
    for (const std::string & key : store_.list(paths_.presences())) {
        const auto presence = paths_.parse_presence(key);
        if (presence && presence->kind == PresenceKey::Kind::restored) {
            take_presence(key, now);
        }
    }
    const bool is_restored = adopt_restored();
    // read the chain
    const std::deque<ChainEntry> chain = log_.load();
    for (const ChainEntry & entry : chain) {
        advance(entry, now);
    }
    retention_.start(log_.floor());
    const uint64_t first    = chain.empty() ? 0 : chain.front().commit.index;
    const uint64_t complete = chain.empty() ? kNone : chain.back().commit.complete_at;
    if (is_restored || (first > 0 && (complete == kNone || complete < first))) {
        membership_.restored();
    }
    moved_ = now;
    lead_or_follow();
}

// Of several candidates the writer of the newest commit leads.
void Sequencer::lead_or_follow() {
    const auto & head = membership_.head();
    state_            = !options_.elected || !head || head->writer == options_.name ? State::leading
                                                                                    : State::following;
}

void Sequencer::restart() {
    state_      = State::loading;
    membership_ = Membership(options_.membership);
    looked_.reset();
    presences_.clear();
}

// Hosts have put back commits that the store had lost.
bool Sequencer::must_restore() {
    const auto & head = membership_.head();
    if (head && restored_ && *restored_ <= head->index && log_.has_all_until(head->index)) {
        restored_.reset();  // nothing is lost
    }
    return restored_.has_value();
}

// The chain continues behind what hosts have put back: the floor is the first commit that leads there, and
// what was written without them is void.
bool Sequencer::adopt_restored() {
    if (!restored_) {
        return false;
    }
    uint64_t   from     = *restored_;
    const bool is_there = log_.retain(from);
    if (is_there && from > log_.floor()) {
        retention_.raise(from);
    }
    restored_.reset();
    return is_there;
}

void Sequencer::advance(const ChainEntry & entry, Time now) {
    membership_.advance(entry.commit, entry.digest, now);
    retention_.commit(entry.commit);
    moved_ = now;
    refused_.clear();
}

// Takes a commit, ours or another writer's.
void Sequencer::take(const ChainEntry & entry, Time now) {
    const auto & head = membership_.head();
    if (head && entry.commit.n_undone == 0 && entry.commit.previous != membership_.head_digest()) {
        restart();
        throw StoreError("another sequencer has replaced the newest commit; reading the chain again"
        );
    }
    advance(entry, now);
    lead_or_follow();
}

bool Sequencer::catch_up(Time now) {
    bool moved = false;
    while (const auto next = log_.read(membership_.open_index())) {
        take(*next, now);
        moved = true;
    }
    return moved;
}

// Another sequencer leads: reads its commits, and takes over when none comes for a long time.
bool Sequencer::follow(Time now) {
    const Millis pace(membership_.head() ? membership_.head()->pace_ms : 0);
    Millis       timeout = std::max(options_.takeover_after, 2 * pace);
    timeout += timeout / kTurns * static_cast<int>(digest64(options_.name) % kTurns);
    if (looked_ && now - *looked_ < timeout / 16) {
        return false;
    }
    looked_ = now;
    try {
        if (catch_up(now)) {
            return false;
        }
    } catch (const BadCommit &) {
        // the sequencer that leads removes it; if none does, we take over
    }
    if (now - moved_ < timeout) {
        return false;
    }
    if (log_.floor() > membership_.open_index()) {  // the chain continues behind a gap
        restart();
        return false;
    }
    state_ = State::leading;
    looked_.reset();
    return true;
}

// Hosts write the settings before they announce themselves. True: they were read just now.
bool Sequencer::look_for_settings() {
    const auto settings = has_settings_ ? std::nullopt : read_settings(store_, keys_);
    if (settings) {
        apply_settings(*settings, options_.membership);
        membership_.set_options(options_.membership);
        has_settings_ = true;
    }
    return settings.has_value();
}

void Sequencer::look_for_presences(Time now) {
    looked_ = now;
    for (const std::string & key : store_.list(paths_.presences())) {
        const auto presence = paths_.parse_presence(key);
        const bool is_new =
            presence && presence->kind == PresenceKey::Kind::restored && !presences_.contains(key);
        if (presence && is_obsolete(*presence) && !is_new) {
            store_.remove(key);
            presences_.erase(key);
        } else {
            take_presence(key, now);
        }
    }
}

void Sequencer::note(const std::string & key, Time now) {
    if (key.starts_with(paths_.presences())) {
        take_presence(key, now);
    }
}

void Sequencer::take_presence(const std::string & key, Time now) {
    if (presences_.contains(key)) {
        return;
    }
    const auto presence = paths_.parse_presence(key);
    const bool is_ahead = presence && presence->kind == PresenceKey::Kind::stuck &&
                          presence->incarnation >= membership_.open_index();
    const auto value = presence && !is_ahead ? store_.get(key) : std::nullopt;
    if (!value) {
        return;
    }
    Author     author;
    const auto body = parse_record(keys_, head_of(*presence), *value, &author);
    if (!body) {
        refuse("presence of " + presence->host);
        return;  // damaged, or made without the key: read again next time
    }
    presences_.insert(key);
    if (presence->kind == PresenceKey::Kind::restored) {
        restored_ = std::max(restored_.value_or(0), presence->incarnation);
        return;
    }
    if (presence->kind != PresenceKey::Kind::removed &&
        !membership_.pin(presence->host, author.key)) {
        refuse("presence of " + presence->host + ", which is the name of another machine");
        return;
    }
    switch (presence->kind) {
        case PresenceKey::Kind::removed:
            membership_.remove(presence->host);
            break;
        case PresenceKey::Kind::hello:
            membership_.hello(presence->host, presence->incarnation, now);
            break;
        case PresenceKey::Kind::leave:
            membership_.leave(presence->host, presence->incarnation);
            break;
        case PresenceKey::Kind::ask:
            membership_.ask(presence->incarnation);
            break;
        case PresenceKey::Kind::stuck: {
            WireReader     in(*body);
            const uint64_t place = in.u64();
            const Key32    head  = in.key();
            const auto     entry = in.at_end() ? log_.find(place) : std::nullopt;
            if (entry && entry->digest == head) {  // else nobody could follow
                membership_.stuck(presence->host, presence->incarnation, place, head, now);
            }
            break;
        }
        case PresenceKey::Kind::restored:
            break;
    }
}

// Commits remember the newest incarnation of every host.
bool Sequencer::is_obsolete(const PresenceKey & presence) const {
    const auto &       head  = membership_.head();
    const CommitHost * known = head ? head->find(presence.host) : nullptr;
    return presence.kind == PresenceKey::Kind::ask ? presence.incarnation < membership_.last_order()
           : presence.kind == PresenceKey::Kind::restored ||
                   presence.kind == PresenceKey::Kind::stuck
               ? head && presence.incarnation < head->index
           : presence.kind == PresenceKey::Kind::removed
               ? known && known->removed
               : known && presence.incarnation < known->incarnation;
}

void Sequencer::look_for_messages(Time now) {
    for (const MessageId & id : membership_.missing()) {
        const auto seen = find_message(id);
        if (!seen) {
            continue;  // missing, damaged or forged: read again next time
        }
        membership_.message(*seen, now);
        if (options_.on_message) {
            options_.on_message(*seen);
        }
    }
}

void Sequencer::refuse(const std::string & what) {
    if (refused_.size() < kMaxHosts && refused_.insert(what).second && options_.on_refusal) {
        options_.on_refusal("refused " + what + ": damaged, forged or made with another key");
    }
}

// A message in the store, or one that a second member holds.
std::optional<SeenMessage> Sequencer::find_message(const MessageId & id) {
    const auto value = store_.get(paths_.message(id));
    const auto about = value ? parse_message_head(keys_.run, id, *value) : std::nullopt;
    if (about && about->signer == membership_.head()->find(id.host)->key &&
        (!keys_.can_read || open_message(keys_, id, *value))) {
        return SeenMessage{id.host,       id.incarnation,    about->head,
                           value->size(), digest256(*value), ""};
    }
    if (value) {
        refuse("message of " + id.host + format(" for round %llu", (unsigned long long) id.index));
    }
    const auto record = options_.direct ? store_.get(paths_.held(id)) : std::nullopt;
    const auto held   = record ? parse_held(keys_, id, *record) : std::nullopt;
    if (record && !held) {
        refuse("held record of a message of " + id.host);
    }
    const CommitHost * host = held ? membership_.head()->find(held->holder.host) : nullptr;
    if (!host || !host->member || host->key != held->holder.key) {
        return std::nullopt;
    }
    return SeenMessage{id.host, id.incarnation, held->head, held->size, held->digest, host->name};
}

void Sequencer::look_for_slices() {
    if (!membership_.order()) {
        return;
    }
    const CheckpointOrder order = *membership_.order();
    for (size_t i = 0; i < order.slices().size(); ++i) {
        if (order.is_ready(i)) {
            continue;
        }
        CheckpointSlice slice = order.slices()[i];
        const auto      value = store_.get(
                 paths_.ready({order.index(), slice.host, slice.incarnation}, static_cast<int>(i))
             );
        const RecordHead head{Kind::ready, order.index(), slice.host, slice.incarnation};
        Author           author;
        const auto       body = value ? parse_record(keys_, head, *value, &author) : std::nullopt;
        if (!body || author.key != membership_.head()->find(slice.host)->key) {
            continue;
        }
        WireReader     in(*body);
        const uint32_t number = in.u32();
        const uint64_t digest = in.u64();
        slice.size            = in.u64();
        slice.n_pieces        = in.u32();
        slice.digest          = in.key();
        if (in.at_end() && number == i && slice.size <= kMaxSize && slice.n_pieces <= kMaxPieces) {
            membership_.slice_ready(i, slice, digest);
        } else {
            refuse("slice of a checkpoint by " + slice.host);
        }
    }
}

bool Sequencer::close(Time now) {
    if (state_ == State::writing) {
        // An earlier put may have succeeded, or may still be under way: put only the same bytes.
        const uint64_t index = membership_.open_index();
        const auto     there = log_.read(index);
        if (!there) {
            store_.put(paths_.commit(index), pending_, true);
        }
        const auto entry = there ? there : log_.read(index);
        if (entry) {
            take(*entry, now);
        }
        return entry.has_value();
    }
    auto commit = membership_.close(now);
    if (!commit || (commit->index == 0 && look_for_settings())) {
        return false;  // the settings were read just now and may require more hosts
    }
    return write(std::move(*commit), now);
}

bool Sequencer::write(Commit commit, Time now) {
    commit.writer = options_.name;
    // A commit that nobody can read would end the run: its key is written once.
    Bytes       value = encode_commit(keys_, commit);
    std::string why;
    if (!parse_commit(keys_, commit.index, value, &why)) {
        refuse("our own " + why);
        return false;
    }
    pending_ = std::move(value);
    state_   = State::writing;
    return close(now);
}

}  // namespace gt
