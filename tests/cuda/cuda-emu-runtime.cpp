// tests/cuda/cuda-emu-runtime.cpp — CUDA's runtime for the emulator: device memory and streams.
// Like cuda-emu.cpp, never compiled with sanitizers.
#include "cuda-emu.h"
#include "tests/fake/lazy-queue.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <utility>

std::function<void(const cuda_emu::Launch &)> cuda_emu::launch_hook;

// ---- device memory ----------------------------------------------------------------------------------

namespace {

constexpr size_t kPage = 4096;

struct Mapping {
    char * map       = nullptr;  // without the guard pages
    size_t map_bytes = 0;
    size_t bytes     = 0;
};
std::mutex                g_mutex;
std::map<char *, Mapping> g_memory;
int                       g_open = 0;

// While one exists, device memory is accessible.
struct Open {
    Open() { toggle(1, PROT_READ | PROT_WRITE); }
    ~Open() { toggle(-1, PROT_NONE); }
    static void toggle(int by, int access) {
        const std::lock_guard lock(g_mutex);
        g_open += by;
        if (g_open == (by > 0 ? 1 : 0)) {
            for (const auto & [begin, m] : g_memory) {
                mprotect(m.map, m.map_bytes, access);
            }
        }
    }
};

}  // namespace

// A separate mapping for each buffer, which ends at a guard page; filled with NaN.
cudaError_t cudaMalloc(void ** p, size_t bytes) {
    Mapping m;
    m.bytes     = bytes;
    m.map_bytes = std::max<size_t>((bytes + kPage - 1) / kPage * kPage, kPage);
    void * all =
        mmap(nullptr, m.map_bytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) {
        return cudaErrorMemoryAllocation;
    }
    m.map              = static_cast<char *>(all) + kPage;
    char * const begin = m.map + m.map_bytes - (bytes + 15) / 16 * 16;
    mprotect(m.map, m.map_bytes, PROT_READ | PROT_WRITE);
    memset(m.map, 0xff, m.map_bytes);
    const std::lock_guard lock(g_mutex);
    if (g_open == 0) {
        mprotect(m.map, m.map_bytes, PROT_NONE);
    }
    g_memory[begin] = m;
    *p              = begin;
    return cudaSuccess;
}

cudaError_t cudaFree(void * p) {
    if (p == nullptr) {
        return cudaSuccess;
    }
    (void) cudaDeviceSynchronize();
    const std::lock_guard lock(g_mutex);
    const auto            it = g_memory.find(static_cast<char *>(p));
    GT_CHECK(it != g_memory.end(), "cudaFree of what cudaMalloc returned");
    munmap(it->second.map - kPage, it->second.map_bytes + 2 * kPage);
    g_memory.erase(it);
    return cudaSuccess;
}

std::vector<cuda_emu::Region> cuda_emu::regions() {
    const std::lock_guard lock(g_mutex);
    std::vector<Region>   all;
    for (const auto & [begin, m] : g_memory) {
        all.push_back({begin, m.bytes});
    }
    return all;
}

// ---- streams: work runs when a caller waits for it ----------------------------------------------------

struct CUstream_st {
    gt::LazyQueue queue;

    void push(std::function<void()> work) {
        queue.push([work = std::move(work)] {
            const Open open;
            work();
        });
    }

    void drain() {
        const Open open;  // once for all work
        queue.run();
    }
};

namespace {
thread_local CUstream_st                t_null;
thread_local std::vector<CUstream_st *> t_streams{&t_null};

CUstream_st & stream_of(cudaStream_t stream) {
    return stream != nullptr ? *stream : t_null;
}
}  // namespace

void cuda_emu::enqueue(cudaStream_t stream, Launch launch) {
    stream_of(stream).push([launch = std::move(launch)] {
        launch_hook ? launch_hook(launch) : run(launch);
    });
}

void cuda_emu::enqueue(cudaStream_t stream, std::function<void()> work) {
    stream_of(stream).push(std::move(work));
}

cudaError_t cudaStreamCreate(cudaStream_t * stream) {
    t_streams.push_back(*stream = new CUstream_st);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    stream->drain();
    t_streams.erase(std::find(t_streams.begin(), t_streams.end(), stream));
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    stream_of(stream).drain();
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    *event = stream_of(stream).queue.point();
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event) {
    stream_of(stream).push(*event);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
    for (CUstream_st * stream : t_streams) {
        stream->drain();
    }
    return cudaSuccess;
}

cudaError_t
cudaMemcpyAsync(void * to, const void * from, size_t n, cudaMemcpyKind, cudaStream_t s) {
    stream_of(s).push([=] { memcpy(to, from, n); });
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void * to, int value, size_t n, cudaStream_t s) {
    stream_of(s).push([=] { memset(to, value, n); });
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int * n) {
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int * device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int * value, cudaDeviceAttr, int) {
    *value = 8;
    return cudaSuccess;
}
const char * cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "out of memory" : "no error";
}
