// tools/inspect/inspect-frame.cpp — values of a store: commits, messages, records; see inspect.h.
#include "comm/run/hosts.h"
#include "comm/wire/commit.h"
#include "ggml-train/base/file.h"
#include "tools/inspect/inspect.h"

#include <algorithm>

namespace gt {

namespace {

std::string kind_text(uint8_t kind) {
    static const char * const names[] = {"unknown",  "message",
                                         "commit",   "presence",
                                         "unknown",  "piece of a shared checkpoint",
                                         "ready",    "unknown",
                                         "floor",    "shard of an exchange",
                                         "settings", "model",
                                         "held"};
    return kind < std::size(names) ? names[kind] : names[0];
}

std::string number_text(uint64_t n) {
    return n == kNone ? "none" : std::to_string(n);
}

std::string phase_text(Phase phase) {
    static const char * const names[] = {
        "single update", "inputs of an exchange in shares", "outputs of an exchange in shares"};
    return names[static_cast<size_t>(phase)];
}

// The first 8 of 32 bytes.
std::string short_text(const Key32 & digest) {
    std::string text;
    for (size_t i = 0; i < 8; ++i) {
        text += format("%02x", digest[i]);
    }
    return text + "...";
}

std::string state_text(uint64_t digest, uint64_t index) {
    return digest == 0 ? "unknown" : digest_text(digest) + " after round " + number_text(index);
}

// The first item's row has the name; the others are below it.
void print_list(const std::string & name, const std::vector<std::string> & items) {
    print_row(name, std::to_string(items.size()));
    for (const std::string & item : items) {
        print_row("", item);
    }
}

std::string host_text(const CommitHost & host) {
    return format(
               "%-16s  incarnation %llu, %s since round %llu, last listed in round ",
               host.name.c_str(), static_cast<unsigned long long>(host.incarnation),
               host.member ? "member" : "not a member", static_cast<unsigned long long>(host.since)
           ) +
           number_text(host.last_listed);
}

std::string message_text(const CommitMessage & message) {
    return format(
        "%-16s  incarnation %llu, weight %llu, %llu bytes, digest %s, %s", message.host.c_str(),
        static_cast<unsigned long long>(message.incarnation),
        static_cast<unsigned long long>(message.weight),
        static_cast<unsigned long long>(message.size), short_text(message.digest).c_str(),
        message.where.empty() ? "in the store" : ("held by " + message.where).c_str()
    );
}

std::string slice_text(const CheckpointSlice & slice) {
    return format(
        "%-16s  incarnation %llu, %llu bytes in %u pieces, digest %s", slice.host.c_str(),
        static_cast<unsigned long long>(slice.incarnation),
        static_cast<unsigned long long>(slice.size), slice.n_pieces,
        short_text(slice.digest).c_str()
    );
}

template <class Item>
std::vector<std::string>
texts_of(const std::vector<Item> & items, std::string (*text)(const Item & item)) {
    std::vector<std::string> texts;
    std::transform(items.begin(), items.end(), std::back_inserter(texts), text);
    return texts;
}

void print_commit(const Commit & commit) {
    print_row("undone", std::to_string(commit.n_undone) + " commits before it");
    print_row("step", number_text(commit.step));
    print_row("phase", phase_text(commit.phase));
    print_row("previous", short_text(commit.previous));
    print_row("pace", std::to_string(commit.pace_ms) + " ms per message");
    print_row("state", state_text(commit.state_digest, commit.state_index));
    print_row("validator", commit.validator.empty() ? "none" : commit.validator);
    print_list("hosts", texts_of(commit.hosts, host_text));
    print_list("messages", texts_of(commit.messages, message_text));
    print_list("diverged", commit.diverged);
    print_list("writers", commit.writers);
    print_row(
        "checkpoint", "the last complete one is listed in round " + number_text(commit.complete_at)
    );
    if (commit.complete) {
        print_row(
            "complete", "step " + number_text(commit.complete->step) + ", state " +
                            state_text(commit.complete->state_digest, commit.complete->index)
        );
        print_list("slices", texts_of(commit.complete->slices, slice_text));
    }
}

void print_message_head(const MessageHead & head) {
    print_row("step", number_text(head.step));
    print_row("phase", phase_text(head.phase));
    print_row("weight", std::to_string(head.weight) + " samples");
    print_row("base", "commit " + short_text(head.base));
    print_row("state", state_text(head.state_digest, head.state_index));
    print_row("body", size_text(head.n_body_bytes));
    print_row("loss", format("%.4f", static_cast<double>(head.loss)));
    print_row("tokens/s", format("%.1f", static_cast<double>(head.tokens_s)));
    print_row("waited", format("%.2f s", static_cast<double>(head.waited_s)));
    print_row("sent", size_text(head.up_bytes));
    print_row("received", size_text(head.down_bytes));
}

[[noreturn]] void not_authentic(const std::string & path, const std::string & why) {
    throw Error(path + ": not authentic: " + why + "; it is not part of the run");
}

// A frame whose signature is right, with its file and, if known, the run's keys.
struct Value {
    const std::string &      path;
    std::span<const uint8_t> bytes;
    Frame                    frame;
    const RunKeys *          keys = nullptr;

    Kind kind() const { return static_cast<Kind>(frame.kind); }
};

void print_message(const Value & value) {
    const Frame &   frame = value.frame;
    const MessageId id    = {frame.round, frame.host, frame.incarnation};
    const auto      head  = parse_message_head(frame.run, id, value.bytes);
    if (!head) {
        throw Error(value.path + ": a frame of a message, but its head is invalid");
    }
    print_message_head(head->head);
    if (value.keys == nullptr) {
        print_row("seal", "not checked: --nodes hosts.txt gives the run's key");
    } else if (!value.keys->can_read) {
        print_row("seal", "not checked: a hub-key can't open messages");
    } else if (open_message(*value.keys, id, value.bytes)) {
        print_row("seal", "opens with the run's key");
    } else {
        not_authentic(value.path, "the run's key does not open it");
    }
}

void print_record(const Value & value) {
    const Frame & frame = value.frame;
    if (value.keys == nullptr) {
        print_row("content", "not shown: --nodes hosts.txt gives the run's key");
        return;
    }
    if (value.kind() == Kind::commit) {
        std::string why;
        const auto  commit = parse_commit(*value.keys, frame.round, value.bytes, &why);
        return commit ? print_commit(*commit) : not_authentic(value.path, why);
    }
    const auto body = parse_record(
        *value.keys, {value.kind(), frame.round, frame.host, frame.incarnation}, value.bytes
    );
    if (!body) {
        not_authentic(value.path, "its tag was not made with the run's key");
    }
    print_row("tag", "made with the run's key");
    print_row("body", size_text(body->size()));
}

}  // namespace

void inspect_frame(const std::string & path, const std::string & hosts_txt) {
    const MappedFile file(path);
    std::string      why;
    const auto       frame = parse_frame(file.bytes(), &why);
    if (!frame) {
        throw Error(path + ": a damaged value of a store: " + why);
    }
    const RunKeys keys = hosts_txt.empty() ? RunKeys{} : read_hosts(hosts_txt).keys;
    if (!hosts_txt.empty() && keys.run != frame->run) {
        throw Error(
            path + ": of run " + digest_text(frame->run) + ", " + hosts_txt + " is of run " +
            digest_text(keys.run) + "; give the hosts.txt of that run"
        );
    }
    print_row("kind", kind_text(frame->kind) + " (value of a store)");
    print_row("run", digest_text(frame->run));
    print_row("round", std::to_string(frame->round));
    print_row("host", frame->host);
    print_row("incarnation", std::to_string(frame->incarnation));
    print_row("machine", "key " + short_text(frame->signer));
    print_row("payload", size_text(frame->payload.size()));

    const Value value = {path, file.bytes(), *frame, hosts_txt.empty() ? nullptr : &keys};
    switch (value.kind()) {
        case Kind::message:
            return print_message(value);
        case Kind::piece:
        case Kind::shard:
            return print_row("content", "sealed; only its position in the run can open it");
        default:
            return print_record(value);
    }
}

}  // namespace gt
