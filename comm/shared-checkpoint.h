// comm/shared-checkpoint.h — parts of the run's shared state in the store, cut into sealed pieces.
//
// A commit names who writes which part of the state after it. A part is put piece by piece, each
// sealed on its own, and then announced by a *ready* record; once all are ready, a later commit
// lists them with their digests: the checkpoint is complete. Every host could write every part, since
// the state is equal on all.
#pragma once

#include "comm/commit.h"
#include "comm/store.h"

namespace gt {

struct PartId {
    uint64_t    index = 0;  // of the commit that ordered it
    int         part  = 0;
    std::string host;
    uint64_t    incarnation = 0;
};

constexpr size_t kPieceBytes = 4 << 20;

// Puts all pieces and the ready record. StoreError: call it again, what is there is put once more.
void write_part(
    Store &                  store,
    const RunKeys &          keys,
    const PartId &           id,
    uint64_t                 state_digest,
    std::span<const uint8_t> bytes,
    size_t                   piece_bytes = kPieceBytes
);

// A part of a complete checkpoint. Throws StoreError if a piece is not there or not genuine.
Bytes read_part(Store & store, const RunKeys & keys, const CheckpointList & list, int part);

}  // namespace gt
