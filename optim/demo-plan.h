// optim/demo-plan.h — the tables with which a device does demo's extract and merge, bit for bit as
// repl-demo.cpp does (ggml-train/cuda/demo.h).
//
// The recursion of dct.cpp, laid out flat: at each depth all halves, quarters, ... are of one size
// and go through the same stage, every output of which is one operation on one or two inputs. The
// operations are those of dct.cpp and are rounded the same; only their order in time differs.
#pragma once

#include "ggml-train/cuda/demo.h"
#include "optim/chunk.h"
#include "optim/values.h"

namespace gt {

// A DCT-II (with the factor of Dct::forward) or its inverse, as stages. Host memory.
struct DctStages {
    int64_t                   n = 1, n_stages = 0;
    std::vector<cuda::DctOp>  ops;  // n_stages x n
    std::vector<cuda::DctDot> dots;
    std::vector<float>        table;
};
DctStages make_dct_stages(int64_t n, bool inverse);

// Everything a device needs for the chunks of one geometry.
class DemoPlan {
public:
    DemoPlan(const ChunkGrid & grid, int64_t top_k, Wire wire);

    // To be copied to the device as they are, aligned to 16 bytes.
    const Bytes & tables() const { return tables_; }

    int64_t bytes_per_chunk() const { return chunks_.value_bytes + chunks_.index_bytes; }

    // For n_chunks of them, row of chunks by row of chunks, with the tables at this address.
    cuda::DemoChunks chunks(const void * device_tables, int64_t n_chunks) const;

private:
    size_t add(const void * data, size_t bytes);
    void   add(const DctStages & stages, cuda::DctProgram & program);

    cuda::DemoChunks chunks_;  // pointers hold offsets into the tables
    Bytes            tables_;
};

}  // namespace gt
