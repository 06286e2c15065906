// comm/local-threads.cpp — LocalGroup over shared memory: each rank reads the others' data where it
// lies. Sums are taken in rank order, so the result does not depend on timing.
#include "comm/local-group.h"

#include <algorithm>
#include <cstring>

namespace gt {

void check_slices(
    const LocalGroup & group, std::span<const int64_t> offsets, size_t full_size, size_t shard_size
) {
    const auto r = static_cast<size_t>(group.rank());
    GT_CHECK(
        offsets.size() == static_cast<size_t>(group.size()) + 1, "an offset per rank, and the end"
    );
    GT_CHECK(offsets.front() == 0, "the first slice starts at 0");
    GT_CHECK(std::is_sorted(offsets.begin(), offsets.end()), "slices follow one another");
    GT_CHECK(offsets.back() == static_cast<int64_t>(full_size), "slices cover the whole");
    GT_CHECK(
        offsets[r + 1] - offsets[r] == static_cast<int64_t>(shard_size), "the shard is the slice"
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
        check_slices(*this, offsets, full.size(), shard.size());
        meeting_.arrive(rank_, {"reduce_scatter", digest_offsets(offsets), full.data()});
        // Block by block, so that the sum stays in the cache while rank after rank is added.
        constexpr size_t kBlock = 4096;
        const auto       offset = static_cast<size_t>(offsets[static_cast<size_t>(rank_)]);
        for (size_t begin = 0; begin < shard.size(); begin += kBlock) {
            const size_t n = std::min(kBlock, shard.size() - begin);
            float        sum[kBlock];
            std::memcpy(sum, of(0) + offset + begin, n * sizeof(float));
            for (int r = 1; r < size(); ++r) {
                const float * other = of(r) + offset + begin;
                for (size_t i = 0; i < n; ++i) {
                    sum[i] += other[i];
                }
            }
            std::memcpy(shard.data() + begin, sum, n * sizeof(float));
        }
        meeting_.depart(rank_);
    }

    void all_gather(
        std::span<const float> shard, std::span<const int64_t> offsets, std::span<float> full
    ) override {
        check_slices(*this, offsets, full.size(), shard.size());
        meeting_.arrive(rank_, {"all_gather", digest_offsets(offsets), shard.data()});
        for (int r = 0; r < size(); ++r) {
            const auto i  = static_cast<size_t>(r);
            float *    to = full.data() + offsets[i];
            if (to != of(r)) {  // in place: our own slice is there already
                std::copy_n(of(r), offsets[i + 1] - offsets[i], to);
            }
        }
        meeting_.depart(rank_);
    }

    void broadcast(std::span<uint8_t> data, int root) override {
        GT_CHECK(root >= 0 && root < size(), "root is a rank");
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
    const float * of(int rank) const { return static_cast<const float *>(meeting_.data(rank)); }

    Rendezvous & meeting_;
    int          rank_;
};

}  // namespace

std::unique_ptr<LocalGroup> make_local_threads(Rendezvous & meeting, int rank) {
    return std::make_unique<LocalThreads>(meeting, rank);
}

}  // namespace gt
