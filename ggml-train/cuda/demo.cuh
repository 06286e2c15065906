// ggml-train/cuda/demo.cuh — extract and merge of optim/repl-demo.cpp, a block per chunk.
#pragma once

#include "ggml-train/cuda/transform.cuh"
#include "ggml-train/cuda/wire.cuh"

namespace gt::cuda {

// Shared memory of a block: x and y, two chunks; then the arrays of each kernel.
constexpr int kWindow  = 512;   // coefficients that merge sums at a time
constexpr int kEntries = 1024;  // coefficients of senders that it holds at a time, at least

__global__ void __launch_bounds__(kThreads)
    demo_extract_kernel(DemoChunks c, DemoFold fold, float * momentum, uint8_t * message) {
    GT_DYNAMIC_SHARED(float, memory);
    GT_SHARED(int, part, kThreads / kWarp);
    GT_SHARED(WireHead, head, 1);
    const int  n     = c.rows * c.cols;
    float *    x     = memory;
    float *    y     = memory + n;
    float *    value = memory + 2 * n;                                      // [k]
    uint16_t * index = reinterpret_cast<uint16_t *>(memory + 2 * n + c.k);  // [k]
    for (int64_t chunk = blockIdx.x; chunk < c.n_chunks; chunk += gridDim.x) {
        float * m = momentum + chunk * n;
        if (fold.grad) {
            const float * g = fold.grad + chunk_offset(c, chunk);
            for (int e = threadIdx.x; e < n; e += kThreads) {
                x[e] = g[e / c.cols * c.stride + e % c.cols];
            }
            if (!c.plain) {
                to_coefficients(c, x, y);
            }
        }
        for (int e = threadIdx.x; e < n; e += kThreads) {
            x[e] = fold.grad ? folded(fold.decay, m[e], fold.alpha, x[e]) : m[e];
        }
        __syncthreads();
        if (message) {
            uint8_t * out = message + chunk * (c.value_bytes + c.index_bytes);
            block_top_k(x, n, c.k, index, part);
            for (int i = threadIdx.x; i < c.k; i += kThreads) {
                value[i] = x[index[i]];
            }
            encode_values(
                c.wire, value, c.k, c.value_bytes, reinterpret_cast<uint16_t *>(y), head, out
            );
            encode_indices(
                c.low, index, c.k, c.index_bytes, reinterpret_cast<unsigned *>(y),
                out + c.value_bytes
            );
            // subtract the value that receivers decode: the rounding error stays in the momentum
            for (int i = threadIdx.x; i < c.k; i += kThreads) {
                x[index[i]] = sub(x[index[i]], value[i]);
            }
            __syncthreads();
        }
        for (int e = threadIdx.x; e < n; e += kThreads) {
            m[e] = x[e];
        }
        __syncthreads();
    }
}

__global__ void __launch_bounds__(kThreads)
    demo_give_back_kernel(DemoChunks c, const uint8_t * message, float * momentum) {
    GT_DYNAMIC_SHARED(uint16_t, index);  // [k]
    for (int64_t chunk = blockIdx.x; chunk < c.n_chunks; chunk += gridDim.x) {
        const uint8_t * in = message + chunk * (c.value_bytes + c.index_bytes);
        float *         m  = momentum + chunk * c.rows * c.cols;
        if (threadIdx.x == 0) {
            decode_indices(c.low, in + c.value_bytes, c.k, c.index_bytes, index);
        }
        __syncthreads();
        for (int i = threadIdx.x; i < c.k; i += kThreads) {
            m[index[i]] = add(m[index[i]], wire_value(c.wire, in, i));
        }
        __syncthreads();
    }
}

// The means of a chunk's coefficients, scaled, to x. Window by window, and within a window piece by
// piece in their order; the coefficients of one piece differ, so that threads do not meet.
__device__ inline void merge_pieces(
    const DemoChunks & c,
    const DemoPiece *  pieces,
    int                n_pieces,
    int64_t            chunk,
    float *            x,
    void *             scratch
) {
    const int n = c.rows * c.cols, capacity = kEntries > c.k ? kEntries : c.k,
              at_once = capacity / c.k;
    double *   sum    = static_cast<double *>(scratch);                  // [kWindow]
    double *   weight = sum + kWindow;                                   // [kWindow]
    float *    value  = reinterpret_cast<float *>(weight + kWindow);     // [capacity]
    uint16_t * index  = reinterpret_cast<uint16_t *>(value + capacity);  // [capacity]
    for (int window = 0; window < n; window += kWindow) {
        for (int i = threadIdx.x; i < kWindow; i += kThreads) {
            sum[i] = weight[i] = 0.0;
        }
        for (int first = 0; first < n_pieces; first += at_once) {
            const int n_here = n_pieces - first < at_once ? n_pieces - first : at_once;
            __syncthreads();
            if (window == 0 || n_pieces > at_once) {  // otherwise they are still loaded
                for (int e = threadIdx.x; e < n_here * c.k; e += kThreads) {
                    const uint8_t * in =
                        pieces[first + e / c.k].bytes + chunk * (c.value_bytes + c.index_bytes);
                    value[e] = wire_value(c.wire, in, e % c.k);
                }
                for (int p = threadIdx.x; p < n_here; p += kThreads) {
                    const uint8_t * in =
                        pieces[first + p].bytes + chunk * (c.value_bytes + c.index_bytes);
                    decode_indices(c.low, in + c.value_bytes, c.k, c.index_bytes, index + p * c.k);
                }
                __syncthreads();
            }
            for (int p = 0; p < n_here; ++p) {
                const DemoPiece & piece  = pieces[first + p];
                const double      factor = mul(piece.weight, piece.scale);
                for (int i = threadIdx.x; i < c.k; i += kThreads) {
                    const int at = int(index[p * c.k + i]) - window;
                    if (at >= 0 && at < kWindow) {
                        sum[at]    = add(sum[at], mul(factor, double(value[p * c.k + i])));
                        weight[at] = add(weight[at], piece.weight);
                    }
                }
                __syncthreads();
            }
        }
        for (int i = threadIdx.x; i < kWindow && window + i < n; i += kThreads) {
            float mean = 0.0f;
            if (weight[i] > 0.0) {
                mean = float(quotient(sum[i], c.total > 0.0 ? c.total : weight[i]));
                mean = c.plain ? mean : scaled(c, mean, window + i);
            }
            x[window + i] = mean;
        }
        __syncthreads();
    }
}

__global__ void __launch_bounds__(kThreads)
    demo_merge_kernel(DemoChunks c, const DemoPiece * pieces, int n_pieces, float * update) {
    GT_DYNAMIC_SHARED(float, memory);
    const int n = c.rows * c.cols;
    float *   x = memory;
    float *   y = memory + (n + 1) / 2 * 2;  // aligned for doubles
    for (int64_t chunk = blockIdx.x; chunk < c.n_chunks; chunk += gridDim.x) {
        merge_pieces(c, pieces, n_pieces, chunk, x, y);
        if (!c.plain) {
            from_coefficients(c, x, y);
        }
        float * to = update + chunk_offset(c, chunk);
        for (int e = threadIdx.x; e < n; e += kThreads) {
            to[e / c.cols * c.stride + e % c.cols] = x[e];
        }
        __syncthreads();
    }
}

}  // namespace gt::cuda
