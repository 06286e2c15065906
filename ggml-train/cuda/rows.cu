// ggml-train/cuda/rows.cu — compiled with -fmad=false, as demo.cu.
#include "ggml-train/cuda/rows.cuh"

namespace gt::cuda {

static dim3 value_blocks(const Rows & rows) {
    return blocks_for(
        rows.n_groups * (rows.wire == kQ1 || rows.wire == kQ2 ? kLargestGroup : 64), kThreads
    );
}

void rows_extract(Stream s, const Rows & rows, float * x, uint8_t * message) {
    launch(rows_extract_kernel, blocks_for(rows.n_groups, 1), kThreads, 0, s, rows, x, message);
}

void rows_give_back(Stream s, const Rows & rows, const uint8_t * message, float * x) {
    launch(rows_give_back_kernel, value_blocks(rows), kThreads, 0, s, rows, message, x);
}

void rows_merge(
    Stream            s,
    const Rows &      rows,
    const DemoPiece * pieces,
    int               n_pieces,
    double            total,
    float *           update
) {
    launch(
        rows_merge_kernel, value_blocks(rows), kThreads, 0, s, rows, pieces, n_pieces, total, update
    );
}

void local_change(
    Stream s, const LocalUnits & units, bool fold, float decay, bool restart, float * change
) {
    launch(
        local_change_kernel, blocks_for(units.n_pieces, 1), kThreads, 0, s, units, fold, decay,
        restart, change
    );
}

void local_sums(Stream s, const LocalUnits & units, const float * mean, double * sums) {
    launch(
        local_sums_kernel, blocks_for(units.n_pieces * kLocalSums, kThreads / kSums), kThreads, 0,
        s, units, mean, sums
    );
}

void local_scalars(
    Stream             s,
    const LocalUnits & units,
    const LocalStep &  step,
    const double *     sums,
    LocalScalars *     out
) {
    launch(
        local_scalars_kernel, blocks_for(units.n_units, kWarp), kWarp, 0, s, units, step, sums, out
    );
}

void local_apply(
    Stream               s,
    const LocalUnits &   units,
    const LocalStep &    step,
    const LocalScalars * scalars,
    const float *        mean
) {
    launch(
        local_apply_kernel, blocks_for(units.n_pieces, 1), kThreads, 0, s, units, step, scalars,
        mean
    );
}

}  // namespace gt::cuda
