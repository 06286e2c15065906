// comm/wire/frame.h — the head of every value that hosts put into a store.
//
//   offset  bytes  field
//        0      4  magic "GTF1"
//        4      2  version of the protocol
//        6      1  kind (enum Kind of records.h)
//        7      1  length of the host's name, 1..64
//        8      8  run
//       16      8  round
//       24      8  incarnation: higher at every start of the host
//       32      8  length of the payload
//       40      4  number of a piece or shard
//       44     32  public key of the machine that made the frame
//       76     64  its signature of the BLAKE2b-256 digest of bytes 0..75, the name and the payload
//      140      -  host's name, then the payload, to the end of the value
//
// Numbers are little-endian. A valid signature shows that the frame is whole, and which machine made it; seals
// and tags (seal.h) show that it has the run's secret.
#pragma once

#include "comm/wire/seal.h"

namespace gt {

constexpr uint16_t kProtocol        = 5;
constexpr size_t   kFrameHeadBytes  = 140;
constexpr size_t   kMaxHostNameSize = 64;
constexpr size_t   kMaxHosts        = 1024;  // of a run

struct Frame {
    uint8_t                  kind  = 0;
    uint64_t                 run   = 0;
    uint64_t                 round = 0;
    std::string              host;
    uint64_t                 incarnation = 0;
    uint32_t                 part        = 0;
    std::span<const uint8_t> payload;   // after parse_frame: points into the value
    Key32                    signer{};  // set by parse_frame
};

// Signed with the machine's own key. REQUIRES: valid_host_name(frame.host).
Bytes make_frame(const Key32 & host_seed, const Frame & frame);

// Nothing if the value is not exactly one frame; `why` (may be null) then says why.
[[nodiscard]] std::optional<Frame>
parse_frame(std::span<const uint8_t> value, std::string * why = nullptr);

// 1..64 characters of [A-Za-z0-9._-], the first not '.' or '-'. Names are also parts of keys.
bool valid_host_name(const std::string & name);

}  // namespace gt
