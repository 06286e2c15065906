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

void write_slice(
    Store &                  store,
    const RunKeys &          keys,
    const SliceId &          id,
    uint64_t                 state_digest,
    std::span<const uint8_t> bytes,
    size_t                   piece_bytes
) {
    const RunPaths    paths(keys.run);
    const std::string pieces = paths.pieces(id.index, id.slice, id.host, id.incarnation);
    const auto        n =
        static_cast<uint32_t>(std::max<size_t>(1, (bytes.size() + piece_bytes - 1) / piece_bytes));
    for (uint32_t i = 0; i < n; ++i) {
        const size_t begin  = std::min(bytes.size(), i * piece_bytes);
        const auto   text   = bytes.subspan(begin, std::min(piece_bytes, bytes.size() - begin));
        const Bytes  sealed = seal(keys, context_of(keys, id, i, n), text);
        store.put(
            paths.piece(pieces, static_cast<int>(i)),
            make_frame(
                {.kind        = static_cast<uint8_t>(Kind::piece),
                 .run         = keys.run,
                 .round       = id.index,
                 .host        = id.host,
                 .incarnation = id.incarnation,
                 .payload     = sealed}
            )
        );
    }
    WireWriter out;
    out.u32(static_cast<uint32_t>(id.slice));
    out.u64(state_digest);
    out.u64(bytes.size());
    out.u32(n);
    out.raw(digest256(bytes));
    store.put(
        paths.ready(id.index, id.slice, id.host, id.incarnation),
        make_record(keys, {Kind::ready, id.index, id.host, id.incarnation}, out.bytes())
    );
}

Bytes read_slice(Store & store, const RunKeys & keys, const CheckpointList & list, int slice) {
    const CheckpointSlice & about = list.slices.at(static_cast<size_t>(slice));
    const SliceId           id{list.index, slice, about.host, about.incarnation};
    const RunPaths          paths(keys.run);
    const std::string       pieces = paths.pieces(id.index, slice, id.host, id.incarnation);
    Bytes                   out;
    for (uint32_t i = 0; i < about.n_pieces; ++i) {
        const auto value = store.get(paths.piece(pieces, static_cast<int>(i)));
        const auto frame = value ? parse_frame(*value) : std::nullopt;
        const auto text =
            frame ? open_sealed(keys, context_of(keys, id, i, about.n_pieces), frame->payload)
                  : std::nullopt;
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
