// comm/local/local-threads.cpp — LocalGroup over shared memory: each rank reads the others' data in
// place. Sums are taken in rank order, so the result does not depend on timing.
#include "comm/local/local-group.h"

#include <algorithm>

namespace gt {

void check_offsets(
    const LocalGroup & group, std::span<const int64_t> offsets, size_t full_size, size_t shard_size
) {
    const auto r = static_cast<size_t>(group.rank());
    GT_CHECK(
        offsets.size() == static_cast<size_t>(group.size()) + 1,
        "offsets need one entry per rank and one more"
    );
    GT_CHECK(offsets.front() == 0, "offsets must start at 0");
    GT_CHECK(std::is_sorted(offsets.begin(), offsets.end()), "offsets must ascend");
    GT_CHECK(
        offsets.back() == static_cast<int64_t>(full_size),
        "offsets must end at the size of the whole"
    );
    GT_CHECK(
        offsets[r + 1] - offsets[r] == static_cast<int64_t>(shard_size),
        "the shard does not fit its offsets"
    );
}

uint64_t digest_offsets(std::span<const int64_t> offsets) {
    return digest64({reinterpret_cast<const uint8_t *>(offsets.data()), offsets.size_bytes()});
}

namespace {

class LocalThreads : public LocalGroup {
public:
    LocalThreads(Rendezvous & meeting, int rank) : meeting_(meeting), rank_(rank) {}

    int rank() const override { return rank_; }
    int size() const override { return meeting_.size(); }

    void reduce_scatter(
        std::span<const float> full, std::span<const int64_t> offsets, std::span<float> shard
    ) override {
        check_offsets(*this, offsets, full.size(), shard.size());
        meeting_.arrive(rank_, {"reduce_scatter", digest_offsets(offsets), full.data()});
        const auto offset = static_cast<size_t>(offsets[static_cast<size_t>(rank_)]);
        sum_ranks(offset, offset + shard.size(), [&](size_t begin, std::span<const float> sum) {
            std::copy(sum.begin(), sum.end(), shard.data() + (begin - offset));
        });
        meeting_.depart(rank_);
    }

    // Each rank sums a range and writes it to all ranks.
    void all_reduce(std::span<float> data) override {
        meeting_.arrive(rank_, {"all_reduce", data.size(), data.data()});
        const auto r = static_cast<size_t>(rank_), n = static_cast<size_t>(size());
        sum_ranks(
            data.size() * r / n, data.size() * (r + 1) / n,
            [&](size_t begin, std::span<const float> sum) {
                for (int to = 0; to < size(); ++to) {
                    std::copy(sum.begin(), sum.end(), const_cast<float *>(of(to)) + begin);
                }
            }
        );
        meeting_.depart(rank_);
    }

    void all_gather(
        std::span<const float> shard, std::span<const int64_t> offsets, std::span<float> full
    ) override {
        check_offsets(*this, offsets, full.size(), shard.size());
        meeting_.arrive(rank_, {"all_gather", digest_offsets(offsets), shard.data()});
        for (int r = 0; r < size(); ++r) {
            const auto i  = static_cast<size_t>(r);
            float *    to = full.data() + offsets[i];
            if (to != of(r)) {  // our own shard may be there already
                std::copy_n(of(r), offsets[i + 1] - offsets[i], to);
            }
        }
        meeting_.depart(rank_);
    }

    void broadcast(std::span<uint8_t> data, int root) override {
        GT_CHECK(root >= 0 && root < size(), "root is not a rank");
        const uint64_t what[] = {data.size(), static_cast<uint64_t>(root)};
        meeting_.arrive(
            rank_, {"broadcast", digest64({reinterpret_cast<const uint8_t *>(what), sizeof what}),
                    data.data()}
        );
        if (rank_ != root) {
            std::copy_n(
                static_cast<const uint8_t *>(meeting_.data(root)), data.size(), data.data()
            );
        }
        meeting_.depart(rank_);
    }

    void barrier() override { meeting_.arrive(rank_, {"barrier"}); }

private:
    // Calls put(at, sum) for [begin, end) of all ranks' data, block by block, so that the sum stays in
    // the cache.
    template <class Put>
    void sum_ranks(size_t begin, size_t end, const Put & put) const {
        constexpr size_t kBlock = 4096;
        for (; begin < end; begin += kBlock) {
            const size_t n = std::min(kBlock, end - begin);
            float        sum[kBlock];
            std::copy_n(of(0) + begin, n, sum);
            for (int r = 1; r < size(); ++r) {
                const float * other = of(r) + begin;
                for (size_t i = 0; i < n; ++i) {
                    sum[i] += other[i];
                }
            }
            put(begin, {sum, n});
        }
    }

    const float * of(int rank) const { return static_cast<const float *>(meeting_.data(rank)); }

    Rendezvous & meeting_;
    int          rank_;
};

}  // namespace

std::unique_ptr<LocalGroup> make_local_threads(Rendezvous & meeting, int rank) {
    return std::make_unique<LocalThreads>(meeting, rank);
}

}  // namespace gt
