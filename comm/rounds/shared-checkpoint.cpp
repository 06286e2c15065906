// comm/rounds/shared-checkpoint.cpp — see shared-checkpoint.h.
#include "comm/rounds/shared-checkpoint.h"

#include "comm/wire/wire.h"

#include <algorithm>

namespace gt {

static SealContext
context_of(const RunKeys & keys, const SliceId & id, uint32_t piece, uint32_t n_pieces) {
    return {
        .run         = keys.run,
        .kind        = format("checkpoint slice %d", id.slice),
        .round       = id.index,
        .host        = id.host,
        .incarnation = id.incarnation,
        .part        = piece,
        .n_parts     = n_pieces};
}

SliceWriter::SliceWriter(
    Store &         store,
    const RunKeys & keys,
    SliceId         id,
    uint64_t        state_digest,
    Bytes           bytes,
    size_t          piece_bytes
)
    : store_(store), keys_(keys), id_(std::move(id)), state_digest_(state_digest),
      bytes_(std::move(bytes)), piece_bytes_(piece_bytes),
      n_pieces_(static_cast<uint32_t>(
          std::max<size_t>(1, (bytes_.size() + piece_bytes - 1) / piece_bytes)
      )) {}

Bytes SliceWriter::sealed_piece() const {
    const size_t begin = std::min(bytes_.size(), next_ * piece_bytes_);
    const size_t n     = std::min(piece_bytes_, bytes_.size() - begin);
    return make_sealed(
        keys_, Kind::piece, context_of(keys_, id_, next_, n_pieces_),
        std::span(bytes_).subspan(begin, n)
    );
}

Bytes SliceWriter::ready_record() const {
    WireWriter out;
    out.u32(static_cast<uint32_t>(id_.slice));
    out.u64(state_digest_);
    out.u64(bytes_.size());
    out.u32(n_pieces_);
    out.raw(digest256(bytes_));
    return make_record(keys_, {Kind::ready, id_.index, id_.host, id_.incarnation}, out.bytes());
}

bool SliceWriter::step() {
    const RunPaths  paths(keys_.run);
    const MessageId id{id_.index, id_.host, id_.incarnation};
    const bool      is_last = next_ == n_pieces_;
    if (pending_.empty()) {
        pending_ = is_last ? ready_record() : sealed_piece();
    }
    store_.put(is_last ? paths.ready(id, id_.slice) : paths.piece(id, id_.slice, next_), pending_);
    pending_.clear();
    ++next_;
    return !is_last;
}

Bytes read_slice(Store & store, const RunKeys & keys, const CheckpointList & list, int slice) {
    const CheckpointSlice & about = list.slices.at(static_cast<size_t>(slice));
    const SliceId           id{list.index, slice, about.host, about.incarnation};
    const RunPaths          paths(keys.run);
    Bytes                   out;
    for (uint32_t i = 0; i < about.n_pieces; ++i) {
        const auto value =
            store.get(paths.piece({list.index, about.host, about.incarnation}, slice, i));
        const auto text = open_frame(keys, context_of(keys, id, i, about.n_pieces), value);
        if (!text || out.size() + text->size() > about.size) {
            throw StoreError(format(
                "shared checkpoint: piece %u of slice %d by %s is %s; retrying", i, slice,
                about.host.c_str(), value ? "damaged" : "missing"
            ));
        }
        out.insert(out.end(), text->begin(), text->end());
    }
    if (out.size() != about.size || digest256(out) != about.digest) {
        throw StoreError(format("shared checkpoint: slice %d has a wrong digest; retrying", slice));
    }
    return out;
}

}  // namespace gt
