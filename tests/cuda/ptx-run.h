// tests/cuda/ptx-run.h — runs the PTX that nvcc emits, in the memory of the emulator.
//
// An interpreter for the instructions our kernels compile to; it throws on any other. Unlike the emulator
// it sees the compiled code: contraction, approximate arithmetic, code behind __CUDA_ARCH__, alignment.
// It checks bounds and alignment of every access, races within and between blocks, barriers and warp
// operations, and that no thread of a launch reads more than kMostRead bytes of device memory: a thread waits
// for each line that it reads, so long chains leave a GPU idle. It does not see what ptxas does, and computes
// approximate instructions exactly.
// Read next: ptx-ops.cpp (one instruction), ptx-run.cpp (modules and launches).
#pragma once

#include "cuda-emu.h"
#include "ggml-train/base/base.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

namespace ptx {

// A bug in the kernel under test, or an instruction that the interpreter does not know.
class Failure : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

class Module;

constexpr uint64_t kMostRead = 64 * 1024;

// While it exists, every launch runs in the interpreter, with the kernels of these PTX files;
// cuda_emu::config sets the order of threads. REQUIRES: the program exports its symbols (-rdynamic),
// because a kernel is found by its mangled name.
class Scope {
public:
    explicit Scope(const std::vector<std::string> & files);
    ~Scope();
    Scope(const Scope &)             = delete;
    Scope & operator=(const Scope &) = delete;

    uint64_t n_instructions() const;  // run so far
    int      n_launches() const;

    // Kernels of the files that were not launched.
    std::vector<std::string> unused() const;

private:
    std::unique_ptr<Module> module_;
};

// ---- shared by ptx-ops.cpp and ptx-run.cpp -----------------------------------------------------------

enum class State { ready, at_barrier, at_warp, done };

struct Thread {
    std::vector<uint64_t>      r;  // registers
    std::vector<unsigned char> local;
    size_t                     pc     = 0;
    State                      state  = State::ready;
    uint32_t                   linear = 0, index[3] = {};
    uint32_t                   n_barrier = 0, n_warp = 0;  // epochs, to detect races
    uint64_t                   n_read = 0;                 // bytes of device memory
    // the warp operation it waits for: 's'ync, 'v'ote, a shuffle: 'd'own 'u'p 'b'utterfly 'i'ndex, or one
    // of matrices: 'm' ldmatrix, 't' transposed, 'p'roduct
    char             op     = 0;
    uint32_t         mask   = 0;
    uint64_t         value  = 0;
    int              source = 0, to = -1, to_inside = -1;  // registers
    bool             inside     = true;
    uint32_t         brings[10] = {};  // to a matrix operation: a row, or A, B and C
    std::vector<int> to_matrix;        // registers
};

// The last access to a byte: thread, block, epochs. All zero: none.
struct Touch {
    int64_t  block     = 0;
    uint32_t thread    = 0;  // its number plus one
    uint32_t n_barrier = 0, n_warp = 0;
    bool     atomic = false;
};
struct Shadow {
    Touch write, read;
};

// For n bytes. Pages that nobody touches cost nothing.
struct Free {
    void operator()(void * p) const { std::free(p); }
};
using Shadows = std::unique_ptr<Shadow[], Free>;
inline Shadows make_shadows(size_t n) {
    return Shadows(static_cast<Shadow *>(std::calloc(std::max<size_t>(n, 1), sizeof(Shadow))));
}

struct Area {  // of memory
    unsigned char * begin = nullptr;
    size_t          bytes = 0;
    Shadows         shadow;
};

struct Machine;
using Instruction = std::function<void(Machine &, Thread &)>;

struct Param {
    std::string name;
    size_t      bytes = 0, align = 1, at = 0;
};
struct Kernel {
    std::string                   name;
    std::vector<Param>            params;
    std::map<std::string, int>    registers;
    std::map<std::string, size_t> variables;  // shared, local, parameter: offset in its space
    size_t                        shared_bytes = 0, local_bytes = 0;
    std::vector<Instruction>      code;
    std::vector<std::string>      text;
    std::map<std::string, size_t> labels;
};

// One launch.
struct Machine {
    const Kernel *             kernel = nullptr;
    std::vector<unsigned char> params;
    std::vector<unsigned char> shared_bytes;
    Area                       shared;
    std::map<uint64_t, Area>   global;  // by end address
    std::vector<Thread>        threads;
    uint32_t                   block[3] = {}, n_block[3] = {}, n_grid[3] = {};
    int64_t                    block_number = 0;

    [[noreturn]] void fail(const Thread & t, const std::string & what) const;
};

// Compiles one line of PTX to a closure. Throws Failure if the instruction is unknown.
Instruction compile(const Kernel & kernel, std::string line);

std::vector<std::string> split(const std::string & text, const char * separators);

}  // namespace ptx
