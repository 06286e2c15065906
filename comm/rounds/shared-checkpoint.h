// comm/rounds/shared-checkpoint.h — slices of the run's shared state in the store, cut in sealed pieces.
//
// A commit names the writers: the i-th writes slice i of the state after that commit. A slice is put
// piece by piece, each sealed, followed by a *ready* record; when all slices are ready, a later
// commit lists them with their digests, and the checkpoint is complete. Every host could write any
// slice, because the state is the same on all.
#pragma once

#include "comm/store/store.h"
#include "comm/wire/commit.h"

namespace gt {

struct SliceId {
    uint64_t    index = 0;  // of the commit that ordered it
    int         slice = 0;
    std::string host;
    uint64_t    incarnation = 0;
};

constexpr size_t kPieceBytes = 4 << 20;

// Puts a slice piece by piece, then its ready record.
class SliceWriter {
public:
    // REQUIRES: `store` and `keys` outlive this. `state_digest`: of the whole state.
    SliceWriter(
        Store &         store,
        const RunKeys & keys,
        SliceId         id,
        uint64_t        state_digest,
        Bytes           bytes,
        size_t          piece_bytes = kPieceBytes
    );

    // Puts one value. False: it was the last. On StoreError call it again: the same bytes are put.
    bool step();

private:
    Bytes sealed_piece() const;
    Bytes ready_record() const;

    Store &         store_;
    const RunKeys & keys_;
    SliceId         id_;
    uint64_t        state_digest_;
    Bytes           bytes_;
    size_t          piece_bytes_;
    uint32_t        n_pieces_, next_ = 0;
    Bytes           pending_;  // sealed, and not put yet: sealing it again would change its bytes
};

// A slice of a complete checkpoint. Throws StoreError if a piece is missing or not authentic.
Bytes read_slice(Store & store, const RunKeys & keys, const CheckpointList & list, int slice);

}  // namespace gt
