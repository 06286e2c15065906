// comm/wire/commit.cpp — writes and parses commit records; the byte table is in commit.h.
#include "comm/wire/commit.h"

#include "comm/wire/wire.h"

#include <algorithm>
#include <set>

namespace gt {

constexpr size_t kMaxWhere = 128;

// Slices have about the same size: a writer that lies about its own changes nothing.
uint64_t CheckpointList::n_bytes() const {
    std::vector<uint64_t> sizes;
    sizes.reserve(slices.size());
    for (const CheckpointSlice & slice : slices) {
        sizes.push_back(slice.size);
    }
    std::sort(sizes.begin(), sizes.end());
    return sizes.empty() ? 0 : sizes.size() * sizes[sizes.size() / 2];
}

uint64_t Commit::n_bytes(uint64_t checkpoint_bytes) const {
    uint64_t n = phase == Phase::outputs ? checkpoint_bytes / 2 : 0;
    for (const CommitMessage & message : messages) {
        n += message.size;
    }
    return n;
}

const CommitHost * Commit::find(const std::string & host) const {
    const auto it = std::find_if(hosts.begin(), hosts.end(), [&](const CommitHost & h) {
        return h.name == host;
    });
    return it == hosts.end() ? nullptr : &*it;
}

const CommitMessage * Commit::message_of(const std::string & host) const {
    const auto it = std::find_if(messages.begin(), messages.end(), [&](const CommitMessage & m) {
        return m.host == host;
    });
    return it == messages.end() ? nullptr : &*it;
}

static uint64_t place_of(const Commit & commit, const std::string & host) {
    const CommitHost * found = commit.find(host);
    GT_CHECK(found, "a commit may only name hosts in its list");
    return static_cast<uint64_t>(found - commit.hosts.data());
}

static void
write_places(WireWriter & out, const Commit & commit, const std::vector<std::string> & names) {
    out.u16(names.size());
    for (const std::string & name : names) {
        out.u16(place_of(commit, name));
    }
}

Bytes encode_commit(const RunKeys & keys, const Commit & commit) {
    WireWriter out;
    out.u64(commit.epoch);
    out.u64(commit.step);
    out.u8(static_cast<uint8_t>(commit.phase));
    out.raw(commit.previous);
    out.u64(commit.n_undone);
    out.u32(commit.pace_ms);
    out.u32(commit.outputs_pace_ms);
    out.u64(commit.state_index);
    out.u64(commit.state_digest);
    out.u64(commit.complete_at);
    out.text(commit.validator);
    out.u16(commit.hosts.size());
    for (const CommitHost & host : commit.hosts) {
        out.text(host.name);
        out.raw(host.key);
        out.u64(host.incarnation);
        out.u8(host.removed ? 2 : host.member ? 1 : 0);
        out.u64(host.since);
        out.u64(host.last_listed);
        out.u8(host.history);
    }
    out.u16(commit.messages.size());
    for (const CommitMessage & message : commit.messages) {
        out.u16(place_of(commit, message.host));
        out.u64(message.incarnation);
        out.u64(message.weight);
        out.u64(message.size);
        out.raw(message.digest);
        out.text(message.where);
    }
    write_places(out, commit, commit.diverged);
    write_places(out, commit, commit.writers);
    out.u8(commit.complete ? 1 : 0);
    if (commit.complete) {
        out.u64(commit.complete->index);
        out.u64(commit.complete->step);
        out.u64(commit.complete->state_digest);
        out.raw(commit.complete->head);
        out.u16(commit.complete->slices.size());
        for (const CheckpointSlice & slice : commit.complete->slices) {
            out.text(slice.host);
            out.u64(slice.incarnation);
            out.u64(slice.size);
            out.u32(slice.n_pieces);
            out.raw(slice.digest);
        }
    }
    GT_CHECK(commit.hosts.size() <= kMaxHosts, "a commit lists at most kMaxHosts hosts");
    return make_record(
        keys, {.kind = Kind::commit, .index = commit.index, .host = commit.writer}, out.bytes()
    );
}

namespace {

// Reads the body; `why` is the first thing that is wrong with it.
class Parser {
public:
    Parser(std::span<const uint8_t> body, Commit & commit) : in_(body), commit_(commit) {}

    bool run() {
        read_start();
        read_hosts();
        read_messages();
        read_places(commit_.diverged, kMaxHosts, true);
        read_places(commit_.writers, kMaxSlices, false);
        read_complete();
        require(in_.at_end(), "truncated, or bytes follow its end");
        return why_.empty();
    }
    const std::string & why() const { return why_; }

private:
    void require(bool good, const char * why) {
        if (why_.empty() && (!good || !in_.ok())) {
            why_ = in_.ok() ? why : "truncated";
        }
        if (!good) {
            in_.fail();
        }
    }

    // A count, checked before anything is allocated.
    size_t count(size_t max, const char * why) {
        const size_t n = in_.u16();
        require(n <= max, why);
        return in_.ok() ? n : 0;
    }

    void read_start() {
        commit_.epoch           = in_.u64();
        commit_.step            = in_.u64();
        const uint8_t phase     = in_.u8();
        commit_.phase           = static_cast<Phase>(phase);
        commit_.previous        = in_.key();
        commit_.n_undone        = in_.u64();
        commit_.pace_ms         = in_.u32();
        commit_.outputs_pace_ms = in_.u32();
        commit_.state_index     = in_.u64();
        commit_.state_digest    = in_.u64();
        commit_.complete_at     = in_.u64();
        commit_.validator       = in_.text(kMaxHostNameSize);
        require(phase <= static_cast<uint8_t>(Phase::outputs), "unknown phase");
        require(
            commit_.n_undone <= commit_.index - std::min<uint64_t>(commit_.index, 1),
            "it undoes more commits than there are"
        );
        require(
            commit_.complete_at == kNone || commit_.complete_at <= commit_.index,
            "its checkpoint is newer than the commit"
        );
    }

    void read_hosts() {
        std::set<std::string> names;
        const size_t          n = count(kMaxHosts, "too many hosts");
        for (size_t i = 0; i < n && in_.ok(); ++i) {
            CommitHost host;
            host.name          = in_.text(kMaxHostNameSize);
            host.key           = in_.key();
            host.incarnation   = in_.u64();
            const uint8_t flag = in_.u8();
            host.member        = flag == 1;
            host.removed       = flag == 2;
            host.since         = in_.u64();
            host.last_listed   = in_.u64();
            host.history       = in_.u8();
            require(flag <= 2, "unknown flag");
            require(valid_host_name(host.name), "invalid host name");
            require(names.insert(host.name).second, "a host is listed twice");
            require(host.since <= commit_.index, "a host joined after this commit");
            require(
                host.last_listed == kNone || host.last_listed <= commit_.index,
                "a host was last listed after this commit"
            );
            commit_.hosts.push_back(std::move(host));
        }
        require(
            commit_.validator.empty() || names.contains(commit_.validator), "unknown validator"
        );
    }

    void read_messages() {
        const size_t n = count(commit_.hosts.size(), "more messages than hosts");
        size_t       next =
            0;  // places are ascending: at most one message per host, in the order of hosts
        for (size_t i = 0; i < n && in_.ok(); ++i) {
            CommitMessage message;
            const size_t  place = in_.u16();
            require(place >= next && place < commit_.hosts.size(), "messages out of order");
            if (!in_.ok()) {
                return;
            }
            next                = place + 1;
            message.host        = commit_.hosts[place].name;
            message.incarnation = in_.u64();
            message.weight      = in_.u64();
            message.size        = in_.u64();
            message.digest      = in_.key();
            message.where       = in_.text(kMaxWhere);
            require(message.weight >= 1 && message.weight <= kMaxWeight, "invalid weight");
            require(message.size <= kMaxSize, "invalid size");
            commit_.messages.push_back(std::move(message));
        }
    }

    void read_places(std::vector<std::string> & names, size_t max, bool unique) {
        const size_t     n = count(max, "list too long");
        std::set<size_t> seen;
        for (size_t i = 0; i < n && in_.ok(); ++i) {
            const size_t place = in_.u16();
            require(place < commit_.hosts.size(), "unknown host");
            require(seen.insert(place).second || !unique, "a host is named twice");
            if (in_.ok()) {
                names.push_back(commit_.hosts[place].name);
            }
        }
    }

    void read_complete() {
        const uint8_t has = in_.u8();
        require(has <= 1, "unknown flag");
        if (has != 1 || !in_.ok()) {
            return;
        }
        CheckpointList list;
        list.index        = in_.u64();
        list.step         = in_.u64();
        list.state_digest = in_.u64();
        list.head         = in_.key();
        require(list.index < commit_.index, "its checkpoint is newer than the commit");
        require(commit_.complete_at == commit_.index, "complete_at is not this commit");
        const size_t n = count(kMaxSlices, "too many checkpoint slices");
        for (size_t i = 0; i < n && in_.ok(); ++i) {
            CheckpointSlice slice;
            slice.host        = in_.text(kMaxHostNameSize);
            slice.incarnation = in_.u64();
            slice.size        = in_.u64();
            slice.n_pieces    = in_.u32();
            slice.digest      = in_.key();
            require(valid_host_name(slice.host), "invalid host name");
            require(slice.size <= kMaxSize && slice.n_pieces <= kMaxPieces, "invalid size");
            list.slices.push_back(std::move(slice));
        }
        commit_.complete = std::move(list);
    }

    WireReader  in_;
    Commit &    commit_;
    std::string why_;
};

}  // namespace

std::optional<Commit> parse_commit(
    const RunKeys & keys, uint64_t index, std::span<const uint8_t> value, std::string * why
) {
    const auto refuse = [&](const std::string & reason) {
        if (why) {
            *why = format("commit %llu: ", static_cast<unsigned long long>(index)) + reason;
        }
        return std::nullopt;
    };
    if (value.size() > kMaxCommitBytes) {
        return refuse("too large");
    }
    Commit commit;
    commit.index    = index;
    const auto body = parse_record(
        keys, {.kind = Kind::commit, .index = index, .host = ""}, value, &commit.writer
    );
    if (!body) {
        return refuse("damaged, from another run or round, or made with another key");
    }
    Parser parser(*body, commit);
    if (!parser.run()) {
        return refuse(parser.why());
    }
    return commit;
}

}  // namespace gt
