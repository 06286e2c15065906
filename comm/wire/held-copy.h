// comm/wire/held-copy.h — the `held` record: a second member holds a copy of a message.
//
// With direct delivery a message does not pass through the hub. A member that has fetched it from
// its sender, opened it, and can serve it too, writes this record. It has what the sequencer needs
// for the commit: head, size and digest.
//
//   body: text sender | u64 size | digest | the message's head in clear (records.h)
#pragma once

#include "comm/wire/records.h"

namespace gt {

struct HeldMessage {
    Author      holder;
    MessageHead head;
    uint64_t    size = 0;
    Key32       digest{};
};

// REQUIRES: `value` is the message `id` and opens.
Bytes make_held(
    const RunKeys &          keys,
    const MessageId &        id,
    const std::string &      holder,
    std::span<const uint8_t> value
);

// Nothing if it is not an authentic record about `id`, or if its author is the sender itself.
[[nodiscard]] std::optional<HeldMessage>
parse_held(const RunKeys & keys, const MessageId & id, std::span<const uint8_t> value);

}  // namespace gt
