#include "ptx-run.h"

#include <algorithm>
#include <dlfcn.h>
#include <fstream>
#include <numeric>
#include <random>
#include <set>
#include <utility>

namespace ptx {

std::vector<std::string> split(const std::string & text, const char * separators) {
    std::vector<std::string> parts;
    std::string              current;
    for (const char c : text + separators[0]) {
        if (std::strchr(separators, c) == nullptr) {
            current += c;
        } else if (!current.empty()) {
            parts.push_back(std::exchange(current, ""));
        }
    }
    return parts;
}

void Machine::fail(const Thread & t, const std::string & what) const {
    throw Failure(gt::format(
        "ptx: %s, thread %u of block %u,%u,%u of %s, at: %s", what.c_str(), t.linear, block[0],
        block[1], block[2], kernel->name.c_str(),
        kernel->text.at(std::min(t.pc, kernel->text.size() - 1)).c_str()
    ));
}

// ---- reading -------------------------------------------------------------------------------------------

class Module {
public:
    void     read(const std::string & file);
    void     run(const cuda_emu::Launch & launch);
    uint64_t n_instructions = 0;
    int      n_launches     = 0;

    std::vector<std::string> unused() const;

private:
    void declare(Kernel & k, const std::string & line);
    void run_block(Machine & m, std::mt19937 & random);

    std::map<std::string, Kernel> kernels_;
    std::set<std::string>         launched_;
};

std::vector<std::string> Module::unused() const {
    std::vector<std::string> names;
    for (const auto & [name, kernel] : kernels_) {
        if (launched_.count(name) == 0) {
            names.push_back(name);
        }
    }
    return names;
}

// .param .u64 name   or   .param .align 8 .b8 name[24]
static Param read_param(const std::vector<std::string> & t) {
    Param p;
    if (t[1] == ".align") {
        const std::vector<std::string> name = split(t[4], "[]");
        p.name                              = name[0];
        p.align                             = std::stoul(t[2]);
        p.bytes                             = std::stoul(name[1]);
    } else {
        p.name  = t[2];
        p.bytes = p.align = std::stoul(t[1].substr(2)) / 8;
    }
    return p;
}

// Registers and variables of a kernel.
void Module::declare(Kernel & k, const std::string & line) {
    const std::vector<std::string> t = split(line, " \t,;");
    if (t[0] == ".reg") {
        const size_t      at     = t[2].find('<');
        const std::string prefix = t[2].substr(0, at);
        const int         n      = at == std::string::npos ? 0 : std::stoi(t[2].substr(at + 1));
        for (int i = 0; i < n; ++i) {
            k.registers.emplace(prefix + std::to_string(i), static_cast<int>(k.registers.size()));
        }
        if (at == std::string::npos) {
            k.registers.emplace(prefix, static_cast<int>(k.registers.size()));
        }
    } else if (t[0] == ".shared" || t[0] == ".local") {  // .shared .align 4 .b8 name[128];
        size_t &                       used  = t[0] == ".shared" ? k.shared_bytes : k.local_bytes;
        const size_t                   align = std::stoul(t[2]);
        const std::vector<std::string> name  = split(t[4], "[]");
        used                                 = (used + align - 1) / align * align;
        k.variables[name[0]]                 = used;
        used += std::stoul(name[1]);
    }
}

void Module::read(const std::string & file) {
    std::ifstream in(file);
    if (!in) {
        throw Failure("ptx: cannot open " + file);
    }
    std::vector<std::string> dynamic;  // names of dynamic shared memory
    Kernel *                 k         = nullptr;
    bool                     in_params = false;
    for (std::string line; std::getline(in, line);) {
        line.resize(std::min(line.find("//"), line.size()));
        line.erase(0, line.find_first_not_of(" \t\r"));
        line.resize(line.find_last_not_of(" \t\r") + 1);
        const std::vector<std::string> t     = split(line, " \t,;()");
        const size_t                   entry = line.find(".entry");
        if (t.empty()) {
            in_params = in_params && line.find(')') == std::string::npos;
        } else if (line.rfind(".extern .shared", 0) == 0) {
            dynamic.push_back(split(t[5], "[]")[0]);
        } else if (entry != std::string::npos) {
            const std::string name = split(line.substr(entry + 6), " \t(")[0];
            k                      = &kernels_[name];
            k->name                = name;
            in_params              = true;
        } else if (k == nullptr || line[0] == '{') {
            continue;
        } else if (in_params) {
            if (t[0] == ".param") {
                Param p = read_param(t);
                p.at    = k->params.empty() ? 0 : k->params.back().at + k->params.back().bytes;
                p.at    = (p.at + p.align - 1) / p.align * p.align;
                k->variables[p.name] = p.at;
                k->params.push_back(p);
            }
            in_params = line.back() != ')';
        } else if (line[0] == '}') {
            k = nullptr;
        } else if (line[0] == '.') {
            declare(*k, line);
        } else if (line.back() == ':') {
            k->labels[line.substr(0, line.size() - 1)] = k->code.size();
        } else if (line.back() == ';') {
            if (k->code.empty() && !dynamic.empty()) {
                k->shared_bytes = (k->shared_bytes + 15) / 16 * 16;
                for (const std::string & name : dynamic) {
                    k->variables[name] = k->shared_bytes;
                }
            }
            line.pop_back();
            k->text.push_back(line);
            k->code.push_back(compile(*k, line));
        } else {
            throw Failure("ptx: line not understood: " + line);
        }
    }
}

// ---- running -------------------------------------------------------------------------------------------

// Runs a matrix instruction of a whole warp.
static void run_matrices(char op, Thread * warp) {
    cuda_emu::MatrixLane          matrices[32];
    cuda_emu::ProductLane         products[32];
    const cuda_emu::MatrixLane *  all_matrices[32];
    const cuda_emu::ProductLane * all_products[32];
    uint32_t                      words[32][4];
    float                         c[32][4];
    for (int l = 0; l < 32; ++l) {
        const uint32_t * from = warp[l].brings;
        std::memcpy(matrices[l].row, from, sizeof matrices[l].row);
        std::memcpy(products[l].a, from, sizeof products[l].a);
        std::memcpy(products[l].b, from + 4, sizeof products[l].b);
        std::memcpy(c[l], from + 6, sizeof c[l]);
        matrices[l].to  = words[l];
        products[l].c   = c[l];
        all_matrices[l] = &matrices[l];
        all_products[l] = &products[l];
    }
    if (op == 'p') {
        cuda_emu::multiply_tiles(all_products);
        std::memcpy(words, c, sizeof words);
    } else {
        cuda_emu::exchange_matrices(all_matrices, op == 't');
    }
    for (int l = 0; l < 32; ++l) {
        for (int i = 0; i < 4; ++i) {
            warp[l].r[warp[l].to_matrix[i]] = words[l][i];
        }
    }
}

// If all lanes of t's mask have arrived, sets their results and resumes them.
static void complete_warp(Machine & m, const Thread & t) {
    Thread *       warp = &m.threads[t.linear & ~31u];
    const size_t   n    = m.threads.size() - (t.linear & ~31u);
    const uint32_t mask = t.mask;
    const char     op   = t.op;
    uint32_t       vote = 0;
    for (uint32_t l = 0; l < 32; ++l) {
        if ((mask >> l & 1) == 0) {
            continue;
        }
        if (l >= n) {
            m.fail(t, "the mask names a lane beyond the block");
        }
        if (warp[l].state != State::at_warp) {
            return;
        }
        if (warp[l].mask != mask || warp[l].op != op) {
            m.fail(t, "lanes disagree on mask or operation");
        }
        vote |= static_cast<uint32_t>(warp[l].value != 0) << l;
    }
    const bool of_matrices = op == 'm' || op == 't' || op == 'p';
    if (of_matrices) {
        run_matrices(op, warp);
    }
    for (uint32_t l = 0; l < 32; ++l) {
        Thread & x = warp[l];
        if ((mask >> l & 1) == 0) {
            continue;
        }
        if (op == 's') {
            ++x.n_warp;
        } else if (of_matrices) {
            // run_matrices has set them
        } else if (op == 'v') {
            x.r[x.to] = vote;
        } else {
            if ((mask >> x.source & 1) == 0) {
                m.fail(x, "shuffle from a lane outside the mask");
            }
            x.r[x.to] = warp[x.source].value;
            if (x.to_inside >= 0) {
                x.r[x.to_inside] = x.inside;
            }
        }
        x.state = State::ready;
    }
}

void Module::run_block(Machine & m, std::mt19937 & random) {
    const Kernel &      k = *m.kernel;
    const size_t        n = m.threads.size();
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t(0));
    if (cuda_emu::config.order == cuda_emu::Order::down) {
        std::reverse(order.begin(), order.end());
    }
    for (;;) {
        if (cuda_emu::config.order == cuda_emu::Order::random) {
            std::shuffle(order.begin(), order.end(), random);
        }
        size_t n_ran = 0, n_done = 0, n_barrier = 0;
        for (const size_t i : order) {
            Thread & t = m.threads[i];
            n_ran += t.state == State::ready;
            while (t.state == State::ready) {
                k.code.at(t.pc)(m, t);
                ++n_instructions;
                if (t.state == State::at_warp) {
                    complete_warp(m, t);
                    break;
                }
            }
        }
        for (const Thread & t : m.threads) {
            n_done += t.state == State::done;
            n_barrier += t.state == State::at_barrier;
        }
        if (n_done == n) {
            return;
        }
        if (n_barrier + n_done == n) {
            if (n_done > 0) {
                m.fail(m.threads[0], "barrier after some threads have returned");
            }
            for (Thread & t : m.threads) {
                t.state = State::ready;
                ++t.n_barrier;
            }
        } else if (n_ran == 0) {
            m.fail(m.threads[0], "deadlock");
        }
    }
}

void Module::run(const cuda_emu::Launch & l) {
    // Find the kernel by its mangled name.
    Dl_info info{};
    if (dladdr(const_cast<void *>(l.kernel), &info) == 0 || info.dli_sname == nullptr) {
        throw Failure("ptx: a kernel without a name: link with -rdynamic");
    }
    const auto it = kernels_.find(info.dli_sname);
    if (it == kernels_.end()) {
        throw Failure(std::string("ptx: no kernel ") + info.dli_sname);
    }
    Machine m;
    m.kernel         = &it->second;
    const Kernel & k = it->second;
    // Lay out its arguments.
    if (k.params.size() != l.args.size()) {
        throw Failure("ptx: number of arguments of " + k.name);
    }
    for (size_t i = 0; i < l.args.size(); ++i) {
        if (l.args[i].size() != k.params[i].bytes) {
            throw Failure("ptx: size of an argument of " + k.name);
        }
        m.params.resize(k.params[i].at);
        m.params.insert(m.params.end(), l.args[i].begin(), l.args[i].end());
    }
    // Map device memory, with a shadow byte each to detect races.
    for (const cuda_emu::Region & r : cuda_emu::regions()) {
        Area & area = m.global[reinterpret_cast<uint64_t>(r.begin) + r.bytes];
        area.begin  = reinterpret_cast<unsigned char *>(r.begin);
        area.bytes  = r.bytes;
        area.shadow = make_shadows(r.bytes);
    }
    const uint32_t n_block[] = {l.block.x, l.block.y, l.block.z},
                   n_grid[]  = {l.grid.x, l.grid.y, l.grid.z};
    std::copy_n(n_block, 3, m.n_block);
    std::copy_n(n_grid, 3, m.n_grid);
    // Run block by block, with uninitialized shared memory and registers.
    std::mt19937 random(cuda_emu::config.seed);
    const size_t n_blocks = size_t(l.grid.x) * l.grid.y * l.grid.z,
                 n        = size_t(l.block.x) * l.block.y * l.block.z;
    for (size_t b = 0; b < n_blocks; ++b) {
        const size_t at = cuda_emu::config.order == cuda_emu::Order::down ? n_blocks - 1 - b : b;
        m.block_number  = static_cast<int64_t>(at);
        m.block[0]      = static_cast<uint32_t>(at % l.grid.x);
        m.block[1]      = static_cast<uint32_t>(at / l.grid.x % l.grid.y);
        m.block[2]      = static_cast<uint32_t>(at / l.grid.x / l.grid.y);
        m.shared_bytes.assign(k.shared_bytes + l.dynamic_bytes, 0xff);
        m.shared = {
            m.shared_bytes.data(), m.shared_bytes.size(), make_shadows(m.shared_bytes.size())};
        m.threads.assign(n, Thread());
        for (uint32_t i = 0; i < n; ++i) {
            Thread & t = m.threads[i];
            t.linear   = i;
            t.index[0] = i % l.block.x;
            t.index[1] = i / l.block.x % l.block.y;
            t.index[2] = i / l.block.x / l.block.y;
            t.r.assign(k.registers.size(), 0xdeadbeefdeadbeefull);
            t.local.assign(k.local_bytes, 0xff);
        }
        run_block(m, random);
        for (const Thread & t : m.threads) {
            if (t.n_read > kMostRead) {
                m.fail(
                    t, gt::format("reads %llu bytes in one launch", (unsigned long long) t.n_read)
                );
            }
        }
    }
    ++n_launches;
    launched_.insert(k.name);
}

Scope::Scope(const std::vector<std::string> & files) : module_(std::make_unique<Module>()) {
    for (const std::string & file : files) {
        module_->read(file);
    }
    cuda_emu::launch_hook = [this](const cuda_emu::Launch & l) { module_->run(l); };
}

Scope::~Scope() {
    cuda_emu::launch_hook = nullptr;
}

uint64_t Scope::n_instructions() const {
    return module_->n_instructions;
}

std::vector<std::string> Scope::unused() const {
    return module_->unused();
}

int Scope::n_launches() const {
    return module_->n_launches;
}

}  // namespace ptx
