// optim/device/dct-program.h — tables for the kernels of demo's extract and merge (ggml-train/cuda/demo.h),
// which give the bits of repl-demo.cpp.
//
// The recursion of dct.cpp, flattened: at each depth all blocks have one size and pass through one
// stage; each output of a stage is one operation on one or two inputs. The operations and their rounding
// are those of dct.cpp; only the order in time differs.
#pragma once

#include "ggml-train/cuda/demo.h"
#include "optim/math/chunk.h"
#include "optim/wire/values.h"

namespace gt {

// A DCT-II (with the factor of Dct::forward) or its inverse, as stages. Host memory.
struct DctStages {
    int64_t                   n = 1, n_stages = 0;
    std::vector<cuda::DctOp>  ops;  // n_stages x n
    std::vector<cuda::DctDot> dots;
    std::vector<float>        table;
};
DctStages make_dct_stages(int64_t n, bool inverse);

// Tables for the chunks of one geometry.
class DemoPlan {
public:
    // dct: coefficients are sent; otherwise elements.
    DemoPlan(const ChunkGrid & grid, int64_t top_k, Wire wire, bool dct = true);

    // To be copied to the device, aligned to 16 bytes.
    const Bytes & tables() const { return tables_; }

    int64_t bytes_per_chunk() const { return chunks_.value_bytes + chunks_.index_bytes; }

    // n_chunks chunks, row of chunks by row of chunks, with the tables at this address.
    cuda::DemoChunks chunks(const void * device_tables, int64_t n_chunks) const;

private:
    size_t add(const void * data, size_t bytes);
    void   add(const DctStages & stages, cuda::DctProgram & program);

    cuda::DemoChunks chunks_;  // pointers hold offsets into the tables
    Bytes            tables_;
};

}  // namespace gt
