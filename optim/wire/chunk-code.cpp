#include "optim/wire/chunk-code.h"

namespace gt {

ChunkCode::ChunkCode(Wire wire, int64_t n, int64_t k)
    : wire_(wire), n_(n), k_(k), value_bytes_(group_bytes(wire, Group::sparse, k)), indices_(n, k) {
}

void ChunkCode::encode(const uint16_t * index, const float * value, uint8_t * out, float * restored)
    const {
    encode_group(wire_, Group::sparse, value, k_, out, restored);
    indices_.encode(index, out + value_bytes_);
}

const char * ChunkCode::decode(const uint8_t * in, uint16_t * index, float * value) const {
    const char * why = decode_group(wire_, Group::sparse, in, k_, value);
    return why != nullptr ? why : indices_.decode(in + value_bytes_, index);
}

}  // namespace gt
