// comm/sequencer/run-settings.h — settings that all hosts share: batch, schedule, replicator, steps.
//
// The first host writes its settings to the store, later hosts read them. Names and values are text;
// the sequencer uses some of them: "steps", "min-hosts", "checkpoint-every".
#pragma once

#include "comm/sequencer/membership.h"
#include "comm/store/store.h"

#include <map>
#include <set>

namespace gt {

using Settings = std::map<std::string, std::string>;

// The run's settings: ours if we are the first. Throws Error, with the setting's name, if one that
// was `given` explicitly contradicts them. Retries while the store can't be reached, and throws
// StoreError after `timeout`.
Settings agree_settings(
    Store &                       store,
    const RunKeys &               keys,
    const std::string &           host,
    const Settings &              ours,
    const std::set<std::string> & given,
    Millis                        timeout = Millis(60'000)
);

// Nothing: the run has none yet.
[[nodiscard]] std::optional<Settings> read_settings(Store & store, const RunKeys & keys);

// Sets the options of the sequencer that are in the settings.
void apply_settings(const Settings & settings, MembershipOptions & options);

}  // namespace gt
