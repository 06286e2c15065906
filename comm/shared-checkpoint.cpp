// comm/shared-checkpoint.cpp — pieces out, pieces in; every one is checked before it is used.
#include "comm/shared-checkpoint.h"

#include "comm/wire.h"

#include <algorithm>

namespace gt {

static SealContext
context_of(const RunKeys & keys, const PartId & id, uint32_t piece, uint32_t n_pieces) {
    return {
        .run         = keys.run,
        .kind        = format("checkpoint part %d", id.part),
        .round       = id.index,
        .host        = id.host,
        .incarnation = id.incarnation,
        .part        = piece,
        .n_parts     = n_pieces};
}

void write_part(
    Store &                  store,
    const RunKeys &          keys,
    const PartId &           id,
    uint64_t                 state_digest,
    std::span<const uint8_t> bytes,
    size_t                   piece_bytes
) {
    const RunPaths    paths(keys.run);
    const std::string pieces = paths.pieces(id.index, id.part, id.host, id.incarnation);
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
    out.u32(static_cast<uint32_t>(id.part));
    out.u64(state_digest);
    out.u64(bytes.size());
    out.u32(n);
    out.raw(digest256(bytes));
    store.put(
        paths.ready(id.index, id.part, id.host, id.incarnation),
        make_record(keys, {Kind::ready, id.index, id.host, id.incarnation}, out.bytes())
    );
}

Bytes read_part(Store & store, const RunKeys & keys, const CheckpointList & list, int part) {
    const CheckpointPart & about = list.parts.at(static_cast<size_t>(part));
    const PartId           id{list.index, part, about.host, about.incarnation};
    const RunPaths         paths(keys.run);
    const std::string      pieces = paths.pieces(id.index, part, id.host, id.incarnation);
    Bytes                  out;
    for (uint32_t i = 0; i < about.n_pieces; ++i) {
        const auto value = store.get(paths.piece(pieces, static_cast<int>(i)));
        const auto frame = value ? parse_frame(*value) : std::nullopt;
        const auto text =
            frame ? open_sealed(keys, context_of(keys, id, i, about.n_pieces), frame->payload)
                  : std::nullopt;
        if (!text || out.size() + text->size() > about.size) {
            throw StoreError(format(
                "shared checkpoint: piece %u of part %d by %s is %s; trying again", i, part,
                about.host.c_str(), value ? "not genuine" : "not there"
            ));
        }
        out.insert(out.end(), text->begin(), text->end());
    }
    if (out.size() != about.size || digest256(out) != about.digest) {
        throw StoreError(format("shared checkpoint: part %d has another digest; trying again", part)
        );
    }
    return out;
}

}  // namespace gt
