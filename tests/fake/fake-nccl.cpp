// tests/fake/fake-nccl.cpp — a replacement for libnccl.so.2 (and the few CUDA runtime calls used with
// it) over host memory, loaded through GT_NCCL_LIB. It enforces NCCL's rules: all ranks make the same
// calls with the same sizes, on the device they started with, grouped where required; and it reports a
// hang instead of hanging. Results are written late, when the stream is queried for the second time, so
// that a caller that does not wait reads old data.
//
// GT_FAKE_NCCL_DEVICES=n         number of devices (8)
// GT_FAKE_NCCL_FAIL=rank:call    this call (counted from 0) of this rank returns an error
// Not modelled: the order of NCCL's sums, several streams per communicator.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace {

enum Result { kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5 };
enum CudaError { kCudaSuccess = 0, kCudaInvalidDevice = 101, kCudaNotReady = 600 };

struct Call {
    std::string  verb;
    const void * send = nullptr;
    void *       recv = nullptr;
    size_t       n    = 0;
    int          type = 0, op = 0, root = 0;
    bool         same_as(const Call & o) const {
                return verb == o.verb && n == o.n && type == o.type && op == o.op && root == o.root;
    }
};

// The ranks that share a unique id.
struct Clique {
    std::mutex                            mutex;
    std::condition_variable               changed;
    int                                   n = 0, n_here = 0;
    std::map<size_t, std::map<int, Call>> pending;  // call number -> rank -> call
    std::string                           error;
};

std::mutex                                     g_mutex;
std::map<std::string, std::shared_ptr<Clique>> g_cliques;
int                                            g_next_id = 1;
constexpr auto                                 kPatience = std::chrono::seconds(5);

Result fail(const std::string & why) {
    std::fprintf(stderr, "fake-nccl: %s\n", why.c_str());
    return kInvalidUsage;
}

}  // namespace

struct ncclComm {
    std::shared_ptr<Clique> clique;
    int                     rank = 0, device = 0;
    size_t                  n_calls = 0;
    bool                    aborted = false;
};

// Results, held back until the stream is queried for the second time.
struct CUstream_st {
    struct Write {
        std::vector<char> bytes;
        void *            to = nullptr;
    };
    std::vector<Write> writes;
    bool               asked = false;
};

namespace {

thread_local int t_device = 0, t_depth = 0;
thread_local std::vector<std::pair<std::pair<ncclComm *, CUstream_st *>, Call>> t_queue;

size_t size_of(int type) {
    return type == 7 ? 4 : 1;  // float32, else uint8
}

std::vector<char> result_of(const std::map<int, Call> & calls, int rank) {
    const Call & mine  = calls.at(rank);
    const size_t bytes = mine.n * size_of(mine.type);
    if (mine.verb == "Broadcast") {
        const char * from = static_cast<const char *>(calls.at(mine.root).send);
        return {from, from + bytes};
    }
    if (mine.verb == "AllGather") {
        std::vector<char> all;
        for (const auto & [r, call] : calls) {
            const char * from = static_cast<const char *>(call.send);
            all.insert(all.end(), from, from + bytes);
        }
        return all;
    }
    if (mine.verb == "Reduce" && rank != mine.root) {
        return {};
    }
    const size_t       skip = mine.verb == "ReduceScatter" ? static_cast<size_t>(rank) * mine.n : 0;
    std::vector<float> sum(mine.n, 0.0f);
    for (const auto & [r, call] : calls) {
        for (size_t i = 0; i < mine.n; ++i) {
            sum[i] = (r == 0 ? 0.0f : sum[i]) + static_cast<const float *>(call.send)[skip + i];
        }
    }
    std::vector<char> out(bytes);
    if (bytes > 0) {
        std::memcpy(out.data(), sum.data(), bytes);
    }
    return out;
}

// Waits for the other ranks, reads their data, and queues our result on the stream. All ranks read
// before any rank returns, so that in-place calls are safe.
Result meet(ncclComm * comm, CUstream_st * stream, const Call & call) {
    Clique &         c      = *comm->clique;
    const size_t     number = comm->n_calls++;
    std::unique_lock lock(c.mutex);
    if (const char * spec = std::getenv("GT_FAKE_NCCL_FAIL")) {
        if (spec == std::to_string(comm->rank) + ":" + std::to_string(number)) {
            return kSystemError;
        }
    }
    auto & calls      = c.pending[number];
    calls[comm->rank] = call;
    c.changed.notify_all();
    if (!c.changed.wait_for(lock, kPatience, [&] {
            return static_cast<int>(calls.size()) >= c.n || !c.error.empty();
        })) {
        c.error = "rank " + std::to_string(comm->rank) + " waits in " + call.verb +
                  ", others never came (missing group, or a rank that failed?)";
    }
    for (const auto & [r, other] : calls) {
        if (c.error.empty() && !other.same_as(calls.begin()->second)) {
            c.error = "ranks disagree: " + calls.begin()->second.verb + "(" +
                      std::to_string(calls.begin()->second.n) + ") and " + other.verb + "(" +
                      std::to_string(other.n) + ") of rank " + std::to_string(r);
        }
    }
    if (!c.error.empty()) {
        c.changed.notify_all();
        return fail(c.error);
    }
    stream->writes.push_back({result_of(calls, comm->rank), call.recv});
    // the data of this call may be overwritten once all have read it
    auto & done = c.pending[number | size_t(1) << 63];
    done[comm->rank];
    c.changed.notify_all();
    c.changed.wait_for(lock, kPatience, [&] { return static_cast<int>(done.size()) >= c.n; });
    return kSuccess;
}

Result call(ncclComm * comm, CUstream_st * stream, const Call & what) {
    if (comm == nullptr || comm->aborted || stream == nullptr) {
        return kInvalidArgument;
    }
    if (t_device != comm->device) {
        return fail(what.verb + ": the current device is not the communicator's");
    }
    if (t_depth > 0) {
        t_queue.push_back({{comm, stream}, what});
        return kSuccess;
    }
    return meet(comm, stream, what);
}

}  // namespace

extern "C" {

const char * ncclGetErrorString(Result r) {
    return r == kSuccess       ? "no error"
           : r == kSystemError ? "unhandled system error"
                               : "invalid usage";
}

struct ncclUniqueId {
    char internal[128];
};

Result ncclGetUniqueId(ncclUniqueId * id) {
    const std::lock_guard lock(g_mutex);
    std::snprintf(id->internal, sizeof id->internal, "fake-%d", g_next_id++);
    return kSuccess;
}

Result ncclCommInitRank(ncclComm ** comm, int n, ncclUniqueId id, int rank) {
    std::shared_ptr<Clique> clique;
    {
        const std::lock_guard lock(g_mutex);
        auto &                slot = g_cliques[id.internal];
        if (!slot) {
            slot    = std::make_shared<Clique>();
            slot->n = n;
        }
        clique = slot;
    }
    std::unique_lock lock(clique->mutex);
    if (clique->n != n) {
        return fail("ranks disagree on their number");
    }
    ++clique->n_here;
    clique->changed.notify_all();
    if (!clique->changed.wait_for(lock, kPatience, [&] { return clique->n_here >= n; })) {
        return fail("not all ranks called ncclCommInitRank");
    }
    *comm = new ncclComm{clique, rank, t_device};
    return kSuccess;
}

Result ncclCommDestroy(ncclComm * comm) {
    delete comm;
    return kSuccess;
}

Result ncclCommAbort(ncclComm * comm) {
    {
        const std::lock_guard lock(comm->clique->mutex);
        comm->clique->error = "aborted";
    }
    comm->clique->changed.notify_all();
    delete comm;
    return kSuccess;
}

Result ncclCommGetAsyncError(ncclComm *, Result * result) {
    *result = kSuccess;
    return kSuccess;
}

Result ncclGroupStart() {
    ++t_depth;
    return kSuccess;
}

Result ncclGroupEnd() {
    if (t_depth == 0) {
        return fail("ncclGroupEnd without ncclGroupStart");
    }
    if (--t_depth > 0) {
        return kSuccess;
    }
    Result worst = kSuccess;
    for (const auto & [where, what] : std::exchange(t_queue, {})) {
        worst = std::max(worst, meet(where.first, where.second, what));
    }
    return worst;
}

Result ncclReduceScatter(
    const void *  send,
    void *        recv,
    size_t        n,
    int           type,
    int           op,
    ncclComm *    comm,
    CUstream_st * stream
) {
    return call(comm, stream, {"ReduceScatter", send, recv, n, type, op, 0});
}

Result ncclAllReduce(
    const void *  send,
    void *        recv,
    size_t        n,
    int           type,
    int           op,
    ncclComm *    comm,
    CUstream_st * stream
) {
    return call(comm, stream, {"AllReduce", send, recv, n, type, op, 0});
}

Result ncclAllGather(
    const void * send, void * recv, size_t n, int type, ncclComm * comm, CUstream_st * stream
) {
    return call(comm, stream, {"AllGather", send, recv, n, type, 0, 0});
}

Result ncclReduce(
    const void *  send,
    void *        recv,
    size_t        n,
    int           type,
    int           op,
    int           root,
    ncclComm *    comm,
    CUstream_st * stream
) {
    return call(comm, stream, {"Reduce", send, recv, n, type, op, root});
}

Result ncclBroadcast(
    const void *  send,
    void *        recv,
    size_t        n,
    int           type,
    int           root,
    ncclComm *    comm,
    CUstream_st * stream
) {
    return call(comm, stream, {"Broadcast", send, recv, n, type, 0, root});
}

const char * cudaGetErrorString(CudaError error) {
    return error == kCudaInvalidDevice ? "invalid device ordinal" : "no error";
}

CudaError cudaGetDeviceCount(int * n) {
    const char * text = std::getenv("GT_FAKE_NCCL_DEVICES");
    *n                = text != nullptr ? std::atoi(text) : 8;
    return kCudaSuccess;
}

CudaError cudaSetDevice(int device) {
    int n = 0;
    (void) cudaGetDeviceCount(&n);
    t_device = device;
    return device >= 0 && device < n ? kCudaSuccess : kCudaInvalidDevice;
}

CudaError cudaStreamCreateWithFlags(CUstream_st ** stream, unsigned) {
    *stream = new CUstream_st;
    return kCudaSuccess;
}

CudaError cudaStreamDestroy(CUstream_st * stream) {
    delete stream;
    return kCudaSuccess;
}

CudaError cudaStreamQuery(CUstream_st * stream) {
    if (!stream->writes.empty() && !std::exchange(stream->asked, true)) {
        return kCudaNotReady;
    }
    stream->asked = false;
    for (const CUstream_st::Write & write : std::exchange(stream->writes, {})) {
        if (!write.bytes.empty()) {
            std::memcpy(write.to, write.bytes.data(), write.bytes.size());
        }
    }
    return kCudaSuccess;
}

}  // extern "C"
