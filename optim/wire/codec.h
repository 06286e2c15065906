// optim/wire/codec.h — the format of an update (the body of a host's message): its head, and how the
// parts of a host's ranks are joined.
//
// Update, version 1; all numbers little-endian:
//
//   offset bytes
//        0     4  "gtm1"
//        4     1  version, 1
//        5     1  replicator: its id in tables.cpp
//        6     1  wire type: 0 fp32, 1 fp16, 2 q8, 3 q4, 4 q2, 5 q1
//        7     1  flags: bit 0: a part, from one rank of a host; never leaves the host
//                        bit 1: a share of an update, bit 2: a mean of shares; content: see shares.h
//        8     8  layout: digest of tensor names, shapes and settings; differs between runs
//       16     8  step
//       24     4  learning rate of the step, float
//       28     4  zero
//       32     8  n, bytes of content
//       40     n  content: tensor after tensor, each in ascending rows; see repl-demo.cpp (indices.h,
//                 values.h) and repl-rows.cpp (values.h). Layout and step determine its size.
//
// A part has only its rank's rows and, after its content, per tensor: first row, end row, bytes of
// content, 8 bytes each. Rows are cut at multiples of cut_rows (math/chunk.h), so parts are joined by
// copying.
//
// Updates of other hosts are untrusted: any deviation, down to an unused bit, is refused with a reason.
#pragma once

#include "optim/wire/values.h"

#include <optional>

namespace gt {

constexpr int64_t kHeadBytes = 40;

enum class UpdateKind : uint8_t { update = 0, part = 1, share = 2, mean = 4 };

struct UpdateHead {
    uint8_t    replicator = 0;
    Wire       wire       = Wire::fp32;
    UpdateKind kind       = UpdateKind::update;
    uint64_t   layout     = 0;
    uint64_t   step       = 0;
    float      lr         = 0.0f;
    uint64_t   n_content  = 0;

    bool is_part() const { return kind == UpdateKind::part; }
};

struct PartRows {
    int64_t begin = 0, end = 0, n_bytes = 0;
};

// An update with its head written and head.n_content bytes of zero content; a part also gets its table
// of rows.
Bytes blank_update(const UpdateHead & head, std::span<const PartRows> rows = {});

// Reads the head. Returns nothing and the reason in `why` if it is malformed or does not fit the length.
std::optional<UpdateHead> read_head(std::span<const uint8_t> update, std::string & why);

// Joins the parts of a host's ranks, in any order, into the update that a single rank would have made.
// Throws Error if they do not fit together. A single update that is not a part is returned unchanged.
Bytes join_parts(std::span<const Bytes> parts);

}  // namespace gt
