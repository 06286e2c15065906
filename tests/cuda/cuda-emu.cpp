// tests/cuda/cuda-emu.cpp — runs a launch: fibers, warps, blocks. cuda-emu-runtime.cpp has memory and streams.
//
// Never compiled with sanitizers, even where kernels are (tests/CMakeLists.txt): then nothing in
// here looks like a race or an overrun; fibers and barriers are announced to the sanitizers
// explicitly. GT_EMU_TSAN or GT_EMU_ASAN is set if that sanitizer instruments the kernels.
// Pitfalls: TSan needs two variables per barrier, used alternately, or a fast thread's next phase looks
// ordered after the slow one's; and every block needs new fibers, stacks and shared memory, or reuse
// orders the blocks. Shuffles and ballots do not order memory; only __syncwarp does.
#include "cuda-emu.h"

#include "ggml-train/base/base.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <sys/mman.h>
#include <utility>

#ifdef GT_EMU_TSAN
extern "C" {
void * __tsan_create_fiber(unsigned);
void   __tsan_destroy_fiber(void *);
void * __tsan_get_current_fiber();
void   __tsan_switch_to_fiber(void *, unsigned);
void   __tsan_acquire(void *);
void   __tsan_release(void *);
}
#define TSAN(call) call
constexpr bool kFresh = true;  // per block: fibers, stacks, shared memory
#else
#define TSAN(call) (void) 0
constexpr bool kFresh = false;
#endif
#ifdef GT_EMU_ASAN
extern "C" {
void __asan_poison_memory_region(void const volatile *, size_t);
void __asan_unpoison_memory_region(void const volatile *, size_t);
}
#define ASAN(call) call
#else
#define ASAN(call) (void) 0
#endif

namespace cuda_emu {

Config config;

namespace {

enum class State { ready, at_barrier, at_warp, done };

struct Thread {
    uint3    index{};
    unsigned linear = 0;
    State    state  = State::ready;
    int      line   = 0;  // where it waits
    unsigned mask   = 0;
    WarpOp   op     = WarpOp::sync;
    uint64_t value = 0, result = 0;
    int      source    = 0;
    unsigned n_barrier = 0, n_warp = 0;
    void *   sp    = nullptr;
    char *   stack = nullptr;
    void *   fiber = nullptr;  // TSan's
};

constexpr size_t kStack = kFresh ? 256 * 1024 : 64 * 1024;  // TSan writes its reports on it
constexpr size_t kArena = 256 * 1024, kGap = 64;

struct Shared {
    const void * key;
    char *       at;
};

// The block that runs on this OS thread.
struct Block {
    dim3                grid, size;
    uint3               index{};
    std::vector<Thread> threads;
    const Launch *      launch     = nullptr;
    Thread *            current    = nullptr;
    void *              main_sp    = nullptr;
    void *              main_fiber = nullptr;
    char *              arena      = nullptr;  // shared memory, after the variables of the barriers
    std::vector<Shared> shared;
    size_t              shared_bytes = 0, shared_at = 0;
    uint64_t            start = 0, end = 0;
    uint64_t *          sync_variables() { return reinterpret_cast<uint64_t *>(arena); }
};
thread_local Block * B = nullptr;  // in run()

[[noreturn]] void die(const char * what) {
    std::fprintf(
        stderr, "cuda-emu: %s, in block %u,%u,%u\n", what, B->index.x, B->index.y, B->index.z
    );
    int n = 0;
    for (const Thread & t : B->threads) {
        if (t.state != State::done && n++ < 4) {
            std::fprintf(
                stderr, "  thread %u %s, line %d, mask %08x\n", t.linear,
                t.state == State::at_barrier ? "waits at a barrier"
                : t.state == State::at_warp  ? "waits for its warp"
                                             : "is ready",
                t.line, t.mask
            );
        }
    }
    std::abort();
}

// ---- fibers -----------------------------------------------------------------------------------------

#if !defined(__x86_64__)
#error "the emulator switches stacks in x86-64 assembly; port gt_emu_switch and make_stack"
#endif
extern "C" void gt_emu_switch(void ** save, void * to);
asm(R"(.text
.weak gt_emu_switch
.type gt_emu_switch,@function
gt_emu_switch: pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
 movq %rsp,(%rdi); movq %rsi,%rsp
 popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp; ret
.size gt_emu_switch,.-gt_emu_switch
)");

void to_main(Thread & t) {
    TSAN(__tsan_switch_to_fiber(B->main_fiber, 1));
    gt_emu_switch(&t.sp, B->main_sp);
}

void to_thread(Thread & t) {
    B->current = &t;
    TSAN(__tsan_switch_to_fiber(t.fiber, 1));
    gt_emu_switch(&B->main_sp, t.sp);
}

void entry() {
    TSAN(__tsan_acquire(&B->start));
    B->launch->body();
    TSAN(__tsan_release(&B->end));
    B->current->state = State::done;
    to_main(*B->current);
    std::abort();
}

void * make_stack(char * stack) {
    void ** sp = reinterpret_cast<void **>(stack + kStack);
    *--sp      = nullptr;
    *--sp      = reinterpret_cast<void *>(&entry);
    return sp - 6;
}

// ---- warps ------------------------------------------------------------------------------------------

// Runs a matrix instruction of a whole warp.
void run_matrices(WarpOp op, const Thread * warp) {
    const MatrixLane *  matrices[32];
    const ProductLane * products[32];
    for (int l = 0; l < 32; ++l) {
        matrices[l] = reinterpret_cast<const MatrixLane *>(warp[l].value);
        products[l] = reinterpret_cast<const ProductLane *>(warp[l].value);
    }
    if (op == WarpOp::product) {
        multiply_tiles(products);
    } else {
        exchange_matrices(matrices, op == WarpOp::transposed);
    }
}

// If all lanes of t's mask have arrived, sets their results and resumes them.
void complete_warp(const Thread & t) {
    Thread *       warp = &B->threads[t.linear & ~31u];
    const unsigned mask = t.mask;
    const WarpOp   op   = t.op;
    const size_t   n    = B->threads.size() - (t.linear & ~31u);
    unsigned       vote = 0;
    for (unsigned l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) {
            continue;
        }
        if (l >= n) {
            die("warp operation: the mask names a lane beyond the block");
        }
        if (warp[l].state != State::at_warp) {
            return;
        }
        if (warp[l].mask != mask || warp[l].op != op) {
            die("warp operation: lanes disagree on mask or operation");
        }
        vote |= unsigned(warp[l].value != 0) << l;
    }
    if (op >= WarpOp::matrices) {
        run_matrices(op, warp);
    }
    for (unsigned l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) {
            continue;
        }
        if (op == WarpOp::ballot) {
            warp[l].result = vote;
        } else if (op == WarpOp::shuffle) {
            if ((mask >> warp[l].source & 1) == 0) {
                die("shuffle: reads a lane outside the mask");
            }
            warp[l].result = warp[warp[l].source].value;
        }
        warp[l].state = State::ready;
    }
}

// Fills memory with NaN. Not by memset: TSan would attribute the writes to the running thread.
void fill_nan(void * p, size_t bytes) {
    asm volatile("rep stosb" : "+D"(p), "+c"(bytes) : "a"(0xff) : "memory");
}

// ---- blocks -----------------------------------------------------------------------------------------

void prepare_block() {
    B->shared.clear();
    B->shared_bytes = 0;
    B->shared_at    = 1024;  // behind the sync variables
    ASAN(__asan_poison_memory_region(B->arena + 1024, kArena - 1024));
    for (unsigned i = 0; i < B->threads.size(); ++i) {
        Thread & t     = B->threads[i];
        char *   stack = t.stack;
        void *   fiber = t.fiber;
        t              = Thread{};
        t.linear       = i;
        t.index        = {i % B->size.x, i / B->size.x % B->size.y, i / B->size.x / B->size.y};
        t.stack        = stack;
        t.fiber        = fiber;
        t.sp           = make_stack(stack);
    }
    TSAN(__tsan_release(&B->start));
}

// Runs the threads, each from one wait to the next, until all are done.
void run_block(std::mt19937 & random) {
    prepare_block();
    const size_t        n = B->threads.size();
    std::vector<size_t> order(n);
    for (size_t i = 0; i < n; ++i) {
        order[i] = config.order == Order::down ? n - 1 - i : i;
    }
    for (;;) {
        if (config.order == Order::random) {
            std::shuffle(order.begin(), order.end(), random);
        }
        size_t n_ran = 0, n_done = 0, n_barrier = 0;
        int    line  = -1;
        bool   mixed = false;
        for (const size_t i : order) {
            if (B->threads[i].state == State::ready) {
                ++n_ran;
                to_thread(B->threads[i]);
            }
        }
        for (const Thread & t : B->threads) {
            n_done += t.state == State::done;
            if (t.state == State::at_barrier) {
                ++n_barrier;
                mixed |= line >= 0 && line != t.line;
                line = t.line;
            }
        }
        if (n_done == n) {
            return;
        }
        if (n_barrier + n_done == n) {
            if (n_done > 0) {
                die("__syncthreads() after some threads have returned");
            }
            if (mixed) {
                die("threads wait at different __syncthreads()");
            }
            for (Thread & t : B->threads) {
                t.state = State::ready;
            }
        } else if (n_ran == 0) {
            die("deadlock");
        }
    }
}

char * map_memory(size_t bytes) {
    void * p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    GT_CHECK(p != MAP_FAILED, "the emulator needs memory");
    return static_cast<char *>(p);
}

// Stacks, arenas and TSan fibers, reused between blocks unless kFresh.
struct Pool {
    size_t              n      = 0;  // threads of a block
    char *              stacks = nullptr;
    std::vector<char *> arenas;
    std::vector<void *> fibers;

    explicit Pool(size_t n_threads) : n(n_threads) {}
    ~Pool() {
        drop_stacks();
        for (char * p : arenas) {
            ASAN(__asan_unpoison_memory_region(p, kArena));
            munmap(p, kArena);
        }
        for ([[maybe_unused]] void * f : fibers) {
            TSAN(__tsan_destroy_fiber(f));
        }
    }

    // Sets up the next block.
    void lend() {
        if (kFresh || arenas.empty()) {
            drop_stacks();
            stacks = map_memory(n * kStack);
            arenas.push_back(map_memory(kArena));
        }
        B->arena = arenas.back();
        for (size_t i = 0; i < n; ++i) {
            B->threads[i].stack = stacks + i * kStack;
            TSAN(fibers.push_back(B->threads[i].fiber = __tsan_create_fiber(0)));
        }
    }
    void drop_stacks() {
        if (stacks != nullptr) {
            munmap(stacks, n * kStack);
        }
    }
};

}  // namespace

void run(const Launch & l) {
    const size_t n        = size_t(l.block.x) * l.block.y * l.block.z;
    const size_t n_blocks = size_t(l.grid.x) * l.grid.y * l.grid.z;
    if (n == 0 || n > 1024 || n_blocks == 0 || l.grid.y > 65535 || l.grid.z > 65535) {
        die("invalid launch configuration");
    }
    std::mt19937        random(config.seed);
    std::vector<size_t> order(n_blocks);
    for (size_t i = 0; i < n_blocks; ++i) {
        order[i] = config.order == Order::down ? n_blocks - 1 - i : i;
    }
    if (config.order == Order::random) {
        std::shuffle(order.begin(), order.end(), random);
    }
    Block block;
    B = &block;
    Pool pool(n);
    TSAN(B->main_fiber = __tsan_get_current_fiber());
    B->grid   = l.grid;
    B->size   = l.block;
    B->launch = &l;
    B->threads.assign(n, Thread{});
    for (const size_t i : order) {
        B->index = {
            static_cast<unsigned>(i % l.grid.x), static_cast<unsigned>(i / l.grid.x % l.grid.y),
            static_cast<unsigned>(i / l.grid.x / l.grid.y)};
        pool.lend();
        run_block(random);
    }
    TSAN(__tsan_acquire(&B->end));
    B = nullptr;
}

uint3 thread_index() {
    return B->current->index;
}
uint3 block_index() {
    return B->index;
}
dim3 block_size() {
    return B->size;
}
dim3 grid_size() {
    return B->grid;
}
int lane() {
    return static_cast<int>(B->current->linear & 31);
}

void barrier(int line) {
    Thread & t                           = *B->current;
    t.state                              = State::at_barrier;
    t.line                               = line;
    [[maybe_unused]] uint64_t * variable = B->sync_variables() + (t.n_barrier++ & 1);
    TSAN(__tsan_release(variable));
    to_main(t);
    TSAN(__tsan_acquire(variable));
}

uint64_t warp(WarpOp op, unsigned mask, uint64_t value, int source, int line) {
    Thread & t = *B->current;
    if ((mask >> (t.linear & 31) & 1) == 0) {
        die("warp operation: the calling lane is not in the mask");
    }
    t.state                           = State::at_warp;
    t.mask                            = mask;
    t.op                              = op;
    t.value                           = value;
    t.source                          = source;
    t.line                            = line;
    [[maybe_unused]] const bool order = op == WarpOp::sync;
    [[maybe_unused]] uint64_t * variable =
        B->sync_variables() + 2 + t.linear / 32 * 2 + (order ? t.n_warp++ & 1 : 0);
    if (order) {
        TSAN(__tsan_release(variable));
    }
    complete_warp(t);
    to_main(t);
    if (order) {
        TSAN(__tsan_acquire(variable));
    }
    return t.result;
}

void * shared(const void * key, size_t bytes, bool dynamic) {
    for (const Shared & s : B->shared) {
        if (s.key == key) {
            return s.at;
        }
    }
    bytes    = dynamic ? B->launch->dynamic_bytes : bytes;
    char * p = B->arena + B->shared_at;
    B->shared_at += (bytes + 15) / 16 * 16 + kGap;  // gaps: overruns do not hit a neighbour
    B->shared_bytes += (bytes + 15) / 16 * 16;
    if (B->shared_bytes > config.shared_limit) {
        die("more shared memory than a block may have");
    }
    ASAN(__asan_unpoison_memory_region(p, bytes));
    fill_nan(p, bytes);
    B->shared.push_back({key, p});
    return p;
}

}  // namespace cuda_emu
