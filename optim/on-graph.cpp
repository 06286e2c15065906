#include "optim/on-graph.h"

#include "optim/wire/chunk-code.h"
#include "optim/wire/in-flight.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gt {

namespace {

using Coefficients = DctMomentum::Coefficients;

class DemoOnGraph : public RankOptimizer {
public:
    DemoOnGraph(
        OptimizerParts       parts,
        const OptimOptions & options,
        Wire                 wire,
        bool                 sign,
        DctMomentum &        momentum
    )
        : RankOptimizer(std::move(parts)), subtract_(options.subtract), sign_(sign),
          momentum_(momentum), chunks_(dct_chunks(options, parts_.units->shapes())) {
        GT_CHECK(parts_.units->owns_all(), "the graphs fold whole tensors");
        for (const DctChunks & chunks : chunks_) {
            codes_.emplace_back(wire, chunks.grid.chunk_size(), chunks.k);
        }
    }

    void apply(const Round & round) override {
        if (round.has_mine) {
            in_flight_.forget(round.step);
        }
        apply_mean(parts_, round, sign_, [](const Unit &, const float *) {});
    }

    void take_back(uint64_t step) override {
        Bytes kept = in_flight_.take(step);
        if (kept.empty()) {
            return;
        }
        const Part                part    = parts_.layout->part(step);
        const Bytes               message = parts_.layout->part_of(part, step, std::move(kept));
        std::vector<Coefficients> back    = nothing();
        parts_.units->run_owned([&](int i, float *) {
            const Unit & unit = parts_.units->all()[i];
            if (is_valid(
                    parts_.layout->replicator(), part.plan, unit, message.data() + part.offsets[i]
                )) {
                decode(unit, message.data() + part.offsets[i], back[unit.tensor]);
            }
        });
        momentum_.add(back);
    }

    void drop_residual() override {
        for (size_t t = 0; t < chunks_.size(); ++t) {
            momentum_.tensor(t).zero();
        }
    }

    OptimizerState state() override {
        OptimizerState state;
        for (size_t t = 0; t < chunks_.size(); ++t) {
            const Floats momentum = momentum_.tensor(t);
            state.tensors.push_back(
                {"momentum." + parts_.units->shapes()[t].name, momentum.values, false,
                 momentum.memory}
            );
        }
        in_flight_.add_state(state);
        parts_.rule->add_state(state, true);
        return state;
    }

protected:
    double norm() override { return std::sqrt(momentum_.grad_squares()); }

    // m = decay·m + lr·g;  q = extract(m);  m -= restore(q)
    Bytes pack(uint64_t step, float lr, float grad_scale) override {
        if (grad_scale != 0.0f) {
            momentum_.fold(lr * grad_scale);
        }
        if (!parts_.layout->due(step)) {
            return {};
        }
        const Part                part    = parts_.layout->part(step);
        Bytes                     message = parts_.layout->blank(part, step, lr);
        std::vector<Coefficients> sent    = momentum_.largest();
        parts_.units->run_owned([&](int i, float *) {
            const Unit & unit = parts_.units->all()[i];
            encode(unit, sent[unit.tensor], message.data() + part.offsets[i]);
        });
        momentum_.add(sent);
        in_flight_.keep(step, message);
        return message;
    }

private:
    // Calls fn(offset of the chunk's first coefficient in Coefficients, offset of its bytes).
    template <class Fn>
    void each_chunk(const Unit & unit, Fn fn) const {
        const DctChunks & chunks = chunks_[unit.tensor];
        const int64_t     n      = chunks.grid.chunk_size();
        const int64_t first = parts_.units->offset(unit) / n, count = parts_.units->size(unit) / n;
        for (int64_t c = 0; c < count; ++c) {
            fn((first + c) * chunks.k, c * codes_[unit.tensor].bytes());
        }
    }

    // Writes the bytes of a unit, and replaces the coefficients by what the momentum loses.
    void encode(const Unit & unit, Coefficients & sent, uint8_t * out) const {
        const int64_t         k = chunks_[unit.tensor].k;
        std::vector<int64_t>  order(k);
        std::vector<uint16_t> index(k);
        std::vector<float>    value(k), restored(k);
        each_chunk(unit, [&](int64_t at, int64_t byte) {
            std::iota(order.begin(), order.end(), at);
            std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
                return sent.place[a] < sent.place[b];
            });
            for (int64_t i = 0; i < k; ++i) {
                index[i] = static_cast<uint16_t>(sent.place[order[i]]);
                value[i] = sent.value[order[i]];
            }
            codes_[unit.tensor].encode(index.data(), value.data(), out + byte, restored.data());
            for (int64_t i = 0; i < k; ++i) {
                sent.place[at + i] = index[i];
                sent.value[at + i] = -(subtract_ * restored[i]);
            }
        });
    }

    // Reads from the bytes of a unit what the momentum lost. REQUIRES: they are valid.
    void decode(const Unit & unit, const uint8_t * bytes, Coefficients & lost) const {
        const int64_t         k = chunks_[unit.tensor].k;
        std::vector<uint16_t> index(k);
        std::vector<float>    value(k);
        each_chunk(unit, [&](int64_t at, int64_t byte) {
            const char * why = codes_[unit.tensor].decode(bytes + byte, index.data(), value.data());
            GT_CHECK(why == nullptr, "a message was not checked");
            for (int64_t i = 0; i < k; ++i) {
                lost.place[at + i] = index[i];
                lost.value[at + i] = subtract_ * value[i];
            }
        });
    }

    // Zero for the first k places of each chunk.
    std::vector<Coefficients> nothing() const {
        std::vector<Coefficients> all(chunks_.size());
        for (size_t t = 0; t < all.size(); ++t) {
            const int64_t k = chunks_[t].k, n = k * chunks_[t].grid.n_chunks();
            all[t].value.resize(n);
            for (int64_t i = 0; i < n; ++i) {
                all[t].place.push_back(static_cast<int32_t>(i % k));
            }
        }
        return all;
    }

    float                  subtract_;
    bool                   sign_;
    DctMomentum &          momentum_;
    std::vector<DctChunks> chunks_;
    std::vector<ChunkCode> codes_;
    InFlight               in_flight_;
};

}  // namespace

std::unique_ptr<Optimizer> make_demo_on_graph(
    OptimizerParts parts, const OptimOptions & options, Wire wire, bool sign, DctMomentum & momentum
) {
    return std::make_unique<DemoOnGraph>(std::move(parts), options, wire, sign, momentum);
}

std::vector<DctChunks> dct_chunks(const OptimOptions & options, const Shapes & shapes) {
    std::vector<DctChunks> chunks;
    for (const TensorShape & shape : shapes) {
        const ChunkGrid grid = chunk_grid(shape, parse_chunk(options.chunk));
        chunks.push_back({grid, values_per_chunk(options, grid.chunk_size())});
    }
    return chunks;
}

}  // namespace gt
