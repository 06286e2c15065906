// tests/cuda/ptx-ops.cpp — one PTX instruction as a closure: operands, memory, warps, control. Names and
// meaning as in NVIDIA's "PTX ISA"; arithmetic is in ptx-math.cpp.
#include "ptx-line.h"

#include <utility>

namespace ptx {

// ---- operands ------------------------------------------------------------------------------------------

int register_of(const Kernel & k, const std::string & name) {
    const auto it = k.registers.find(name);
    if (it == k.registers.end()) {
        throw Failure("ptx: no register " + name + " in " + k.name);
    }
    return it->second;
}

Value operand(const Kernel & k, const std::string & s) {
    static const Strings kSpecial = {"%tid.", "%ntid.", "%ctaid.", "%nctaid."};
    for (size_t i = 0; i < kSpecial.size(); ++i) {
        if (s.rfind(kSpecial[i], 0) == 0) {
            const int c = s.back() - 'x';
            return [i, c](Machine & m, Thread & t) -> uint64_t {
                return i == 0   ? t.index[c]
                       : i == 1 ? m.n_block[c]
                       : i == 2 ? m.block[c]
                                : m.n_grid[c];
            };
        }
    }
    if (s[0] == '%') {
        const int r = register_of(k, s);
        return [r](Machine &, Thread & t) { return t.r[r]; };
    }
    if (k.variables.count(s) > 0) {
        const uint64_t at = k.variables.at(s);
        return [at](Machine &, Thread &) { return at; };
    }
    if (s.rfind("0f", 0) != 0 && s.rfind("0d", 0) != 0 && s[0] != '-' &&
        !isdigit((unsigned char) s[0])) {
        throw Failure("ptx: operand " + s + " in " + k.name);
    }
    const bool     hex = s.rfind("0f", 0) == 0 || s.rfind("0d", 0) == 0;
    const uint64_t v   = hex           ? std::strtoull(s.c_str() + 2, nullptr, 16)
                         : s[0] == '-' ? static_cast<uint64_t>(std::strtoll(s.c_str(), nullptr, 0))
                                       : std::strtoull(s.c_str(), nullptr, 0);
    return [v](Machine &, Thread &) { return v; };
}

namespace {

// [register + offset]
Value address(const Kernel & k, const std::string & text) {
    std::string  s  = text.substr(1, text.size() - 2);
    int64_t      by = 0;
    const size_t p  = s.find('+', 1);
    if (p != std::string::npos) {
        by = std::strtoll(s.c_str() + p + 1, nullptr, 0);
        s.resize(p);
    }
    const Value base = operand(k, s);
    return [base, by](Machine & m, Thread & t) { return base(m, t) + static_cast<uint64_t>(by); };
}

// ---- memory --------------------------------------------------------------------------------------------

bool clash(const Machine & m, const Touch & before, const Thread & t) {
    if (before.thread == 0 || (before.block == m.block_number && before.thread == t.linear + 1)) {
        return false;
    }
    if (before.block != m.block_number) {
        return true;  // nothing orders blocks
    }
    const bool same_warp = (before.thread - 1) / 32 == t.linear / 32;
    return before.n_barrier == t.n_barrier && !(same_warp && before.n_warp != t.n_warp);
}

void touch(Machine & m, Thread & t, Shadow & s, bool write, bool atomic) {
    if (clash(m, s.write, t) && !(atomic && s.write.atomic)) {
        m.fail(
            t, bits<int64_t>(s.write.block) != m.block_number ? "race between blocks"
                                                              : "race with a write"
        );
    }
    if (write && clash(m, s.read, t) && !(atomic && s.read.atomic)) {
        m.fail(t, s.read.block != m.block_number ? "race between blocks" : "race with a read");
    }
    (write ? s.write : s.read) = {m.block_number, t.linear + 1, t.n_barrier, t.n_warp, atomic};
}

enum class Space { global, shared, local };

unsigned char *
access(Machine & m, Thread & t, Space space, uint64_t at, int w, bool write, bool atomic = false) {
    if (at % static_cast<uint64_t>(w) != 0) {
        m.fail(t, "misaligned access");
    }
    if (space == Space::local) {
        if (at + w > t.local.size()) {
            m.fail(t, "local access out of bounds");
        }
        return &t.local[at];
    }
    Area *   area   = &m.shared;
    uint64_t offset = at;
    if (space == Space::global) {
        const auto it = m.global.upper_bound(at);
        area          = it != m.global.end() ? &it->second : nullptr;
        offset        = area != nullptr ? at - bits<uint64_t>(area->begin) : 0;
    }
    if (area == nullptr || offset > area->bytes || offset + w > area->bytes) {
        m.fail(
            t,
            space == Space::global ? "global access out of bounds" : "shared access out of bounds"
        );
    }
    for (int i = 0; i < w; ++i) {
        touch(m, t, area->shadow[offset + i], write, atomic);
    }
    return area->begin + offset;
}

Instruction load_store(const Line & l) {
    const bool store = l.op == "st";
    // an address without a space is that of device memory: our kernels pass no other as a pointer
    const Space        space = l.has("shared")  ? Space::shared
                               : l.has("local") ? Space::local
                                                : Space::global;
    const Strings      list  = split(l.o[store ? 1 : 0], "{},");
    const int          w = l.w, n = static_cast<int>(list.size());
    const bool         sign = l.is_signed;
    std::vector<int>   to;
    std::vector<Value> from;
    for (const std::string & s : list) {
        store ? from.push_back(operand(l.k, s)) : to.push_back(register_of(l.k, s));
    }
    const Value at = address(l.k, l.o[store ? 0 : 1]);
    if (l.has("param")) {
        return [=](Machine & m, Thread & t) {
            for (int i = 0; i < n; ++i) {
                uint64_t v = 0;
                memcpy(&v, &m.params.at(at(m, t) + static_cast<uint64_t>(i * w)), w);
                t.r[to[i]] = sign ? static_cast<uint64_t>(signed_of(v, w)) : v;
            }
            ++t.pc;
        };
    }
    return [=](Machine & m, Thread & t) {
        const uint64_t a = at(m, t);
        if (a % static_cast<uint64_t>(w * n) != 0) {
            m.fail(t, "misaligned vector access");
        }
        for (int i = 0; i < n; ++i) {
            unsigned char * p = access(m, t, space, a + i * w, w, store);
            uint64_t        v = store ? from[i](m, t) : 0;
            store ? memcpy(p, &v, w) : memcpy(&v, p, w);
            if (!store) {
                t.n_read += space == Space::global ? static_cast<uint64_t>(w) : 0;
                t.r[to[i]] =
                    sign ? static_cast<uint64_t>(signed_of(v, w)) : v;  // as wide as the register
            }
        }
        ++t.pc;
    };
}

Instruction atomic(const Line & l) {
    const bool  red = l.op == "red", add = l.has("add"), either = l.has("or");
    const Space space = l.has("shared") ? Space::shared : Space::global;
    if ((!add && !either) || l.is_f32 || l.is_f64) {
        l.unknown();  // float atomics have no fixed order: not in our kernels
    }
    const Value at = address(l.k, l.o[red ? 0 : 1]), v = l.in(red ? 1 : 2);
    const int   to = red ? -1 : l.reg(0), w = l.w;
    return [=](Machine & m, Thread & t) {
        unsigned char * p   = access(m, t, space, at(m, t), w, true, true);
        uint64_t        old = 0;
        memcpy(&old, p, w);
        const uint64_t next = add ? old + v(m, t) : old | v(m, t);
        memcpy(p, &next, w);
        if (to >= 0) {
            t.r[to] = old;
        }
        ++t.pc;
    };
}

Instruction warp_operation(const Line & l) {
    const Value mask = operand(l.k, l.o.back());
    if (l.op == "bar") {
        return [mask](Machine & m, Thread & t) {
            t.state = State::at_warp;
            t.op    = 's';
            t.mask  = static_cast<uint32_t>(mask(m, t));
            t.to    = -1;
            ++t.pc;
        };
    }
    const bool   vote = l.op == "vote", two = !vote && l.o.size() == 6;
    const char   op = vote            ? 'v'
                      : l.has("down") ? 'd'
                      : l.has("up")   ? 'u'
                      : l.has("bfly") ? 'b'
                                      : 'i';
    const size_t q  = two ? 1 : 0;
    const Value  a = l.in(1 + q), by = vote ? a : l.in(2 + q), clamp = vote ? a : l.in(3 + q);
    const int    to = l.reg(0), to_inside = two ? l.reg(1) : -1;
    return [=](Machine & m, Thread & t) {
        const int lane = static_cast<int>(t.linear & 31), d = vote ? 0 : static_cast<int>(by(m, t));
        const uint32_t c       = vote ? 31 : static_cast<uint32_t>(clamp(m, t));
        const int      segment = static_cast<int>(c >> 8 & 31);
        const int      last =
            (lane & segment) | static_cast<int>(c & 31 & ~static_cast<uint32_t>(segment));
        const int from = op == 'd'   ? lane + d
                         : op == 'u' ? lane - d
                         : op == 'b' ? lane ^ d
                                     : (lane & segment) | (d & ~segment & 31);
        t.state        = State::at_warp;
        t.op           = op;
        t.mask         = static_cast<uint32_t>(mask(m, t));
        t.to           = to;
        t.to_inside    = to_inside;
        t.value        = a(m, t);
        t.inside       = op == 'u' ? from >= last : from <= last;
        t.source       = t.inside ? from : lane;
        ++t.pc;
    };
}

// ldmatrix {to}, [row];  mma.sync {d}, {a}, {b}, {c};
Instruction matrix_operation(const Line & l) {
    const bool product = l.op == "mma";
    if (product ? !l.has("m16n8k16") || !l.has("bf16") || l.type != "f32"
                : !l.has("x4") || !l.has("m8n8")) {
        l.unknown();
    }
    std::vector<int> to;
    for (const std::string & s : split(l.o[0], "{},")) {
        to.push_back(register_of(l.k, s));
    }
    std::vector<Value> in;
    for (size_t i = 1; product && i < l.o.size(); ++i) {
        for (const std::string & s : split(l.o[i], "{},")) {
            in.push_back(operand(l.k, s));
        }
    }
    const Value row = product ? Value() : address(l.k, l.o[1]);
    const char  op  = product ? 'p' : l.has("trans") ? 't' : 'm';
    return [=](Machine & m, Thread & t) {
        t.state     = State::at_warp;
        t.op        = op;
        t.mask      = 0xffffffffu;
        t.to_matrix = to;
        if (!product) {
            memcpy(t.brings, access(m, t, Space::shared, row(m, t), 16, false), 16);
        }
        for (size_t i = 0; i < in.size(); ++i) {
            t.brings[i] = static_cast<uint32_t>(in[i](m, t));
        }
        ++t.pc;
    };
}

Instruction move(const Line & l) {
    const int half = 4 * l.w;  // bits
    if (l.o[0][0] == '{') {
        const Strings to  = split(l.o[0], "{},");
        const int     low = to[0] == "_" ? -1 : register_of(l.k, to[0]),
                  high    = to[1] == "_" ? -1 : register_of(l.k, to[1]);
        const Value a     = l.in(1);
        return [=](Machine & m, Thread & t) {
            const uint64_t v = a(m, t);
            if (low >= 0) {
                t.r[low] = v & ((uint64_t(1) << half) - 1);
            }
            if (high >= 0) {
                t.r[high] = v >> half;
            }
            ++t.pc;
        };
    }
    if (l.o[1][0] == '{') {
        const Strings from = split(l.o[1], "{},");
        const Value   low = operand(l.k, from[0]), high = operand(l.k, from[1]);
        return l.set([=](Machine & m, Thread & t) {
            return unsigned_of(low(m, t), half / 8) | high(m, t) << half;
        });
    }
    return l.set(l.in(1));
}

Instruction control(const Line & l) {
    if (l.op == "bra") {
        const std::string label = l.o[0];
        return [label](Machine & m, Thread & t) { t.pc = m.kernel->labels.at(label); };
    }
    if (l.op == "ret" || l.op == "exit") {
        return [](Machine &, Thread & t) { t.state = State::done; };
    }
    return [](Machine &, Thread & t) {  // bar.sync, barrier.sync
        t.state = State::at_barrier;
        ++t.pc;
    };
}

Line take_apart(const Kernel & k, const std::string & text) {
    const size_t space = text.find_first_of(" \t");
    Line         l{k, text, "", split(text.substr(0, space), "."), {}, ""};
    std::string  current;
    int          depth = 0;  // {a, b} stays together
    for (const char c : space == std::string::npos ? "" : text.substr(space)) {
        depth += c == '{' ? 1 : c == '}' ? -1 : 0;
        if (isspace(static_cast<unsigned char>(c)) || c == '\0') {
            continue;
        }
        if ((c == ',' || c == '|') && depth == 0) {
            l.o.push_back(std::exchange(current, ""));
        } else {
            current += c;
        }
    }
    if (!current.empty()) {
        l.o.push_back(current);
    }
    l.op        = l.parts[0];
    l.type      = l.parts.back();
    l.w         = l.type == "pred"                                          ? 1
                  : l.type.size() > 1 && isdigit((unsigned char) l.type[1]) ? width_of(l.type)
                                                                            : 4;
    l.is_f32    = l.type == "f32";
    l.is_f64    = l.type == "f64";
    l.is_signed = l.type[0] == 's';
    return l;
}

Instruction choose(const Line & l) {
    if (l.op == "bra" || l.op == "ret" || l.op == "exit" ||
        ((l.op == "bar" || l.op == "barrier") && !l.has("warp"))) {
        return control(l);
    }
    if (l.op == "ld" || l.op == "st") {
        return load_store(l);
    }
    if (l.op == "atom" || l.op == "red") {
        return atomic(l);
    }
    if (l.op == "shfl" || l.op == "vote" || l.op == "bar") {
        return warp_operation(l);
    }
    if (l.op == "ldmatrix" || l.op == "mma") {
        return matrix_operation(l);
    }
    if (l.op == "setp") {
        return compare(l);
    }
    if (l.op == "selp") {
        return l.ternary([](uint64_t a, uint64_t b, uint64_t p) { return p != 0 ? a : b; });
    }
    if (l.op == "mov") {
        return move(l);
    }
    if (l.op == "cvta") {
        return l.set(l.in(1));
    }
    if (l.op == "cvt") {
        return convert(l);
    }
    return l.is_f32 || l.is_f64 ? real_arithmetic(l) : integer_arithmetic(l);
}

}  // namespace

Instruction compile(const Kernel & k, std::string line) {
    std::string guard;
    bool        negated = false;
    if (line[0] == '@') {
        const size_t space = line.find_first_of(" \t");
        negated            = line[1] == '!';
        guard              = line.substr(negated ? 2 : 1, space - (negated ? 2 : 1));
        line               = line.substr(line.find_first_not_of(" \t", space));
    }
    const Instruction instruction = choose(take_apart(k, line));
    if (guard.empty()) {
        return instruction;
    }
    const int p = register_of(k, guard);
    return [=](Machine & m, Thread & t) {
        if ((t.r[p] != 0) != negated) {
            instruction(m, t);
        } else {
            ++t.pc;
        }
    };
}

}  // namespace ptx
