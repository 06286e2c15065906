// tests/comm/sim/rounds-sim.h — many hosts in one process (sim-host.h), their store and their hub.
#pragma once

#include "tests/comm/sim/sim-host.h"

namespace gt::sim {

// Seeds that a case runs with: n, or the variable GT_SEEDS.
inline uint64_t n_seeds(uint64_t n) {
    const char * many = std::getenv("GT_SEEDS");
    return many ? std::strtoull(many, nullptr, 10) : n;
}

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
    const Options & options() const { return options_; }
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
                hub_ = std::make_unique<Sequencer>(*hub_store_, hub_keys(), options);
            }
            if (!hub_->poll(now_)) {
                return;
            }
            const Commit & commit = *hub_->head();
            ledger.n_undone += commit.n_undone;
            if (!lose_next_of.empty()) {
                if (const CommitMessage * message = commit.message_of(lose_next_of)) {
                    const RunPaths paths(keys_.run);
                    memory_->remove(
                        paths.message({commit.index, message->host, message->incarnation})
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
