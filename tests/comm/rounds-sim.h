// tests/comm/rounds-sim.h — many hosts in one process, with virtual time, faults by seed and a ledger.
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
#include "tests/comm/sim-stores.h"
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
             n_revised = 0;

    bool is_strict = true;  // off if the test makes commits lose

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

    Millis compute{100};
    bool   hold  = false;  // suspended
    bool   is_on = true;   // off: stopped; restarts from its disk

    void turn(Time now) {
        if (!is_on || hold || now < asleep_until_) {
            return;
        }
        try {
            if (!client_) {
                start();
            }
            work(now);
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

    uint64_t index() const { return client_ && is_in_ ? client_->index() : 0; }
    uint64_t state() const { return state_; }
    uint64_t n_listed = 0, n_left_out = 0;
    Fault    last_fault = Fault::none;
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
            RoundClientOptions{.host = name_, .lost_after = Millis(2000), .n_fetch = 1},
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
            options.lost_after     = Millis(3000);
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

    void join() {
        const Bytes mark = is_rejoin_ ? Bytes() : disk_.mark;
        if (!start_) {
            start_ = client_->try_join(mark, !is_rejoin_);
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
        ledger_.apply(start_->index, state_, {});
        give_parts(start_->writers, 0);
        start_.reset();
        is_in_     = true;
        is_rejoin_ = false;
    }

    void give_parts(const std::vector<std::string> & writers, uint64_t index) {
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
        while (!parts_.empty()) {
            write_slice(
                *flaky_, keys_, parts_.front().id, parts_.front().digest, parts_.front().bytes
            );
            parts_.erase(parts_.begin());
        }
    }

    void work(Time now) {
        if (!is_in_) {
            join();
            return;
        }
        send();
        if (is_collecting_) {
            if (!collect(now)) {
                return;
            }
            is_collecting_ = in_flight_.size() > size_t(options_.overlap);
            if (!is_in_) {
                is_collecting_ = false;
            }
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
        // the gradient is there, and we are up to date: publish
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
        return true;
    }

    void finish(const OpenedRound & round) {
        const Commit & commit = round.commit;
        if (round.fault != Fault::none) {
            last_fault = round.fault;
            ++ledger_.n_faults;
        }
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
        if (state_told_ok_) {
            ledger_.apply(commit.index, state_, numbers);
        }
        step_ = std::max(step_, commit.step + 1);
        client_->report({.step = commit.step, .state_digest = state_});
        give_parts(commit.writers, commit.index);
        if (random_bits(options_.seed, commit.index, digest64(name_)) % 4 == 0) {
            disk_ = {client_->mark(), state_, step_, residual_, in_flight_};
        }
    }

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

public:
    bool state_told_ok_ = true;  // off for a host that is made to diverge

private:
    Store &         memory_;
    const RunKeys & keys_;
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
    Time                asleep_until_{};
};

class World {
public:
    explicit World(const Options & options) : options_(options), memory_(make_memory_store()) {
        Key32 secret{};
        secret[0] = uint8_t(options.seed);
        keys_     = keys_from_secret(secret);
        for (int i = 0; i < options.n_hosts; ++i) {
            add();
        }
    }

    Host & add() {
        hosts.push_back(std::make_unique<Host>(
            *memory_, keys_, options_, format("host%zu", hosts.size()), ledger
        ));
        return *hosts.back();
    }

    void run(Millis time) {
        for (const Time end = now_ + time; now_ < end; now_ += Millis(10)) {
            if (!options_.elected) {
                run_hub();
            }
            const size_t first =
                random_bits(options_.seed, uint64_t(now_.time_since_epoch().count()));
            for (size_t i = 0; i < hosts.size(); ++i) {
                hosts[(first + i) % hosts.size()]->turn(now_);
            }
        }
    }

    // Turns faults off and runs until every active host has reached `index`.
    bool settle(uint64_t index, Millis timeout = Millis(120'000)) {
        set_faults(false);
        for (const Time end = now_ + timeout; now_ < end;) {
            run(Millis(50));
            bool good = true;
            for (const auto & host : hosts) {
                good = good && (!host->is_on || (host->has_joined() && host->index() >= index &&
                                                 host->last_fault == Fault::none));
                host->last_fault = Fault::none;
            }
            if (good) {
                return true;
            }
        }
        return false;
    }

    void set_faults(bool on) {
        faults_ = on;
        for (const auto & host : hosts) {
            host->set_faults(on);
            host->stop();  // a restart: its stores are made again, without faults
        }
        hub_.reset();
    }

    Time            now() const { return now_; }
    Store &         store() { return *memory_; }
    const RunKeys & keys() const { return keys_; }
    bool            hub_is_on = true;
    void            stop_hub() { hub_.reset(); }

    std::vector<std::unique_ptr<Host>> hosts;
    Ledger                             ledger;
    std::string lose_next_of;  // its next listed message is removed; host1 is then suspended

private:
    void run_hub() {
        if (!hub_is_on) {
            return;
        }
        try {
            if (!hub_) {
                const uint64_t seed = random_bits(options_.seed, 991, ++n_hubs_);
                hub_store_          = std::make_unique<CrashingStore>(*memory_, seed);
                hub_store_->p_crash = faults_ ? options_.p_crash : 0;
                SequencerOptions options;
                options.membership    = options_.membership;
                options.presence_poll = Millis(20);
                options.lost_after    = Millis(3000);
                hub_ = std::make_unique<Sequencer>(*hub_store_, hub_keys(), options);
            }
            if (!hub_->poll(now_)) {
                return;
            }
            const Commit & commit = *hub_->head();
            ledger.n_revised += commit.revision > 0 ? 1 : 0;
            if (!lose_next_of.empty()) {
                if (const CommitMessage * message = commit.message_of(lose_next_of)) {
                    const RunPaths paths(keys_.run);
                    memory_->remove(paths.message(commit.index, message->host, message->incarnation)
                    );
                    lose_next_of.clear();
                    hosts[1]->hold = true;
                }
            }
        } catch (const StoreError &) {
        } catch (const Crash &) {
            ++ledger.n_crashes;
            hub_.reset();
        }
    }
    RunKeys hub_keys() const { return keys_from_hub_form(hub_form(keys_)); }

    Options                        options_;
    std::unique_ptr<Store>         memory_;
    RunKeys                        keys_;
    Time                           now_{std::chrono::hours(1)};
    bool                           faults_ = true;
    std::unique_ptr<CrashingStore> hub_store_;
    std::unique_ptr<Sequencer>     hub_;
    uint64_t                       n_hubs_ = 0;
};

}  // namespace gt::sim
