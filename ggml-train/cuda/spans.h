// ggml-train/cuda/spans.h — one launch over many arrays of a device, and its results on the host.
#pragma once

#include "ggml-train/base/device.h"
#include "ggml-train/cuda/table.h"

namespace gt {

// Numbers the pieces of all arrays, calls run(kernels, spans, results), and returns a result per piece.
template <class Result, class Run>
std::vector<Result>
on_pieces(Device & device, std::vector<cuda::Span> arrays, int64_t piece, Run && run) {
    int64_t n_pieces = 0;
    for (cuda::Span & array : arrays) {
        array.first = n_pieces;
        n_pieces += (array.n + piece - 1) / piece;
    }
    const size_t        table_bytes = arrays.size() * sizeof(cuda::Span);
    std::vector<Result> results(static_cast<size_t>(n_pieces));
    const size_t        result_bytes = results.size() * sizeof(Result);
    auto *              table = static_cast<uint8_t *>(device.scratch(table_bytes + result_bytes));
    auto *              out   = reinterpret_cast<Result *>(table + table_bytes);
    device.write(table, arrays.data(), table_bytes);
    run(device.kernels(),
        cuda::Spans{
            .table    = reinterpret_cast<const cuda::Span *>(table),
            .n        = static_cast<int64_t>(arrays.size()),
            .n_pieces = n_pieces},
        out);
    device.read(results.data(), out, result_bytes);
    return results;
}

}  // namespace gt
