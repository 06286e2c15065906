// ggml-train/cuda/rows.cuh — extract and merge of optim/repl-rows.cpp, and the element-wise work of
// optim/local-on-host.cpp.
#pragma once

#include "ggml-train/cuda/dense.cuh"
#include "ggml-train/cuda/rows.h"
#include "ggml-train/cuda/squares.cuh"

namespace gt::cuda {

// The unit that a group or piece belongs to: the last that begins at it or before.
template <class Unit>
__device__ inline int unit_of(const Unit * units, int n_units, int64_t at) {
    int low = 0, high = n_units;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (units[middle].first <= at) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

// Where a group's values and bytes are.
struct RowGroup {
    RowUnit unit;
    int64_t first;  // of its values, among those of the unit that travel
    int     n;
    int64_t bytes;  // before it in the message

    __device__ RowGroup(const Rows & rows, int64_t number)
        : unit(rows.units[unit_of(rows.units, rows.n_units, rows.first + number)]) {
        const int64_t g       = rows.first + number - unit.first;
        const int     size    = group_size(rows.wire);
        const int     tail    = int(unit.row % size);
        const int64_t full    = unit.row / size;
        const int64_t per_row = full + (tail > 0 ? 1 : 0);
        const int64_t row = g / per_row, in_row = g % per_row;
        const int64_t row_bytes =
            full * group_bytes(rows.wire, size) + (tail > 0 ? group_bytes(rows.wire, tail) : 0);
        first = row * unit.row + in_row * size;
        n     = in_row < full ? size : tail;
        bytes = unit.bytes + row * row_bytes + in_row * group_bytes(rows.wire, size);
    }

    // Of value i, in the tensor.
    __device__ int64_t place(int i) const {
        const int64_t at = first + i;
        return unit.offset +
               (unit.places ? unit.places[at / unit.run] * unit.run + at % unit.run : at);
    }
};

__global__ void __launch_bounds__(kThreads)
    rows_extract_kernel(Rows rows, float * x, uint8_t * message) {
    GT_SHARED(float, value, kLargestGroup);
    GT_SHARED(uint16_t, code, kLargestGroup);
    GT_SHARED(WireHead, head, 1);
    const int i = threadIdx.x;
    for (int64_t g = blockIdx.x; g < rows.n_groups; g += gridDim.x) {
        const RowGroup group(rows, g);
        float *        at    = i < group.n ? x + group.place(i) : nullptr;
        const float    whole = at ? *at : 0.0f;
        if (at) {
            value[i] = whole;
        }
        encode_dense(rows.wire, value, group.n, code, head, message + group.bytes);
        if (at) {
            *at = sub(whole, value[i]);
        }
        __syncthreads();
    }
}

// The number of threads that work on a group: as many as it has values at most.
__device__ inline int64_t threads_of(const Rows & rows) {
    return rows.n_groups * group_size(rows.wire);
}

__global__ void __launch_bounds__(kThreads)
    rows_give_back_kernel(Rows rows, const uint8_t * message, float * x) {
    const int size = group_size(rows.wire);
    for (int64_t t = int64_t(blockIdx.x) * kThreads + threadIdx.x; t < threads_of(rows);
         t += int64_t(gridDim.x) * kThreads) {
        const RowGroup group(rows, t / size);
        const int      i = int(t % size);
        if (i < group.n) {
            float * at = x + group.place(i);
            // the sum of a mean begins with a zero, which takes the sign of another one
            *at = add(*at, add(0.0f, dense_value(rows.wire, message + group.bytes, i)));
        }
    }
}

__global__ void __launch_bounds__(kThreads) rows_merge_kernel(
    Rows rows, const DemoPiece * pieces, int n_pieces, double total, float * update
) {
    const int size = group_size(rows.wire);
    for (int64_t t = int64_t(blockIdx.x) * kThreads + threadIdx.x; t < threads_of(rows);
         t += int64_t(gridDim.x) * kThreads) {
        const RowGroup group(rows, t / size);
        const int      i = int(t % size);
        if (i >= group.n) {
            continue;
        }
        double sum = 0.0;
        for (int p = 0; p < n_pieces; ++p) {
            const double value = double(dense_value(rows.wire, pieces[p].bytes + group.bytes, i));
            sum                = add(sum, mul(mul(pieces[p].weight, pieces[p].scale), value));
        }
        update[group.place(i)] = float(quotient(sum, total));
    }
}

// ---- local steps ---------------------------------------------------------------------------------------

// Calls work(i, unit's number) for the elements of all units: a block takes a piece at a time.
template <class Work>
__device__ inline void each_element(const LocalUnits & units, Work work) {
    for (int64_t piece = blockIdx.x; piece < units.n_pieces; piece += gridDim.x) {
        const int       u     = unit_of(units.table, units.n_units, piece);
        const LocalUnit unit  = units.table[u];
        const int64_t   begin = (piece - unit.first) * kSquaresPiece;
        const int64_t   end   = begin + kSquaresPiece < unit.n ? begin + kSquaresPiece : unit.n;
        for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
            work(unit.offset + i, u);
        }
    }
}

__global__ void __launch_bounds__(kThreads)
    local_change_kernel(LocalUnits units, bool fold, float decay, bool restart, float * change) {
    const LocalTensor & t = units.tensor;
    each_element(units, [&](int64_t i, int) {
        const float p = t.weight[i], a = t.anchor[i], d = sub(a, p);
        if (fold) {
            t.residual[i] = folded(decay, t.residual[i], 1.0f, d);
        } else {
            change[i] = d;
        }
        if (t.base) {
            t.base[i] = p;
        }
        if (restart) {
            t.weight[i] = a;
        }
    });
}

// Sixteen lanes per sum.
__global__ void __launch_bounds__(kThreads)
    local_sums_kernel(LocalUnits units, const float * mean, double * sums) {
    const LocalTensor & t        = units.tensor;
    const int64_t       n_sums   = units.n_pieces * kLocalSums;
    const int64_t       per_grid = int64_t(gridDim.x) * (kThreads / kSums);
    // the same for all lanes of a warp
    const int64_t n_rounds = (n_sums + per_grid - 1) / per_grid;
    for (int64_t r = 0; r < n_rounds; ++r) {
        const int64_t at =
            r * per_grid + int64_t(blockIdx.x) * (kThreads / kSums) + threadIdx.x / kSums;
        int64_t begin = 0, end = 0, offset = 0;
        if (at < n_sums) {
            const int64_t   piece = at / kLocalSums;
            const LocalUnit unit  = units.table[unit_of(units.table, units.n_units, piece)];
            offset                = unit.offset;
            begin                 = (piece - unit.first) * kSquaresPiece;
            end                   = begin + kSquaresPiece < unit.n ? begin + kSquaresPiece : unit.n;
        }
        const int    which = int(at % kLocalSums);
        const double total = piece_squares(begin, end, [&](int64_t i) {
            const int64_t j = offset + i;
            return which == 0    ? mean[j]
                   : !t.momentum ? 0.0f
                   : which == 1  ? sub(t.anchor[j], t.base[j])
                                 : t.momentum[j];
        });
        if (threadIdx.x % kSums == 0 && at < n_sums) {
            sums[at] = total;
        }
    }
}

__global__ void __launch_bounds__(kWarp
) local_scalars_kernel(LocalUnits units, LocalStep step, const double * sums, LocalScalars * out) {
    for (int u = int(blockIdx.x * kWarp + threadIdx.x); u < units.n_units;
         u += int(gridDim.x * kWarp)) {
        const LocalUnit unit            = units.table[u];
        const int64_t   n_pieces        = (unit.n + kSquaresPiece - 1) / kSquaresPiece;
        double          all[kLocalSums] = {};
        for (int64_t piece = unit.first; piece < unit.first + n_pieces; ++piece) {
            for (int k = 0; k < kLocalSums; ++k) {
                all[k] = add(all[k], sums[piece * kLocalSums + k]);
            }
        }
        LocalScalars result;
        if (step.restore_norm) {
            const double ratio = all[0] > 0.0 ? quotient(unit.own, all[0]) : 1.0;
            result.factor = float(root(step.most_messages < ratio ? step.most_messages : ratio));
        }
        if (units.tensor.momentum) {
            const double n      = double(unit.n);
            const double square = quotient(all[1], n);
            result.scale        = square > 0.0 ? float(quotient(1.0, root(square))) : 0.0f;
            result.unit         = mul(step.correction, float(root(quotient(all[2], n))));
        }
        out[u] = result;
    }
}

__global__ void __launch_bounds__(kThreads) local_apply_kernel(
    LocalUnits units, LocalStep step, const LocalScalars * scalars, const float * mean
) {
    const LocalTensor & t = units.tensor;
    each_element(units, [&](int64_t i, int u) {
        float a = t.anchor[i];
        float p = sub(t.weight[i], step.overlap ? t.base[i] : a);
        if (mean) {
            const LocalScalars k = scalars[u];
            if (step.share != 0.0f) {
                p = add(p, mul(step.share, mean[i]));
            }
            if (t.momentum) {
                const float d = mul(k.scale, sub(mul(k.factor, mean[i]), sub(a, t.base[i])));
                t.momentum[i] = add(t.momentum[i], mul(k.unit, d));
            }
            const float lr = mul(step.outer_lr, k.factor), mu = step.outer_momentum;
            if (mu > 0.0f) {
                const float v = add(mul(mu, t.outer[i]), mean[i]);
                t.outer[i]    = v;
                a             = sub(a, mul(lr, add(mean[i], mul(mu, v))));
            } else {
                a = sub(a, mul(lr, mean[i]));
            }
            t.anchor[i] = a;
        }
        t.weight[i] = add(a, p);
        if (step.overlap) {
            t.base[i] = a;
        }
    });
}

}  // namespace gt::cuda
