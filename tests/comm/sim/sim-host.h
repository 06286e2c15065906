// tests/comm/sim/sim-host.h — a simulated host with virtual time and faults by seed, and the ledger of the run.
//
// Every host runs the real RoundClient over one memory store; its "training" is a ledger. A gradient
// is a unique number. A number stays in a host's residual until a commit lists a message that carries
// it. The shared state is a digest of everything applied. So the ledger detects hosts that apply
// different messages, a message that is applied twice, and a settled message that is lost.
#pragma once

#include "comm/rounds/round-client.h"
#include "comm/rounds/shared-checkpoint.h"
#include "comm/sequencer/sequencer.h"
#include "comm/wire/wire.h"
#include "tests/catch.h"
#include "tests/comm/sim/sim-stores.h"
#include "tests/fake/flaky-store.h"
#include "tests/fake/store-memory.h"

#include <map>
#include <set>

namespace gt::sim {

// What is true of the whole run.
struct Ledger {
    std::map<uint64_t, uint64_t>                               states;   // by index
    std::map<uint64_t, std::vector<uint64_t>>                  applied;  // numbers, by index
    std::map<uint64_t, uint64_t>                               spent;    // number -> index
    std::map<std::tuple<std::string, uint64_t, uint64_t>, int> settled;  // host, step, incarnation
    uint64_t n_gradients = 0, n_late = 0, n_crashes = 0, n_faults = 0, n_loads = 0, n_dropped = 0,
             n_undone = 0;

    bool is_strict = true;  // off if the test makes commits lose

    // Rounds after `index` are lost: nobody has saved them.
    void forget_after(uint64_t index) {
        states.erase(states.upper_bound(index), states.end());
        std::erase_if(spent, [&](const auto & one) { return one.second > index; });
    }

    void apply(uint64_t index, uint64_t state, const std::vector<uint64_t> & numbers) {
        if (!is_strict) {
            states[index] = state;
            return;
        }
        const auto known = states.try_emplace(index, state);
        REQUIRE(known.first->second == state);  // all hosts have the same state at an index
        if (known.second) {
            applied[index] = numbers;
            for (const uint64_t number : numbers) {
                REQUIRE(spent.try_emplace(number, index).second);  // nothing is applied twice
            }
        }
    }
};

// A host's own checkpoint.
struct Disk {
    Bytes                                     mark;
    uint64_t                                  state = 0, step = 0;
    std::vector<uint64_t>                     residual;
    std::map<uint64_t, std::vector<uint64_t>> in_flight;  // by step
};

struct Options {
    uint64_t          seed      = 1;
    int               n_hosts   = 4;
    int               overlap   = 0;
    bool              elected   = false;  // every host has a sequencer; else a hub
    double            p_crash   = 0;      // per operation
    double            p_drop    = 0;
    double            p_corrupt = 0;
    Millis            takeover{3000};
    MembershipOptions membership = {
        .min_hosts        = 2,
        .first_deadline   = Millis(4000),
        .min_deadline     = Millis(200),
        .gone_after       = Millis(8000),
        .checkpoint_every = 10};
};

// What a host has still to upload.
struct Put {
    std::string key;
    Bytes       value;
    uint64_t    index;
};
struct Part {
    SliceId  id;
    uint64_t digest;
    Bytes    bytes;
};

class Host {
public:
    Host(
        Store &         disk,
        const RunKeys & keys,
        const Options & options,
        std::string     name,
        Ledger &        ledger
    )
        : memory_(disk), keys_(keys), options_(options), name_(std::move(name)), ledger_(ledger) {}

    Millis   compute{100}, apply{0};      // of a gradient, of a round
    uint64_t part_rounds = 0;             // a checkpoint is written this many rounds late
    uint64_t skew        = 0;             // added to the state after every round: a broken machine
    bool     is_new_     = false;         // without the initial weights
    uint64_t first_index = 0;             // where it joined last
    uint64_t saved_index = 0;             // of its own checkpoint
    bool     hold = false, is_on = true;  // suspended; off: stopped, restarts from its disk

    void turn(Time now) {
        if (!is_on || hold || now < asleep_until_) {
            return;
        }
        try {
            if (!client_) {
                start();
            }
            try {
                work(now);
            } catch (const StoreError &) {  // retry; the sequencer has a thread of its own
            }
            if (sequencer_) {
                sequencer_->poll(now);
            }
        } catch (const StoreError &) {
            // retry
        } catch (const Crash &) {
            ++ledger_.n_crashes;
            stop();
            asleep_until_ = now + Millis(random_bits(options_.seed, 77, ++n_starts_) % 3000);
        }
    }
    void stop() {
        hold = false;
        client_.reset();
        sequencer_.reset();
    }
    void leave() {
        client_->leave();
        is_on = false;
        stop();
    }
    void set_faults(bool on) { faults_ = on; }
    void corrupt_state() { state_ ^= 1; }
    void forget_saved() { disk_ = {}; }

    uint64_t index() const { return client_ && is_in_ ? client_->index() : 0; }
    uint64_t state() const { return state_; }
    uint64_t n_listed = 0, n_left_out = 0;
    Fault    last_fault = Fault::none;
    size_t   n_parts() const { return parts_.size(); }
    bool     has_joined() const { return client_ && is_in_; }

private:
    void start() {
        const uint64_t seed = random_bits(options_.seed, digest64(name_), ++n_starts_);
        crashing_           = std::make_unique<CrashingStore>(memory_, seed);
        crashing_->p_crash  = faults_ ? options_.p_crash : 0;
        flaky_              = std::make_unique<FlakyStore>(
            *crashing_,
            FlakyOptions{
                             .seed      = seed,
                             .p_drop    = faults_ ? options_.p_drop : 0,
                             .p_repeat  = faults_ ? options_.p_drop : 0,
                             .p_delay   = 0,
                             .p_corrupt = faults_ ? options_.p_corrupt : 0}
        );
        uploads_.clear();
        start_.reset();
        client_ = std::make_unique<RoundClient>(
            *flaky_, keys_,
            RoundClientOptions{
                .host        = name_,
                .lost_after  = Millis(2000),
                .ask_timeout = Millis(3000),
                .n_fetch     = 1},
            [this](const std::string & key, Bytes value, uint64_t index) {
                uploads_.push_back({key, std::move(value), index});
            }
        );
        if (options_.elected) {
            SequencerOptions options;
            options.name           = name_;
            options.elected        = true;
            options.membership     = options_.membership;
            options.presence_poll  = Millis(100);
            options.takeover_after = options_.takeover;
            sequencer_             = std::make_unique<Sequencer>(*flaky_, keys_, options);
        }
        state_     = disk_.state;
        step_      = disk_.step;
        residual_  = disk_.residual;
        in_flight_ = disk_.in_flight;
        is_in_     = false;
        is_rejoin_ = false;
        parts_.clear();
        done_at_.reset();
    }

    void join(Time now) {
        const Bytes mark = is_rejoin_ ? Bytes() : disk_.mark;
        if (start_ && now - started_at_ > Millis(3'000)) {
            client_->distrust(start_->index);
            start_.reset();
        }
        if (!start_) {
            start_      = client_->try_join(mark, !is_rejoin_ && !is_new_, now);
            started_at_ = now;
        }
        if (!start_) {
            return;
        }
        if (start_->checkpoint) {
            Bytes all;
            for (size_t i = 0; i < start_->checkpoint->slices.size(); ++i) {
                const Bytes part = read_slice(*flaky_, keys_, *start_->checkpoint, int(i));
                all              = part;  // each slice of this small state is the whole state
            }
            WireReader in(all);
            state_ = in.u64();
            step_  = in.u64();
            REQUIRE(in.at_end());
            REQUIRE((!ledger_.is_strict || ledger_.states.at(start_->index) == state_));
            ++ledger_.n_loads;
        } else if (start_->index == 0) {
            state_ = 0;
            step_  = 0;
        }
        first_index = start_->index;
        tells_ledger ? ledger_.apply(start_->index, state_, {}) : void();
        give_parts(start_->writers, 0);
        start_.reset();
        is_in_     = true;
        is_rejoin_ = false;
    }

    void give_parts(const std::vector<std::string> & writers, uint64_t index) {
        if (!writers.empty()) {
            parts_.clear();  // of an older order
        }
        for (size_t i = 0; i < writers.size(); ++i) {
            if (writers[i] == name_) {
                WireWriter out;
                out.u64(state_);
                out.u64(step_);
                parts_.push_back(
                    {{index, int(i), name_, client_->incarnation()}, state_, out.take()}
                );
            }
        }
    }

    void send() {
        while (!uploads_.empty()) {
            flaky_->put(uploads_.front().key, uploads_.front().value, false);
            uploads_.erase(uploads_.begin());
        }
        while (!parts_.empty() && client_->index() >= parts_.front().id.index + part_rounds) {
            const Part & part = parts_.front();
            SliceWriter  writer(*flaky_, keys_, part.id, part.digest, part.bytes);
            while (writer.step()) {
            }
            parts_.erase(parts_.begin());
        }
    }

    void work(Time now) {
        if (!is_in_) {
            join(now);
            return;
        }
        send();
        if (is_collecting_) {
            if (!collect(now)) {
                return;
            }
            is_collecting_ = is_in_ && in_flight_.size() > size_t(options_.overlap);
            return;
        }
        if (!done_at_) {
            done_at_ = now + compute;
        }
        if (now < *done_at_) {
            return;
        }
        if (client_->n_behind(now) > 0) {
            collect(now);
            return;
        }
        done_at_.reset();
        residual_.push_back(++ledger_.n_gradients);
        WireWriter body;
        for (const uint64_t number : residual_) {
            body.u64(number);
        }
        in_flight_[step_] = residual_;
        residual_.clear();
        client_->publish(
            step_, Phase::single, 1 + random_bits(options_.seed, step_) % 7, body.bytes()
        );
        ++step_;
        is_collecting_ = in_flight_.size() > size_t(options_.overlap);
    }

    bool collect(Time now) {
        auto round = client_->try_next({}, now);
        if (!round) {
            return false;
        }
        finish(*round);
        asleep_until_ = now + apply;
        return true;
    }

    void finish(const OpenedRound & round) {
        const Commit & commit = round.commit;
        // the message of ours that this round settles, if any
        if (!round.has_mine) {
            REQUIRE(!in_flight_.empty());
            ++n_left_out;
            ++ledger_.n_late;
            const auto sent = in_flight_.begin();
            residual_.insert(residual_.end(), sent->second.begin(), sent->second.end());
            in_flight_.erase(sent);
        } else if (in_flight_.size() > client_->n_in_flight()) {
            ++n_listed;
            in_flight_.erase(in_flight_.begin());
        }
        REQUIRE(in_flight_.size() == client_->n_in_flight());
        if (round.drop_residual) {
            ++ledger_.n_dropped;
            residual_.clear();
        }
        if (round.fault != Fault::none) {
            last_fault = round.fault;
            ++ledger_.n_faults;
            is_in_     = false;
            is_rejoin_ = true;
            start_.reset();
            return;
        }
        if (round.is_settled_only) {
            return;
        }
        std::vector<uint64_t> numbers;
        for (const Message & message : round.messages) {
            state_ = digest64(message.bytes, state_ ^ digest64(message.host) ^ message.weight);
            WireReader in(message.bytes);
            while (in.ok() && !in.at_end()) {
                numbers.push_back(in.u64());
            }
        }
        state_ ^= skew;
        if (tells_ledger) {
            ledger_.apply(commit.index, state_, numbers);
        }
        step_ = std::max(step_, commit.step + 1);
        client_->report({.step = commit.step, .state_digest = state_});
        give_parts(commit.writers, commit.index);
        if (random_bits(options_.seed, commit.index, digest64(name_)) % 4 == 0) {
            disk_       = {client_->mark(), state_, step_, residual_, in_flight_};
            saved_index = commit.index;
        }
    }

public:
    bool tells_ledger = true;  // off for a host that is made to diverge, or begins another run

private:
    Store &         memory_;
    RunKeys         keys_;
    const Options & options_;
    std::string     name_;
    Ledger &        ledger_;
    Disk            disk_;
    bool            faults_ = true;

    std::unique_ptr<CrashingStore>            crashing_;
    std::unique_ptr<FlakyStore>               flaky_;
    std::unique_ptr<RoundClient>              client_;
    std::unique_ptr<Sequencer>                sequencer_;
    std::vector<Put>                          uploads_;
    std::vector<Part>                         parts_;
    std::optional<RoundClient::Start>         start_;
    uint64_t                                  state_ = 0, step_ = 0, n_starts_ = 0;
    std::vector<uint64_t>                     residual_;
    std::map<uint64_t, std::vector<uint64_t>> in_flight_;
    bool                is_in_ = false, is_rejoin_ = false, is_collecting_ = false;
    std::optional<Time> done_at_;
    Time                asleep_until_{}, started_at_{};
};

}  // namespace gt::sim
