// comm/held.h — a second member's word that it holds a message which its sender serves itself.
//
// With direct delivery a message does not pass through the hub. Who has fetched it from its sender,
// opened it, and can serve it too says so in a small record; the sequencer then knows what it needs
// to commit to: head, size and digest.
//
//   body: text sender | u64 size | digest | the message's head in clear (records.h)
#pragma once

#include "comm/records.h"

namespace gt {

struct HeldMessage {
    std::string holder;
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

// Nothing if it isn't a genuine word about `id`, by somebody else than its sender.
[[nodiscard]] std::optional<HeldMessage>
parse_held(const RunKeys & keys, const MessageId & id, std::span<const uint8_t> value);

}  // namespace gt
