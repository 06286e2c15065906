// optim/codec.h — message <-> bytes: the head that all messages have, and how a host's message is
// joined from those of its ranks.
//
// Message, version 1; all numbers little-endian:
//
//   offset bytes
//        0     4  "gtm1"
//        4     1  version, 1
//        5     1  replicator: its place in the table of optim.cpp
//        6     1  wire type: 0 fp32, 1 fp16, 2 q8, 3 q4, 4 q2
//        7     1  flags: bit 0: a part, from one rank of a host; never leaves the host
//        8     8  layout: digest of names, shapes and settings; those of another run differ
//       16     8  step
//       24     4  learning rate of the step, float
//       28     4  zero
//       32     8  n, bytes of content
//       40     n  content: tensor after tensor, each in ascending rows; see repl-demo.cpp (indices.h,
//                 values.h) and repl-rows.cpp (values.h). Its size follows from layout and step.
//
// A part has, after its content, per tensor: first row, end row, bytes of content, 8 bytes each. It has
// those rows only; they are cut where chunk.h allows, so that contents can be put together by copying.
//
// A message is untrusted: whatever does not fit, down to a stray bit, is refused with a reason.
#pragma once

#include "optim/values.h"

#include <optional>

namespace gt {

constexpr int64_t kHeadBytes = 40;

struct CodecHead {
    uint8_t  replicator = 0;
    Wire     wire       = Wire::fp32;
    bool     is_part    = false;
    uint64_t layout     = 0;
    uint64_t step       = 0;
    float    lr         = 0.0f;
    uint64_t n_content  = 0;
};

struct PartRows {
    int64_t begin = 0, end = 0, n_bytes = 0;
};

// A message with its head written and its content zero, of head.n_content bytes; for a part, with
// the rows of each tensor behind it.
Bytes make_message(const CodecHead & head, std::span<const PartRows> rows = {});

// Reads the head; null and the reason in `why` if it is not that of a well-formed message.
std::optional<CodecHead> read_head(std::span<const uint8_t> message, std::string & why);

// Joins the parts of a host's ranks, in any order, into the message that a single rank would have
// made. Throws Error if they do not fit together. One message that is no part comes back as it is.
Bytes join_messages(std::span<const Bytes> parts);

}  // namespace gt
