// comm/sequencer/run-settings.cpp — one record: u16 n | n times: text name | text value.
#include "comm/sequencer/run-settings.h"

#include "comm/wire/wire.h"

#include <thread>

namespace gt {

constexpr size_t kMaxSettings = 1024;
constexpr size_t kMaxText     = 65535;
constexpr int    kReads       = 4;  // a transfer may be damaged
constexpr Millis kPause{200};

static Bytes encode(const Settings & settings) {
    GT_CHECK(settings.size() <= kMaxSettings, "too many settings");
    WireWriter out;
    out.u16(settings.size());
    for (const auto & [name, value] : settings) {
        out.text(name);
        out.text(value);
    }
    return out.take();
}

std::optional<Settings> read_settings(Store & store, const RunKeys & keys) {
    for (int attempt = 0; attempt < kReads; ++attempt) {
        const auto value = store.get(RunPaths(keys.run).settings());
        if (!value) {
            return std::nullopt;
        }
        const auto body = parse_record(keys, {Kind::settings, 0, "", 0}, *value);
        if (!body) {
            continue;
        }
        WireReader in(*body);
        Settings   settings;
        for (size_t n = in.u16(); n > 0 && in.ok(); --n) {
            const std::string name = in.text(kMaxText);
            settings[name]         = in.text(kMaxText);
        }
        if (in.at_end()) {
            return settings;
        }
    }
    throw StoreError(
        "the run's settings in the store can't be read; check that all hosts have the same key"
    );
}

Settings agree_settings(
    Store &                       store,
    const RunKeys &               keys,
    const std::string &           host,
    const Settings &              ours,
    const std::set<std::string> & given,
    Millis                        timeout
) {
    std::optional<Settings> theirs;
    for (const Time give_up = std::chrono::steady_clock::now() + timeout; !theirs;) {
        try {
            theirs = read_settings(store, keys);
            if (!theirs) {
                const Bytes record = make_record(keys, {Kind::settings, 0, host, 0}, encode(ours));
                store.put(RunPaths(keys.run).settings(), record, true);
            }
        } catch (const StoreError &) {
            if (std::chrono::steady_clock::now() > give_up) {
                throw;
            }
            std::this_thread::sleep_for(kPause);
        }
    }
    for (const std::string & name : given) {
        const auto mine = ours.find(name);
        const auto its  = theirs->find(name);
        if (mine == ours.end() || (its != theirs->end() && its->second == mine->second)) {
            continue;
        }
        throw Error(
            "--" + name + " " + mine->second + " contradicts the run, which has " +
            (its == theirs->end() ? std::string("none") : "'" + its->second + "'") +
            "; drop the flag, or start a new run with `hub --new`"
        );
    }
    return *theirs;
}

template <typename T>
static void read_number(const Settings & settings, const char * name, T & value) {
    const auto it = settings.find(name);
    if (it != settings.end()) {
        const auto number = parse_number(it->second);
        value             = number ? static_cast<T>(*number) : value;
    }
}

void apply_settings(const Settings & settings, MembershipOptions & options) {
    read_number(settings, "steps", options.n_steps);
    read_number(settings, "min-hosts", options.min_hosts);
    read_number(settings, "checkpoint-every", options.checkpoint_every);
}

}  // namespace gt
