// tests/fake/dense-floats.h — the simplest dense codec: a message is 32-bit floats.
#pragma once

#include "comm/rounds/butterfly.h"

namespace gt {

// Shards are ranges; the mean is weighted and summed in commit order.
ShardCodec make_float_codec(int n_shards);

}  // namespace gt
