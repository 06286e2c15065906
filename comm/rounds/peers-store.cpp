// comm/rounds/peers-store.cpp — see peers-store.h.
#include "comm/rounds/peers-store.h"

#include "comm/rounds/shared-checkpoint.h"

#include <algorithm>
#include <utility>

namespace gt {

constexpr Millis  kJoinPause{100};
constexpr Millis  kStorePause{200};  // after a StoreError
constexpr Millis  kStuckPause{50};   // while a listed message is missing
constexpr Millis  kSlicePause{500};
constexpr int64_t kLogEach_s  = 30;
constexpr size_t  kKeptOrders = 8;

static Time now() {
    return std::chrono::steady_clock::now();
}

StorePeers::StorePeers(Store & store, const RunKeys & keys, const StorePeersOptions & options)
    : store_(store), keys_(keys), options_(options), client_(
                                                         store_,
                                                         keys_,
                                                         {.host       = options.host,
                                                          .lost_after = options.lost_after,
                                                          .n_fetch    = options.n_fetch,
                                                          .observe    = options.observe,
                                                          .restore    = [this] { restore(); },
                                                          .log        = options.log},
                                                         upload()
                                                     ) {
    if (options_.shards) {
        butterfly_.emplace(
            store_, keys_, client_, options_.host, *options_.shards, upload(), options_.lost_after
        );
    }
}

RoundClient::Upload StorePeers::upload() {
    return [this](const std::string & key, Bytes value, uint64_t index) {
        const auto shared = std::make_shared<Bytes>(std::move(value));
        messages_.push({[this, key, shared] { store_.put(key, *shared); }, index});
    };
}

// The store is lost: puts back what the client does not know of.
void StorePeers::restore() {
    if (options_.log) {
        options_.log("the hub or store has lost rounds that we hold; putting them back");
    }
    for (const auto & [key, value] : records_) {
        store_.put(key, value, true);
    }
    if (butterfly_) {
        butterfly_->put_back();
    }
}

void StorePeers::keep_records() {
    const RunPaths paths(keys_.run);
    for (const std::string & key : {paths.settings(), paths.model()}) {
        const auto value = records_.contains(key) ? std::nullopt : store_.get(key);
        if (value) {
            records_[key] = *value;
        }
    }
}

StorePeers::~StorePeers() {
    leave();
}

void StorePeers::pause() {
    leave();
}

// Finishes uploads, unless they fail already, and says goodbye.
void StorePeers::leave() {
    if (ahead_.joinable()) {
        is_leaving_ = true;
        ahead_.join();
        is_leaving_ = false;
    }
    try {
        if (messages_.trouble().empty()) {
            messages_.drain(options_.drain / 4);
            slices_.drain(options_.drain);
        }
        client_.leave();
    } catch (const Error &) {
        // the sequencer will notice our silence
    }
}

namespace {

class Stopped : public Error {
public:
    using Error::Error;
};

}  // namespace

// Throws Stopped if the user wants to stop.
void StorePeers::check_stop(const std::string & for_what) const {
    if (is_leaving_ || (options_.stop && options_.stop())) {
        throw Stopped("stopped while waiting " + for_what);
    }
}

void StorePeers::wait_or_give_up(Time since, const std::string & for_what, Millis pause) {
    check_stop(for_what);
    const auto  waited  = std::chrono::duration_cast<std::chrono::seconds>(now() - since);
    std::string trouble = messages_.trouble();
    trouble             = trouble.empty() ? "" : "; our upload fails: " + trouble;
    if (now() - since > options_.give_up) {
        throw Error(
            format("gave up after waiting %lld s ", static_cast<long long>(waited.count())) +
            for_what + "; check that the hub (or the first host) is up and reachable" + trouble
        );
    }
    const auto n_logged = static_cast<uint64_t>(waited.count() / kLogEach_s);
    if (n_logged > n_logged_ && options_.log) {
        options_.log(format(
            "waiting %s, for %lld s so far%s", for_what.c_str(),
            static_cast<long long>(waited.count()), trouble.c_str()
        ));
    }
    n_logged_ = n_logged;
    std::this_thread::sleep_for(pause);
}

Joined StorePeers::join(std::span<const uint8_t> mark, bool fresh) {
    const Time                        since = now();
    std::optional<RoundClient::Start> start;
    while (!start) {
        try {
            start = client_.try_join(mark, fresh, now());
            if (start) {
                keep_records();
            }
        } catch (const StoreError &) {
            // retry
        } catch (const Displaced & displaced) {
            throw Error(displaced.what());  // there is no state to be saved
        }
        if (!start) {
            if (options_.joining) {
                options_.joining();
            }
            wait_or_give_up(
                since,
                client_.lacks_checkpoint() ? "for a shared checkpoint that can be loaded (if no "
                                             "host trains any more, start "
                                             "a new run from an export of one: hub --new)"
                                           : "to join the run",
                kJoinPause
            );
        }
    }
    if (butterfly_) {
        butterfly_->reset();
    }
    messages_.restart(client_.newest());
    slices_.closed(kNone - 1);  // slices of a state that we do not have any more
    slices_.restart(0);
    newest_order_ = 0;
    place_.clear();
    orders_[kNone] = 0;
    joined_        = start->checkpoint.value_or(CheckpointList{});
    return {
        .step         = start->step + 1,  // kNone + 1 = 0
        .n_slices     = static_cast<int>(joined_.slices.size()),
        .state_digest = joined_.state_digest,
        .in_flight    = client_.steps_in_flight(),
        .write        = slice_order(start->writers)};
}

std::optional<Bytes> StorePeers::slice(int i) {
    std::optional<Time> failing_since;
    while (true) {
        try {
            if (failing_since && client_.is_removed(joined_.index)) {
                return std::nullopt;
            }
            return read_slice(store_, keys_, joined_, i);
        } catch (const StoreError & error) {
            failing_since = failing_since.value_or(now());
            wait_or_give_up(
                *failing_since, std::string("for a slice: ") + error.what(), kSlicePause
            );
        }
        if (now() - *failing_since > options_.slice_timeout) {
            client_.distrust(joined_.index);
            return std::nullopt;
        }
    }
}

// True: a round has closed without a message of ours, or, with `admission`, the run has not admitted us
// yet.
bool StorePeers::is_behind(bool admission) {
    const Time since = now();
    while (true) {
        try {
            const uint64_t n = client_.n_behind(now());
            messages_.closed(client_.newest());
            return n > 0 && (admission || client_.newest() >= client_.next_index());
        } catch (const StoreError &) {
            wait_or_give_up(since, "for the store", kStorePause);
        }
    }
}

std::optional<Collected> StorePeers::missed(bool admission) {
    if (ahead_.joinable() || found_) {
        return std::nullopt;
    }
    try {
        if (!is_behind(admission)) {
            go_ahead();
            return std::nullopt;
        }
        check_stop("for a round");  // rounds that are there are replayed without waiting
        return collect_here();
    } catch (const Stopped &) {
        return Collected{.is_stopped = true};
    }
}

void StorePeers::publish(uint64_t step, uint64_t n_samples, Bytes message) {
    if (butterfly_) {
        butterfly_->publish(step, n_samples, message);
    } else {
        client_.publish(step, Phase::single, n_samples, message);
    }
    go_ahead();
}

// Begins to collect the round of our message in flight, if there is one.
void StorePeers::go_ahead() {
    if (!options_.ahead || ahead_.joinable() || client_.n_in_flight() == 0) {
        return;
    }
    place_ = mark();
    ahead_ = std::thread([this] {
        try {
            found_    = collect_next();
            found_at_ = now();
        } catch (const Stopped &) {
            // collect() continues, or stops
        } catch (...) {
            failed_ = std::current_exception();
        }
    });
}

OpenedRound StorePeers::next() {
    const Time since = now();
    while (true) {
        bool is_bad = false;
        try {
            if (auto opened = client_.try_next(options_.poll, now())) {
                messages_.closed(client_.index());
                return std::move(*opened);
            }
        } catch (const StoreError &) {
            is_bad = true;
        }
        messages_.closed(client_.newest());
        wait_or_give_up(
            since,
            format(
                "for the commit of round %llu", static_cast<unsigned long long>(client_.index() + 1)
            ),
            is_bad                                               ? kStorePause
            : client_.standing() == RoundClient::Standing::stuck ? kStuckPause
                                                                 : Millis(0)
        );
    }
}

Collected StorePeers::collect(uint64_t) {
    if (ahead_.joinable()) {
        ahead_.join();
    }
    if (failed_) {
        std::rethrow_exception(std::exchange(failed_, nullptr));
    }
    if (found_) {
        Collected out  = std::move(*found_);
        out.info.age_s = std::chrono::duration<double>(now() - found_at_).count();
        found_.reset();
        place_.clear();
        return out;
    }
    try {
        return collect_here();
    } catch (const Stopped &) {
        return Collected{.is_stopped = true};
    }
}

// On the caller's thread. If that stops, place_ stays: what of the round was done is done again.
Collected StorePeers::collect_here() {
    place_        = mark();
    Collected out = collect_next();
    place_.clear();
    return out;
}

// The next round of the chain. In shares, one is complete after several commits.
Collected StorePeers::collect_next() {
    while (true) {
        OpenedRound opened = next();
        if (butterfly_ && opened.fault != Fault::none) {
            butterfly_->abandon(opened);
        }
        if (!butterfly_ || opened.fault != Fault::none || opened.is_settled_only) {
            return to_collected(std::move(opened));
        }
        if (auto whole = butterfly_->take(std::move(opened))) {
            return to_collected(std::move(*whole));
        }
    }
}

static const char * name_of(Fault fault) {
    switch (fault) {
        case Fault::diverged:
            return "our state differs from the other hosts'";
        case Fault::forked:
            return "the run has another history than ours";
        case Fault::expired:
            return "rounds that we miss have been removed";
        default:
            return "";
    }
}

static HostReport report_of(const OpenedRound & opened, const CommitHost & host) {
    HostReport report{.name = host.name, .is_member = host.member};
    const auto head = opened.heads.find(host.name);
    if (const CommitMessage * message = opened.commit.message_of(host.name)) {
        report.in      = true;
        report.samples = message->weight;
    }
    if (head != opened.heads.end()) {
        report.loss       = head->second.loss;
        report.tokens_s   = head->second.tokens_s;
        report.up_bytes   = head->second.up_bytes;
        report.down_bytes = head->second.down_bytes;
    }
    return report;
}

Collected StorePeers::to_collected(OpenedRound opened) {
    const Commit & commit = opened.commit;
    Collected      out;
    out.round.step     = commit.step;
    out.round.has_mine = opened.has_mine;
    out.round.mine     = opened.mine;
    out.fault          = opened.fault;
    out.drop_residual  = opened.drop_residual;
    if (out.fault != Fault::none && options_.log) {
        options_.log(format(
            "%s after round %llu; joining the run again", name_of(out.fault),
            static_cast<unsigned long long>(client_.index())
        ));
    }
    if (out.fault != Fault::none || opened.is_settled_only) {
        return out;
    }
    out.round.messages  = std::move(opened.messages);
    out.round.in_shares = opened.in_shares;
    out.info.validate   = commit.validator == options_.host;
    out.info.pace_s     = commit.pace_ms / 1000.0;
    for (const CommitHost & host : commit.hosts) {
        const bool was_member = host.member && host.since < commit.index;  // before it closed
        if (commit.message_of(host.name)) {
            out.info.in.push_back(host.name);
        } else if (was_member) {
            out.info.late.push_back(host.name);
        }
        out.info.hosts.push_back(report_of(opened, host));
    }
    out.info.up_bytes   = client_.up_bytes();
    out.info.down_bytes = client_.down_bytes();
    out.slices          = slice_order(commit.writers);
    if (out.slices.n_slices > 0) {
        newest_order_ = commit.index;
        slices_.closed(commit.index - 1);
        orders_[commit.step] = commit.index;
        while (orders_.size() > kKeptOrders) {
            orders_.erase(orders_.begin());
        }
    }
    return out;
}

// The slices that we write, if the i-th of `writers` writes slice i.
SliceOrder StorePeers::slice_order(const std::vector<std::string> & writers) const {
    SliceOrder order{.ours = {}, .n_slices = static_cast<int>(writers.size())};
    for (int i = 0; i < order.n_slices; ++i) {
        if (writers[static_cast<size_t>(i)] == options_.host) {
            order.ours.push_back(i);
        }
    }
    return order;
}

void StorePeers::applied(Applied applied) {
    if (applied.state_digest != 0) {
        client_.report(applied);  // first: slices carry the digest of the state they are cut from
    }
    for (Applied::Slice & slice : applied.slices) {
        put_slice(applied.step, std::move(slice));
    }
}

void StorePeers::put_slice(uint64_t step, Applied::Slice slice) {
    const auto order = orders_.find(step);
    GT_CHECK(order != orders_.end(), "slices are written only where a SliceOrder asks for them");
    const SliceId  id{order->second, slice.index, options_.host, client_.incarnation()};
    const uint64_t digest = client_.state_index() == id.index ? client_.state_digest() : 0;
    const auto     writer =
        std::make_shared<SliceWriter>(store_, keys_, id, digest, std::move(slice.bytes));
    const auto write = [this, writer, index = id.index] {
        while (newest_order_ <= index) {
            if (!writer->step()) {
                return;
            }
        }
    };
    slices_.push({write, id.index > 0 ? id.index : kNone});
}

}  // namespace gt
