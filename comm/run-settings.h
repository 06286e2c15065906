// comm/run-settings.h — what all hosts must have alike: batch, schedule, replicator, steps, seed.
//
// The first host writes its settings to the store, later ones take them from there. Names and
// values are plain text; some are the sequencer's too: "steps", "min-hosts", "checkpoint-every".
#pragma once

#include "comm/membership.h"
#include "comm/store.h"

#include <map>
#include <set>

namespace gt {

using Settings = std::map<std::string, std::string>;

// The run's settings: ours if we are the first. Throws Error, naming the setting, if one that was
// `given` explicitly contradicts them. Waits while the store can't be reached (StoreError after
// `patience`).
Settings agree_settings(
    Store &                       store,
    const RunKeys &               keys,
    const std::string &           host,
    const Settings &              ours,
    const std::set<std::string> & given,
    Millis                        patience = Millis(60'000)
);

// Nothing: the run has none yet.
[[nodiscard]] std::optional<Settings> read_settings(Store & store, const RunKeys & keys);

// What of them a sequencer needs; the rest of `options` stays.
void apply_settings(const Settings & settings, MembershipOptions & options);

}  // namespace gt
