#include "optim/device/dct-program.h"

#include "optim/math/dct.h"
#include "optim/wire/indices.h"

#include <algorithm>
#include <cstring>

namespace gt {

namespace {

using cuda::DctOp;

DctOp copy(int64_t p, float factor = 1.0f) {
    return {static_cast<int32_t>(p), -1, factor, 0.0f};
}
DctOp both(int64_t p, float a, int64_t q, float b) {
    return {static_cast<int32_t>(p), static_cast<int32_t>(q), a, b};
}

// The transform of a block: DCT-II, its transpose, or DCT-IV.
enum class Kind { second, third, fourth };
struct Block {
    Kind    kind;
    int64_t at;
};

class Builder {
public:
    explicit Builder(int64_t n) { stages_.n = n; }

    // Transforms all blocks, of m elements each, in the same stages.
    void run(const std::vector<Block> & blocks, int64_t m) {
        if (m % 2 != 0) {
            odd(blocks, m);
            return;
        }
        const int64_t      h = m / 2;
        std::vector<Block> halves;
        begin_stage();
        for (const Block & b : blocks) {
            before(b, m);
            halves.push_back({b.kind == Kind::fourth ? Kind::second : b.kind, b.at});
            halves.push_back({b.kind == Kind::fourth ? Kind::second : Kind::fourth, b.at + h});
        }
        run(halves, h);
        begin_stage();
        for (const Block & b : blocks) {
            after(b, m);
        }
    }

    // One stage that multiplies the first element.
    void scale_first(float factor) {
        begin_stage();
        op(0) = copy(0, factor);
    }

    DctStages take() { return std::move(stages_); }

private:
    // Adds a stage that copies everything; op() overwrites entries.
    void begin_stage() {
        ++stages_.n_stages;
        for (int64_t i = 0; i < stages_.n; ++i) {
            stages_.ops.push_back(copy(i));
        }
    }
    DctOp & op(int64_t i) { return stages_.ops[(stages_.n_stages - 1) * stages_.n + i]; }

    void before(const Block & b, int64_t m) {
        const int64_t h = m / 2, n_even = m - h, at = b.at;
        if (b.kind == Kind::third) {
            for (int64_t k = 0; k < n_even; ++k) {
                op(at + k) = copy(at + 2 * k);
            }
            for (int64_t k = 0; k < h; ++k) {
                op(at + n_even + k) = copy(at + 2 * k + 1);
            }
            return;
        }
        for (int64_t i = 0; i < h; ++i) {
            const int64_t first = at + i, last = at + m - 1 - i;
            if (b.kind == Kind::second) {
                op(at + i)          = both(first, 1.0f, last, 1.0f);
                op(at + n_even + i) = both(first, 1.0f, last, -1.0f);
            } else {
                const float c  = static_cast<float>(cos_pi(2 * i + 1, 4 * m));
                const float s  = static_cast<float>(cos_pi(2 * m - 2 * i - 1, 4 * m));
                op(at + i)     = both(first, c, last, s);
                op(at + h + i) = i % 2 == 0 ? both(last, c, first, -s) : both(first, s, last, -c);
            }
        }
        if (b.kind == Kind::second && m % 2 != 0) {
            op(at + h) = copy(at + h);
        }
    }

    void after(const Block & b, int64_t m) {
        const int64_t h = m / 2, n_even = m - h, at = b.at;
        if (b.kind == Kind::second) {
            for (int64_t k = 0; k < n_even; ++k) {
                op(at + 2 * k) = copy(at + k);
            }
            for (int64_t k = 0; k < h; ++k) {
                op(at + 2 * k + 1) = copy(at + n_even + k);
            }
        } else if (b.kind == Kind::third) {
            for (int64_t i = 0; i < h; ++i) {
                op(at + i)         = both(at + i, 1.0f, at + n_even + i, 1.0f);
                op(at + m - 1 - i) = both(at + i, 1.0f, at + n_even + i, -1.0f);
            }
            if (m % 2 != 0) {
                op(at + h) = copy(at + h);
            }
        } else {
            op(at)         = copy(at);
            op(at + m - 1) = copy(at + h, -1.0f);
            for (int64_t k = 1; k < h; ++k) {
                op(at + 2 * k)     = both(at + k, 1.0f, at + m - k, 1.0f);
                op(at + 2 * k - 1) = both(at + k, 1.0f, at + m - k, -1.0f);
            }
        }
    }

    // Odd sizes: table sums between the same stages as for even sizes.
    void odd(const std::vector<Block> & blocks, int64_t m) {
        if (m == 1) {
            begin_stage();
            for (const Block & b : blocks) {
                if (b.kind == Kind::fourth) {
                    op(b.at) = copy(b.at, static_cast<float>(cos_pi(1, 4)));
                }
            }
            return;
        }
        const int64_t h = m / 2, n_even = m - h;
        begin_stage();
        for (const Block & b : blocks) {
            if (b.kind != Kind::fourth) {
                before(b, m);
            }
        }
        const int64_t even = table(n_even, n_even, [m](int64_t k, int64_t i) {
            return cos_pi((2 * i + 1) * 2 * k, 2 * m);
        });
        const int64_t odds = table(h, h, [m](int64_t k, int64_t i) {
            return cos_pi((2 * i + 1) * (2 * k + 1), 2 * m);
        });
        const int64_t four = table(m, m, [m](int64_t k, int64_t i) {
            return cos_pi((2 * i + 1) * (2 * k + 1), 4 * m);
        });
        begin_stage();
        for (const Block & b : blocks) {
            if (b.kind == Kind::fourth) {
                times(b.at, four, m, false);
            } else {
                times(b.at, even, n_even, b.kind == Kind::third);
                times(b.at + n_even, odds, h, b.kind == Kind::third);
            }
        }
        begin_stage();
        for (const Block & b : blocks) {
            if (b.kind != Kind::fourth) {
                after(b, m);
            }
        }
    }

    template <class Cosine>
    int64_t table(int64_t rows, int64_t cols, Cosine cosine) {
        const auto at = static_cast<int64_t>(stages_.table.size());
        for (int64_t k = 0; k < rows; ++k) {
            for (int64_t i = 0; i < cols; ++i) {
                stages_.table.push_back(static_cast<float>(cosine(k, i)));
            }
        }
        return at;
    }

    // op(at + k) = sum over i of table[k][i] x[at + i], or of table[i][k]; the table is n x n.
    void times(int64_t at, int64_t table_at, int64_t n, bool transposed) {
        for (int64_t k = 0; k < n; ++k) {
            op(at + k) = {
                0, static_cast<int32_t>(-2 - static_cast<int64_t>(stages_.dots.size())), 0.0f,
                0.0f};
            stages_.dots.push_back(
                {static_cast<int32_t>(at), static_cast<int32_t>(n),
                 static_cast<int32_t>(table_at + (transposed ? k : k * n)),
                 static_cast<int32_t>(transposed ? n : 1)}
            );
        }
    }

    DctStages stages_;
};

}  // namespace

DctStages make_dct_stages(int64_t n, bool inverse) {
    Builder builder(n);
    if (n > 1) {
        if (inverse) {
            builder.scale_first(kHalfRoot);
        }
        builder.run({{inverse ? Kind::third : Kind::second, 0}}, n);
        if (!inverse) {
            builder.scale_first(kHalfRoot);
        }
    }
    return builder.take();
}

size_t DemoPlan::add(const void * data, size_t bytes) {
    const size_t at = tables_.size();
    tables_.resize(at + (bytes + 15) / 16 * 16);
    if (bytes > 0) {
        std::memcpy(tables_.data() + at, data, bytes);
    }
    return at;
}

void DemoPlan::add(const DctStages & s, cuda::DctProgram & program) {
    program.n        = static_cast<int32_t>(s.n);
    program.n_stages = static_cast<int32_t>(s.n_stages);
    program.ops =
        reinterpret_cast<const cuda::DctOp *>(add(s.ops.data(), s.ops.size() * sizeof s.ops[0]));
    program.dots =
        reinterpret_cast<const cuda::DctDot *>(add(s.dots.data(), s.dots.size() * sizeof s.dots[0])
        );
    program.table =
        reinterpret_cast<const float *>(add(s.table.data(), s.table.size() * sizeof s.table[0]));
}

// The low bits of an index, as IndexCode chooses them.
static int32_t low_bits(int64_t n, int64_t k) {
    if (k == n) {
        return -2;
    }
    int64_t best = n;
    int32_t bits = -1;
    for (int32_t low = 0; low <= 16; ++low) {
        const int64_t total = k * low + k + ((n - 1) >> low);
        if (total < best) {
            best = total;
            bits = low;
        }
    }
    return bits;
}

DemoPlan::DemoPlan(const ChunkGrid & grid, int64_t top_k, Wire wire, bool dct) {
    const int64_t n = grid.chunk_size(), k = std::clamp<int64_t>(top_k, 1, n);
    chunks_.rows        = static_cast<int32_t>(grid.side_rows);
    chunks_.cols        = static_cast<int32_t>(grid.side_cols);
    chunks_.k           = static_cast<int32_t>(k);
    chunks_.per_row     = grid.chunks_per_row();
    chunks_.row_step    = grid.side_rows * grid.cols;
    chunks_.stride      = grid.side_rows == 1 ? grid.side_cols : grid.cols;
    chunks_.wire        = static_cast<int32_t>(wire);
    chunks_.low         = low_bits(n, k);
    chunks_.value_bytes = static_cast<int32_t>(group_bytes(wire, Group::sparse, k));
    chunks_.index_bytes = static_cast<int32_t>(IndexCode(n, k).bytes());

    chunks_.plain = !dct;
    if (!dct) {
        return;
    }
    const float along = Dct(grid.side_cols).scale();
    chunks_.factor    = grid.side_rows == 1 ? along : Dct(grid.side_rows).scale() * along;
    add(make_dct_stages(grid.side_cols, false), chunks_.along);
    if (grid.side_rows == 1) {
        add(make_dct_stages(grid.side_cols, true), chunks_.back);
        return;
    }
    add(make_dct_stages(grid.side_rows, false), chunks_.down);
    add(make_dct_stages(grid.side_rows, true), chunks_.back);
    std::vector<float> cosine;
    for (int64_t g = 0; g < grid.side_cols; ++g) {
        for (int64_t c = 0; c < grid.side_cols; ++c) {
            cosine.push_back(static_cast<float>(cos_pi((2 * c + 1) * g, 2 * grid.side_cols)));
        }
    }
    chunks_.cosine =
        reinterpret_cast<const float *>(add(cosine.data(), cosine.size() * sizeof(float)));
}

cuda::DemoChunks DemoPlan::chunks(const void * device_tables, int64_t n_chunks) const {
    cuda::DemoChunks c  = chunks_;
    const auto       at = [&](auto & pointer) {
        pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(
            static_cast<const uint8_t *>(device_tables) + reinterpret_cast<size_t>(pointer)
        );
    };
    for (cuda::DctProgram * p : {&c.down, &c.along, &c.back}) {
        at(p->ops);
        at(p->dots);
        at(p->table);
    }
    at(c.cosine);
    c.n_chunks = n_chunks;
    return c;
}

}  // namespace gt
