// comm/local/local-nccl.cpp — LocalGroup over NCCL: float data stays in the memory of each rank's GPU.
//
// Ranks first meet in host memory, so that a failed rank is noticed before NCCL waits for it on the
// device. broadcast and barrier use host memory only: ranks are threads of one process. NCCL does not
// guarantee an order of summation: good enough for gradients inside a host, but not for state that
// hosts must agree on.
#include "comm/local/local-group.h"
#include "comm/local/nccl-table.h"

#include <algorithm>
#include <thread>

namespace gt {

struct NcclClique {
    NcclTable        nccl;
    std::vector<int> devices;
    NcclId           id;
};

std::shared_ptr<NcclClique>
make_nccl_clique(const std::vector<int> & devices, const std::string & library) {
    auto clique     = std::make_shared<NcclClique>();
    clique->nccl    = load_nccl(library);
    clique->devices = devices;
    int n_devices   = 0;  // not set without a driver
    clique->nccl.check(clique->nccl.cudaGetDeviceCount(&n_devices), "no usable GPU");
    for (const int device : devices) {
        if (device < 0 || device >= n_devices) {
            throw Error(
                format("cuda:%d does not exist; this machine has %d GPUs", device, n_devices)
            );
        }
    }
    clique->nccl.check(clique->nccl.ncclGetUniqueId(&clique->id), "cannot start");
    return clique;
}

namespace {

class LocalNccl : public LocalGroup {
public:
    LocalNccl(std::shared_ptr<NcclClique> clique, Rendezvous & meeting, int rank)
        : clique_(std::move(clique)), nccl_(clique_->nccl), meeting_(meeting), rank_(rank),
          host_(make_local_threads(meeting, rank)) {
        use_device();
        constexpr unsigned kNonBlocking = 1;  // cudaStreamNonBlocking
        nccl_.check(nccl_.cudaStreamCreateWithFlags(&stream_, kNonBlocking), "no stream");
        meeting_.arrive(rank_, {"NCCL's start"});
        nccl_.check(nccl_.ncclCommInitRank(&comm_, size(), clique_->id, rank_), "cannot start");
    }

    ~LocalNccl() override {
        if (comm_ != nullptr) {
            // after a failure other ranks do not call ncclCommDestroy
            (void) (meeting_.failure() ? nccl_.ncclCommAbort : nccl_.ncclCommDestroy)(comm_);
        }
        (void) nccl_.cudaStreamDestroy(stream_);
    }

    int rank() const override { return rank_; }
    int size() const override { return meeting_.size(); }

    void reduce_scatter(
        std::span<const float> full, std::span<const int64_t> offsets, std::span<float> shard
    ) override {
        check_offsets(*this, offsets, full.size(), shard.size());
        use_device();
        meeting_.arrive(rank_, {"reduce_scatter", digest_offsets(offsets)});
        if (equal(offsets)) {
            nccl_.check(
                nccl_.ncclReduceScatter(
                    full.data(), shard.data(), shard.size(), kNcclFloat32, kNcclSum, comm_, stream_
                ),
                "reduce_scatter"
            );
        } else {
            each_shard(offsets, "reduce_scatter", [&](int r, size_t begin, size_t n) {
                return nccl_.ncclReduce(
                    full.data() + begin, r == rank_ ? shard.data() : nullptr, n, kNcclFloat32,
                    kNcclSum, r, comm_, stream_
                );
            });
        }
        finish("reduce_scatter");
    }

    void all_gather(
        std::span<const float> shard, std::span<const int64_t> offsets, std::span<float> full
    ) override {
        check_offsets(*this, offsets, full.size(), shard.size());
        use_device();
        meeting_.arrive(rank_, {"all_gather", digest_offsets(offsets)});
        if (equal(offsets)) {
            nccl_.check(
                nccl_.ncclAllGather(
                    shard.data(), full.data(), shard.size(), kNcclFloat32, comm_, stream_
                ),
                "all_gather"
            );
        } else {
            each_shard(offsets, "all_gather", [&](int r, size_t begin, size_t n) {
                float * to = full.data() + begin;
                return nccl_.ncclBroadcast(
                    r == rank_ ? shard.data() : to, to, n, kNcclFloat32, r, comm_, stream_
                );
            });
        }
        finish("all_gather");
    }

    void all_reduce(std::span<float> data) override {
        use_device();
        meeting_.arrive(rank_, {"all_reduce", data.size()});
        nccl_.check(
            nccl_.ncclAllReduce(
                data.data(), data.data(), data.size(), kNcclFloat32, kNcclSum, comm_, stream_
            ),
            "all_reduce"
        );
        finish("all_reduce");
    }

    void broadcast(std::span<uint8_t> data, int root) override { host_->broadcast(data, root); }
    void barrier() override { host_->barrier(); }

private:
    // The current device is per thread, and a rank may call from any thread.
    void use_device() {
        const int device = clique_->devices[static_cast<size_t>(rank_)];
        nccl_.check(nccl_.cudaSetDevice(device), "cannot use the device");
    }

    static bool equal(std::span<const int64_t> offsets) {
        for (size_t r = 2; r < offsets.size(); ++r) {
            if (offsets[r] - offsets[r - 1] != offsets[1]) {
                return false;
            }
        }
        return true;
    }

    // Shards of unequal length: one call per rank, in a group, so that they overlap.
    template <class Call>
    void each_shard(std::span<const int64_t> offsets, const char * what, const Call & call) {
        nccl_.check(nccl_.ncclGroupStart(), what);
        NcclResult worst = kNcclSuccess;
        for (int r = 0; r < size(); ++r) {
            const int64_t begin = offsets[static_cast<size_t>(r)];
            const int64_t n     = offsets[static_cast<size_t>(r) + 1] - begin;
            if (n > 0) {
                worst =
                    std::max(worst, call(r, static_cast<size_t>(begin), static_cast<size_t>(n)));
            }
        }
        const NcclResult end = nccl_.ncclGroupEnd();
        nccl_.check(worst, what);
        nccl_.check(end, what);
    }

    // Waits for the device; throws if a rank fails meanwhile.
    void finish(const char * what) {
        for (;;) {
            const CudaResult state = nccl_.cudaStreamQuery(stream_);
            if (state == kCudaSuccess) {
                return;
            }
            if (state != kCudaNotReady) {
                nccl_.check(state, what);
            }
            NcclResult async = kNcclSuccess;
            nccl_.check(nccl_.ncclCommGetAsyncError(comm_, &async), what);
            nccl_.check(async, what);
            if (const std::exception_ptr failure = meeting_.failure()) {
                std::rethrow_exception(failure);
            }
            std::this_thread::yield();
        }
    }

    std::shared_ptr<NcclClique> clique_;
    const NcclTable &           nccl_;
    Rendezvous &                meeting_;
    int                         rank_;
    std::unique_ptr<LocalGroup> host_;
    NcclComm *                  comm_   = nullptr;
    CudaStream *                stream_ = nullptr;
};

}  // namespace

std::unique_ptr<LocalGroup>
make_local_nccl(std::shared_ptr<NcclClique> clique, Rendezvous & meeting, int rank) {
    return std::make_unique<LocalNccl>(std::move(clique), meeting, rank);
}

}  // namespace gt
