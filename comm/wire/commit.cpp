// comm/wire/commit.cpp — writes and parses commit records; the byte table is in commit.h.
#include "comm/wire/commit.h"

#include "comm/wire/wire.h"

#include <algorithm>
#include <set>

namespace gt {

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

uint64_t Commit::n_bytes() const {
    uint64_t n = n_shard_bytes;
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

// The fields of each table; as above: to write and to read.
template <class Io, class Start>
static void start_fields(Io & io, Start & c) {
    fields(io, c.step, c.phase, c.previous, c.n_undone, c.pace_ms, c.outputs_pace_ms);
    fields(io, c.state_index, c.state_digest, c.complete_at, c.validator, c.n_shard_bytes);
}
template <class Io, class Host, class Flag>
static void host_fields(Io & io, Host & host, Flag & flag) {
    fields(io, host.name, host.key, host.incarnation, flag, host.since, host.last_listed);
    fields(io, host.history);
}
template <class Io, class Message>
static void message_fields(Io & io, Message & m) {
    fields(io, m.incarnation, m.weight, m.size, m.digest, m.where);
}
template <class Io, class List>
static void list_fields(Io & io, List & list) {
    fields(io, list.index, list.step, list.state_digest, list.head);
}
template <class Io, class Slice>
static void slice_fields(Io & io, Slice & slice) {
    fields(io, slice.host, slice.incarnation, slice.size, slice.n_pieces, slice.digest);
}

Bytes encode_commit(const RunKeys & keys, const Commit & commit) {
    WireWriter out;
    start_fields(out, commit);
    out.u16(commit.hosts.size());
    for (const CommitHost & host : commit.hosts) {
        const uint8_t flag = host.removed ? 2 : host.member ? 1 : 0;
        host_fields(out, host, flag);
    }
    out.u16(commit.messages.size());
    for (const CommitMessage & message : commit.messages) {
        out.u16(place_of(commit, message.host));
        message_fields(out, message);
    }
    write_places(out, commit, commit.diverged);
    write_places(out, commit, commit.writers);
    out.u8(commit.complete ? 1 : 0);
    if (commit.complete) {
        list_fields(out, *commit.complete);
        out.u16(commit.complete->slices.size());
        for (const CheckpointSlice & slice : commit.complete->slices) {
            slice_fields(out, slice);
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
        start_fields(in_, commit_);
        require(commit_.phase <= Phase::outputs, "unknown phase");
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
            uint8_t    flag = 0;
            host_fields(in_, host, flag);
            host.member  = flag == 1;
            host.removed = flag == 2;
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
            next         = place + 1;
            message.host = commit_.hosts[place].name;
            message_fields(in_, message);
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
        list_fields(in_, list);
        require(list.index < commit_.index, "its checkpoint is newer than the commit");
        require(commit_.complete_at == commit_.index, "complete_at is not this commit");
        const size_t n = count(kMaxSlices, "too many checkpoint slices");
        for (size_t i = 0; i < n && in_.ok(); ++i) {
            CheckpointSlice slice;
            slice_fields(in_, slice);
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
    commit.index = index;
    Author     author;
    const auto body = parse_record(keys, {.kind = Kind::commit, .index = index}, value, &author);
    if (!body) {
        return refuse("damaged, from another run or round, or made with another key");
    }
    commit.writer = author.host;
    Parser parser(*body, commit);
    if (!parser.run()) {
        return refuse(parser.why());
    }
    return commit;
}

}  // namespace gt
