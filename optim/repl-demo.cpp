// optim/repl-demo.cpp — demo: the k largest DCT coefficients of each chunk (arXiv 2411.19870).
//
// Without the transform, the same code is sparseloco's extractor (arXiv 2508.15706). The momentum is
// kept as coefficients, chunk after chunk: the gradient is transformed once, the coefficients sent are
// subtracted in place, and only the merged update needs the inverse. A unit's bytes: its chunks, row of
// chunks by row of chunks; each chunk's values (values.h, kind sparse), then its indices (indices.h). A mean has
// all coefficients that one host or another has sent: of each chunk their number less one (u16), then the same.
// Read next: math/transform.h.
#include "optim/math/topk.h"
#include "optim/math/transform.h"
#include "optim/tables.h"
#include "optim/wire/chunk-code.h"
#include "optim/wire/little-endian.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>

namespace gt {

namespace {

constexpr size_t kCountBytes = 2;

enum class Mean { of_senders, of_all };

// Shared by all chunks of one geometry.
struct Kind {
    std::unique_ptr<Transform> transform;
    ChunkCode                  code;
    int64_t                    n = 1, k = 1;  // elements, coefficients sent
};

class Chunked : public Replicator {
public:
    Chunked(const OptimOptions & options, const Shapes & shapes, Wire wire, bool dct, Mean mean)
        : mean_(mean), wire_(mean_wire(wire, Group::sparse)),
          subtract_(dct ? options.subtract : 1.0f) {
        const ChunkTarget target = parse_chunk(options.chunk);
        for (const TensorShape & shape : shapes) {
            const ChunkGrid grid = chunk_grid(shape, target);
            auto &          kind = kinds_[{grid.side_rows, grid.side_cols}];
            if (!kind.transform) {
                kind.transform = dct ? make_dct_transform(grid) : make_identity_transform(grid);
                kind.n         = grid.chunk_size();
                kind.k         = values_per_chunk(options, kind.n);
                kind.code      = ChunkCode(wire, kind.n, kind.k);
            }
            // chunks of one row are contiguous, whatever the grid
            const int64_t stride = grid.side_rows == 1 ? grid.side_cols : grid.cols;
            tensors_.push_back({grid, shape.cols, stride, &kind});
        }
    }

    Plan plan(uint64_t round) const override { return {.round = round}; }

    int64_t bytes(const Plan &, const Unit & unit) const override {
        return n_chunks(unit) * tensors_[unit.tensor].kind->code.bytes();
    }

    void extract(
        const Plan &, const Unit & unit, const Fold & fold, float * momentum, uint8_t * out
    ) const override;

    void give_back(const Plan &, const Unit & unit, const uint8_t * bytes, float * momentum)
        const override;

    const char *
    check(const Plan &, const Unit & unit, const uint8_t * bytes, double & norm2) const override;

    void merge(const Plan &, const Unit & unit, std::span<const Piece> pieces, float * update)
        const override;

    void write_mean(const Plan &, const Unit & unit, std::span<const Piece> pieces, Bytes & out)
        const override;

    const char *
    check_mean(const Plan &, const Unit & unit, std::span<const uint8_t> & in) const override;

    void read_mean(const Plan &, const Unit & unit, const uint8_t * bytes, float * update)
        const override;

private:
    struct Tensor {
        ChunkGrid    grid;
        int64_t      cols;    // of the tensor; those of the grid may differ
        int64_t      stride;  // from row to row of a chunk
        const Kind * kind;
    };

    int64_t n_chunks(const Unit & unit) const {
        const Tensor & tensor = tensors_[unit.tensor];
        return (unit.end - unit.begin) * tensor.cols / tensor.grid.chunk_size();
    }

    // Calls fn(first chunk, number of chunks, offset of the first element) batch by batch.
    template <class Fn>
    void each_batch(const Unit & unit, Fn fn) const {
        const Tensor & tensor  = tensors_[unit.tensor];
        const int64_t  batch   = tensor.kind->transform->batch();
        const int64_t  per_row = tensor.grid.chunks_per_row(), total = n_chunks(unit);
        for (int64_t i = 0; i < total; i += batch) {
            const int64_t offset = i / per_row * tensor.grid.side_rows * tensor.grid.cols +
                                   i % per_row * tensor.grid.side_cols;
            fn(i, std::min(batch, total - i), offset);
        }
    }

    // Prefetches the gradient and momentum of the next chunk: its rows are far apart, and the hardware
    // prefetcher does not follow them.
    void prefetch(
        const Tensor & tensor, const float * grad, const float * m, const Unit & unit, int64_t next
    ) const {
        if (tensor.grid.side_rows == 1 || next >= n_chunks(unit)) {
            return;
        }
        const int64_t per_row = tensor.grid.chunks_per_row(), line = 64 / sizeof(float);
        const float * rows = grad + next / per_row * tensor.grid.side_rows * tensor.grid.cols +
                             next % per_row * tensor.grid.side_cols;
        for (int64_t r = 0; r < tensor.grid.side_rows; ++r) {
            for (int64_t c = 0; c < tensor.grid.side_cols; c += line) {
                __builtin_prefetch(rows + r * tensor.stride + c);
            }
        }
        for (int64_t i = 0; i < tensor.kind->n; i += line) {
            __builtin_prefetch(m + tensor.kind->n + i, 1);
        }
    }

    class Means;
    template <class Next>
    void restore(const Unit & unit, float * update, Next next) const;

    // Of n coefficients of a chunk.
    ChunkCode mean_code(const Unit & unit, size_t n) const {
        return {wire_, tensors_[unit.tensor].kind->n, static_cast<int64_t>(n)};
    }
    static const char * decode(const ChunkCode & code, const uint8_t * bytes, Sparse & chunk) {
        chunk.index.resize(static_cast<size_t>(code.k()));
        chunk.value.resize(static_cast<size_t>(code.k()));
        return code.decode(bytes, chunk.index.data(), chunk.value.data());
    }

    // Decodes a chunk. REQUIRES: it passed `check`.
    void decode(const Kind & kind, const uint8_t * bytes, Sparse & chunk) const {
        const char * why = kind.code.decode(bytes, chunk.index.data(), chunk.value.data());
        GT_CHECK(why == nullptr, "a piece was not checked");
    }

    Mean                                   mean_;
    Wire                                   wire_;  // of means
    float                                  subtract_;
    std::map<std::array<int64_t, 2>, Kind> kinds_;
    std::vector<Tensor>                    tensors_;
};

Sparse make_sparse(int64_t k) {
    return {std::vector<uint16_t>(k), std::vector<float>(k)};
}

void Chunked::extract(
    const Plan &, const Unit & unit, const Fold & fold, float * momentum, uint8_t * out
) const {
    const Tensor &     tensor    = tensors_[unit.tensor];
    const Kind &       kind      = *tensor.kind;
    const Transform &  transform = *kind.transform;
    const LaneBuffer   coefficients(transform.batch() * kind.n), work(transform.scratch_size());
    TopKScratch        scratch;
    Sparse             sent = make_sparse(kind.k);
    std::vector<float> value(kind.k);
    const Fold         folded{coefficients.data(), fold.decay, fold.alpha * transform.factor()};
    each_batch(unit, [&](int64_t first, int64_t n, int64_t offset) {
        float * m = momentum + first * kind.n;
        if (fold.grad != nullptr) {
            prefetch(tensor, fold.grad, m, unit, first + n);
            transform.forward(
                fold.grad + offset, tensor.stride, n, coefficients.data(), work.data()
            );
            fold_elements(folded, n * kind.n, m);
        }
        for (int64_t b = 0; b < n && out != nullptr; ++b, m += kind.n) {
            top_k(m, kind.n, kind.k, sent.index.data(), scratch);
            for (int64_t i = 0; i < kind.k; ++i) {
                value[i] = m[sent.index[i]];
            }
            uint8_t * at = out + (first + b) * kind.code.bytes();
            kind.code.encode(sent.index.data(), value.data(), at, sent.value.data());
            // subtract the values receivers will decode, so that rounding errors stay in the momentum;
            // or a fraction of them (DeMo's second version)
            for (int64_t i = 0; i < kind.k; ++i) {
                m[sent.index[i]] = value[i] - subtract_ * sent.value[i];
            }
        }
    });
}

void Chunked::give_back(const Plan &, const Unit & unit, const uint8_t * bytes, float * momentum)
    const {
    const Kind &  kind  = *tensors_[unit.tensor].kind;
    const int64_t total = n_chunks(unit);
    Sparse        sent  = make_sparse(kind.k);
    for (int64_t i = 0; i < total; ++i, bytes += kind.code.bytes(), momentum += kind.n) {
        decode(kind, bytes, sent);
        for (int64_t j = 0; j < kind.k; ++j) {
            momentum[sent.index[j]] = momentum[sent.index[j]] + subtract_ * sent.value[j];
        }
    }
}

const char *
Chunked::check(const Plan &, const Unit & unit, const uint8_t * bytes, double & norm2) const {
    const Kind &          kind = *tensors_[unit.tensor].kind;
    std::vector<uint16_t> index(kind.k);
    std::vector<float>    value(kind.k);
    const int64_t         total = n_chunks(unit);
    for (int64_t i = 0; i < total; ++i, bytes += kind.code.bytes()) {
        const char * why = kind.code.decode(bytes, index.data(), value.data());
        if (why != nullptr) {
            return why;
        }
        for (const float v : value) {
            norm2 += static_cast<double>(v) * v;
        }
    }
    return nullptr;
}

// Sums a chunk's coefficients over hosts, in the order given.
class Adder {
public:
    explicit Adder(int64_t n) : place_(n), used_((n + 63) / 64, 0) {}

    void add(const Sparse & chunk, const Piece & piece) {
        const double factor = piece.weight * piece.scale;
        for (size_t i = 0; i < chunk.index.size(); ++i) {
            const uint16_t at   = chunk.index[i];
            const uint64_t bit  = 1ull << (at & 63);
            const double   part = factor * static_cast<double>(chunk.value[i]);
            if ((used_[at >> 6] & bit) == 0) {
                used_[at >> 6] |= bit;
                place_[at] = static_cast<uint16_t>(sums_.size());
                sums_.push_back({part, piece.weight});
            } else {
                Sum & sum  = sums_[place_[at]];
                sum.value  = sum.value + part;
                sum.weight = sum.weight + piece.weight;
            }
        }
    }

    // Writes the means, sorted by index, and clears the sums. all: the total weight to divide by; 0:
    // divide by the weight of the coefficient's senders.
    void take(double all, Sparse & out) {
        out.index.resize(sums_.size());
        out.value.resize(sums_.size());
        size_t n = 0;
        for (size_t word = 0; word < used_.size(); ++word) {
            for (uint64_t bits = used_[word]; bits != 0; bits &= bits - 1) {
                const size_t at  = word * 64 + std::countr_zero(bits);
                const Sum &  sum = sums_[place_[at]];
                out.index[n]     = static_cast<uint16_t>(at);
                out.value[n++]   = static_cast<float>(sum.value / (all != 0.0 ? all : sum.weight));
            }
            used_[word] = 0;
        }
        sums_.clear();
    }

private:
    struct Sum {
        double value, weight;
    };
    std::vector<Sum>      sums_;   // in the order of the first occurrence of each index
    std::vector<uint16_t> place_;  // by index: its place in sums_, if used
    std::vector<uint64_t> used_;   // one bit per index
};

// The means of a unit's chunks.
class Chunked::Means {
public:
    Means(const Chunked & replicator, const Unit & unit, std::span<const Piece> pieces)
        : replicator_(replicator), kind_(*replicator.tensors_[unit.tensor].kind), pieces_(pieces),
          one_(make_sparse(kind_.k)), adder_(kind_.n) {
        for (const Piece & piece : pieces) {
            all_ += replicator.mean_ == Mean::of_all ? piece.weight : 0.0;
        }
    }

    void take(int64_t chunk, Sparse & mean) {
        for (const Piece & piece : pieces_) {
            replicator_.decode(kind_, piece.bytes + chunk * kind_.code.bytes(), one_);
            adder_.add(one_, piece);
        }
        adder_.take(all_, mean);
    }

private:
    const Chunked &        replicator_;
    const Kind &           kind_;
    std::span<const Piece> pieces_;
    Sparse                 one_;
    Adder                  adder_;
    double                 all_ = 0.0;
};

// Writes the elements of a unit's chunks, whose coefficients next(chunk, out) tells.
template <class Next>
void Chunked::restore(const Unit & unit, float * update, Next next) const {
    const Tensor &      tensor    = tensors_[unit.tensor];
    const Transform &   transform = *tensor.kind->transform;
    const LaneBuffer    work(transform.scratch_size());
    std::vector<Sparse> merged(transform.batch());
    each_batch(unit, [&](int64_t first, int64_t n, int64_t offset) {
        for (int64_t b = 0; b < n; ++b) {
            next(first + b, merged[b]);
        }
        transform.restore(merged.data(), n, update + offset, tensor.stride, work.data());
    });
}

void Chunked::merge(const Plan &, const Unit & unit, std::span<const Piece> pieces, float * update)
    const {
    Means means(*this, unit, pieces);
    restore(unit, update, [&](int64_t chunk, Sparse & mean) { means.take(chunk, mean); });
}

void Chunked::write_mean(
    const Plan &, const Unit & unit, std::span<const Piece> pieces, Bytes & out
) const {
    Means  means(*this, unit, pieces);
    Sparse mean;
    for (int64_t chunk = 0; chunk < n_chunks(unit); ++chunk) {
        means.take(chunk, mean);
        const ChunkCode code  = mean_code(unit, mean.index.size());
        const size_t    begin = out.size();
        out.resize(begin + kCountBytes + static_cast<size_t>(code.bytes()));
        put(out.data() + begin, static_cast<uint16_t>(code.k() - 1));
        code.encode(
            mean.index.data(), mean.value.data(), out.data() + begin + kCountBytes,
            mean.value.data()
        );
    }
}

const char *
Chunked::check_mean(const Plan &, const Unit & unit, std::span<const uint8_t> & in) const {
    Sparse mean;
    for (int64_t chunk = 0; chunk < n_chunks(unit); ++chunk) {
        if (in.size() < kCountBytes) {
            return "the mean is too short";
        }
        const int64_t n = int64_t{get<uint16_t>(in.data())} + 1;
        if (n > tensors_[unit.tensor].kind->n) {
            return "the mean of a chunk has too many coefficients";
        }
        const ChunkCode code = mean_code(unit, static_cast<size_t>(n));
        const size_t    size = kCountBytes + static_cast<size_t>(code.bytes());
        if (in.size() < size) {
            return "the mean is too short";
        }
        if (const char * why = decode(code, in.data() + kCountBytes, mean)) {
            return why;
        }
        in = in.subspan(size);
    }
    return nullptr;
}

void Chunked::read_mean(const Plan &, const Unit & unit, const uint8_t * bytes, float * update)
    const {
    restore(unit, update, [&](int64_t, Sparse & mean) {
        const ChunkCode code = mean_code(unit, size_t{get<uint16_t>(bytes)} + 1);
        const char *    why  = decode(code, bytes + kCountBytes, mean);
        GT_CHECK(why == nullptr, "a mean was not checked");
        bytes += kCountBytes + code.bytes();
    });
}

}  // namespace

std::unique_ptr<Replicator>
make_demo(const OptimOptions & options, const Shapes & shapes, Wire wire) {
    return std::make_unique<Chunked>(options, shapes, wire, true, Mean::of_senders);
}

std::unique_ptr<Replicator>
make_top_k(const OptimOptions & options, const Shapes & shapes, Wire wire) {
    return std::make_unique<Chunked>(options, shapes, wire, false, Mean::of_all);
}

}  // namespace gt
