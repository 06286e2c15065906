// comm/sequencer/revise.h — removes lost messages from a commit.
//
// If every member that is not silent reports a listed message as lost, and the sequencer can't read
// it either, the message becomes absent for everybody. A host that had applied it finds at the next
// commit that its revision is not the valid one, and joins again.
#pragma once

#include "comm/sequencer/membership.h"

namespace gt {

// The next revision of the newest commit, without the lost messages. Nothing: none is lost, or not
// all members have reported.
[[nodiscard]] std::optional<Commit>
without_lost(Store & store, const RunKeys & keys, const Membership & membership, Time now);

}  // namespace gt
