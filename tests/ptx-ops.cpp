// tests/ptx-ops.cpp — one PTX instruction as a closure. Names and meaning as in NVIDIA's "PTX ISA".
//
// Registers hold 64 bits; an operation of w bytes reads the low ones and clears the others. .approx
// is computed exactly, .ftz keeps subnormals: the tests that meet them have a tolerance.
#include "ptx-run.h"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <utility>

namespace ptx {

namespace {

using Strings = std::vector<std::string>;
using Value   = std::function<uint64_t(Machine &, Thread &)>;  // of an operand

template <class To, class From>
To bits(From v) {
    To to{};
    memcpy(&to, &v, std::min(sizeof to, sizeof v));
    return to;
}
float f32(uint64_t v) {
    return bits<float>(static_cast<uint32_t>(v));
}
double f64(uint64_t v) {
    return bits<double>(v);
}
uint64_t of(float v) {
    return bits<uint32_t>(v);
}
uint64_t of(double v) {
    return bits<uint64_t>(v);
}
uint64_t unsigned_of(uint64_t v, int w) {
    return w == 8 ? v : v & ((uint64_t(1) << (8 * w)) - 1);
}
int64_t signed_of(uint64_t v, int w) {
    return w == 8   ? static_cast<int64_t>(v)
           : w == 4 ? static_cast<int32_t>(v)
           : w == 2 ? static_cast<int16_t>(v)
                    : static_cast<int8_t>(v);
}
int width_of(const std::string & type) {
    return type == "pred" ? 1 : std::atoi(type.c_str() + 1) / 8;
}

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
    if (before.thread < 0 ||
        (before.block == m.block_number && uint32_t(before.thread) == t.linear)) {
        return false;
    }
    if (before.block != m.block_number) {
        return true;  // nothing orders blocks
    }
    const bool same_warp = uint32_t(before.thread) / 32 == t.linear / 32;
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
    (write ? s.write : s.read
    ) = {m.block_number, static_cast<int>(t.linear), t.n_barrier, t.n_warp, atomic};
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

// ---- one line, taken apart -------------------------------------------------------------------------------

struct Line {
    const Kernel & k;
    std::string    text, op;  // op: the first part of the name
    Strings        parts, o;  // parts of the name; operands
    std::string    type;
    int            w      = 4;
    bool           is_f32 = false, is_f64 = false, is_signed = false;

    bool has(const char * part) const {
        return std::find(parts.begin(), parts.end(), part) != parts.end();
    }
    int               reg(size_t i) const { return register_of(k, o.at(i)); }
    Value             in(size_t i) const { return operand(k, o.at(i)); }
    [[noreturn]] void unknown() const { throw Failure("ptx: not known: " + text); }

    Instruction set(const Value & v) const {
        const int d = reg(0);
        return [d, v](Machine & m, Thread & t) {
            t.r[d] = v(m, t);
            ++t.pc;
        };
    }
    template <class F>
    Instruction unary(F f) const {
        const Value a = in(1);
        return set([a, f](Machine & m, Thread & t) -> uint64_t { return f(a(m, t)); });
    }
    template <class F>
    Instruction binary(F f) const {
        const Value a = in(1), b = in(2);
        return set([a, b, f](Machine & m, Thread & t) -> uint64_t { return f(a(m, t), b(m, t)); });
    }
    template <class F>
    Instruction ternary(F f) const {
        const Value a = in(1), b = in(2), c = in(3);
        return set([=](Machine & m, Thread & t) -> uint64_t {
            return f(a(m, t), b(m, t), c(m, t));
        });
    }
};

Instruction load_store(const Line & l) {
    const bool         store = l.op == "st";
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
    if (space == Space::global && !l.has("global")) {
        l.unknown();
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

Instruction compare(const Line & l) {
    const bool  real = l.is_f32 || l.is_f64, f4 = l.is_f32, sign = l.is_signed;
    const int   w         = l.w;
    std::string c         = l.parts[1];
    const bool  unordered = real && c.size() == 3 && c.back() == 'u';
    if (unordered) {
        c.pop_back();
    }
    return l.binary([=](uint64_t x, uint64_t y) -> uint64_t {
        int order = 0;
        if (real) {
            const double a = f4 ? f32(x) : f64(x), b = f4 ? f32(y) : f64(y);
            if (a != a || b != b) {
                return c == "nan" || unordered;
            }
            if (c == "num") {
                return 1;
            }
            order = a < b ? -1 : a > b;
        } else if (sign) {
            order = signed_of(x, w) < signed_of(y, w) ? -1 : signed_of(x, w) > signed_of(y, w);
        } else {
            order =
                unsigned_of(x, w) < unsigned_of(y, w) ? -1 : unsigned_of(x, w) > unsigned_of(y, w);
        }
        return c == "lt" || c == "lo"   ? order < 0
               : c == "le" || c == "ls" ? order <= 0
               : c == "gt" || c == "hi" ? order > 0
               : c == "ge" || c == "hs" ? order >= 0
               : c == "eq"              ? order == 0
                                        : order != 0 && c != "nan";
    });
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

Instruction convert(const Line & l) {
    const std::string from = l.parts.back(), to = l.parts[l.parts.size() - 2];
    const int         wf = width_of(from), wt = width_of(to);
    const bool        toward_zero = l.has("rzi"), nearest = l.has("rni"), down = l.has("rmi"),
               sat = l.has("sat");
    return l.unary([=](uint64_t x) -> uint64_t {
        if (from[0] == 'f') {
            double v = wf == 4 ? f32(x) : f64(x);
            v        = toward_zero ? std::trunc(v)
                       : nearest   ? std::nearbyint(v)
                       : down      ? std::floor(v)
                                   : v;
            if (sat && to[0] == 'f') {
                v = v > 0 ? std::min(v, 1.0) : 0.0;
            }
            return to == "f32"   ? of(static_cast<float>(v))
                   : to == "f64" ? of(v)
                                 : unsigned_of(static_cast<int64_t>(v), wt);
        }
        const int64_t v =
            from[0] == 's' ? signed_of(x, wf) : static_cast<int64_t>(unsigned_of(x, wf));
        if (to == "f32") {
            return from[0] == 's' ? of(static_cast<float>(v))
                                  : of(static_cast<float>(static_cast<uint64_t>(v)));
        }
        return to == "f64" ? of(from[0] == 's' ? static_cast<double>(v)
                                               : static_cast<double>(static_cast<uint64_t>(v)))
                           : unsigned_of(static_cast<uint64_t>(v), wt);
    });
}

// a * b + c, rounded once; down: toward minus infinity.
uint64_t fused(float a, float b, float c, bool down) {
    if (!down) {
        return of(std::fmaf(a, b, c));
    }
    const int old = std::fegetround();
    std::fesetround(FE_DOWNWARD);
    volatile float va = a, vb = b, vc = c;
    const float    v = std::fmaf(va, vb, vc);
    std::fesetround(old);
    return of(v);
}

Instruction real_arithmetic(const Line & l) {
    const bool        f4 = l.is_f32;
    const std::string op = l.op;
    if (op == "fma" || op == "mad") {
        const bool down = l.has("rm");
        return l.ternary([=](uint64_t a, uint64_t b, uint64_t c) {
            return f4 ? fused(f32(a), f32(b), f32(c), down) : of(std::fma(f64(a), f64(b), f64(c)));
        });
    }
    if (op == "copysign") {
        return l.binary([](uint64_t a, uint64_t b) { return of(std::copysign(f32(b), f32(a))); });
    }
    const char two = op == "add"   ? '+'
                     : op == "sub" ? '-'
                     : op == "mul" ? '*'
                     : op == "div" ? '/'
                     : op == "min" ? 'n'
                     : op == "max" ? 'x'
                                   : 0;
    if (two != 0) {
        const auto f = [two](auto a, auto b) -> decltype(a) {
            return two == '+'   ? a + b
                   : two == '-' ? a - b
                   : two == '*' ? a * b
                   : two == '/' ? a / b
                   : two == 'n' ? std::fmin(a, b)
                                : std::fmax(a, b);
        };
        return l.binary([=](uint64_t a, uint64_t b) {
            return f4 ? of(f(f32(a), f32(b))) : of(f(f64(a), f64(b)));
        });
    }
    const char one = op == "neg"    ? '-'
                     : op == "abs"  ? 'a'
                     : op == "sqrt" ? 's'
                     : op == "rcp"  ? 'r'
                     : op == "ex2"  ? 'e'
                     : op == "lg2"  ? 'l'
                                    : 0;
    if (one == 0) {
        l.unknown();
    }
    const auto f = [one](auto a) -> decltype(a) {
        return one == '-'   ? -a
               : one == 'a' ? std::fabs(a)
               : one == 's' ? std::sqrt(a)
               : one == 'r' ? 1 / a
               : one == 'e' ? std::exp2(a)
                            : std::log2(a);
    };
    return l.unary([=](uint64_t a) { return f4 ? of(f(f32(a))) : of(f(f64(a))); });
}

Instruction integer_arithmetic(const Line & l) {
    const int         w = l.w, all = 8 * l.w;
    const bool        sign  = l.is_signed;
    const std::string op    = l.op;
    const auto        keep  = [w](uint64_t v) { return unsigned_of(v, w); };
    const auto        value = [w, sign](uint64_t v) {
        return sign ? static_cast<__int128>(signed_of(v, w))
                           : static_cast<__int128>(unsigned_of(v, w));
    };
    if (op == "mad" || op == "mul") {
        const bool wide = l.has("wide"), high = l.has("hi");
        const auto product = [=](uint64_t a, uint64_t b) {
            const __int128 p = value(a) * value(b);
            return wide ? unsigned_of(static_cast<uint64_t>(p), 2 * w)
                        : keep(static_cast<uint64_t>(high ? p >> all : p));
        };
        if (op == "mul") {
            return l.binary(product);
        }
        return l.ternary([=](uint64_t a, uint64_t b, uint64_t c) {
            return unsigned_of(product(a, b) + c, wide ? 2 * w : w);
        });
    }
    if (op == "add") {
        return l.binary([=](uint64_t a, uint64_t b) { return keep(a + b); });
    }
    if (op == "sub") {
        return l.binary([=](uint64_t a, uint64_t b) { return keep(a - b); });
    }
    if (op == "and") {
        return l.binary([=](uint64_t a, uint64_t b) { return keep(a & b); });
    }
    if (op == "or") {
        return l.binary([=](uint64_t a, uint64_t b) { return keep(a | b); });
    }
    if (op == "xor") {
        return l.binary([=](uint64_t a, uint64_t b) { return keep(a ^ b); });
    }
    if (op == "min" || op == "max") {
        const bool max = op == "max";
        return l.binary([=](uint64_t a, uint64_t b) {
            return keep((value(a) < value(b)) == max ? b : a);
        });
    }
    if (op == "div" || op == "rem") {
        const bool div = op == "div";
        return l.binary([=](uint64_t a, uint64_t b) {
            return value(b) == 0
                       ? keep(~uint64_t(0))
                       : keep(static_cast<uint64_t>(div ? value(a) / value(b) : value(a) % value(b))
                         );
        });
    }
    if (op == "shl") {
        return l.binary([=](uint64_t a, uint64_t b) {
            return uint32_t(b) >= uint32_t(all) ? 0 : keep(a << uint32_t(b));
        });
    }
    if (op == "shr") {
        return l.binary([=](uint64_t a, uint64_t b) {
            return keep(static_cast<uint64_t>(
                value(a) >> std::min<uint32_t>(uint32_t(b), sign ? all - 1 : all)
            ));
        });
    }
    if (op == "shf") {  // funnel shift of 32 bits, clamped or wrapped
        const bool left = l.has("l"), wrap = l.has("wrap");
        return l.ternary([=](uint64_t low, uint64_t high, uint64_t by) {
            const uint32_t n = wrap ? by & 31 : std::min<uint32_t>(uint32_t(by), 32);
            const uint64_t v = unsigned_of(high, 4) << 32 | unsigned_of(low, 4);
            return unsigned_of(left ? v << n >> 32 : v >> n, 4);
        });
    }
    if (op ==
        "prmt") {  // four bytes out of eight; the high bit of a selector takes the sign instead
        return l.ternary([](uint64_t low, uint64_t high, uint64_t selectors) {
            const uint64_t v = unsigned_of(high, 4) << 32 | unsigned_of(low, 4);
            uint64_t       r = 0;
            for (int i = 0; i < 4; ++i) {
                const uint64_t s = selectors >> 4 * i & 15, byte = v >> 8 * (s & 7) & 255;
                r |= ((s & 8) == 0 ? byte : (byte & 128) != 0 ? 255 : 0) << 8 * i;
            }
            return r;
        });
    }
    if (op == "bfi") {
        const Value a = l.in(1), b = l.in(2), at = l.in(3), n = l.in(4);
        return l.set([=](Machine & m, Thread & t) {
            const uint64_t from = at(m, t) & 255, len = n(m, t) & 255;
            const uint64_t mask = (len >= 64 ? ~uint64_t(0) : (uint64_t(1) << len) - 1) << from;
            return keep((b(m, t) & ~mask) | (a(m, t) << from & mask));
        });
    }
    if (op == "bfe") {
        return l.ternary([=](uint64_t a, uint64_t at, uint64_t n) {
            const uint64_t v = keep(a) >> (at & 63), len = n & 255;
            const uint64_t u = len >= 64 ? v : v & ((uint64_t(1) << len) - 1);
            return keep(
                sign && len > 0 && len < 64 && (u >> (len - 1) & 1) ? u | ~uint64_t(0) << len : u
            );
        });
    }
    const char one = op == "not"     ? '~'
                     : op == "neg"   ? '-'
                     : op == "popc"  ? 'p'
                     : op == "clz"   ? 'c'
                     : op == "brev"  ? 'b'
                     : op == "bfind" ? 'f'
                     : op == "abs"   ? 'a'
                                     : 0;
    if (one == 0) {
        l.unknown();
    }
    const bool shift = l.has("shiftamt"), pred = l.type == "pred";
    return l.unary([=](uint64_t a) -> uint64_t {
        const uint64_t v = keep(a);
        switch (one) {
            case '~':
                return pred ? uint64_t(v == 0) : keep(~v);
            case '-':
                return keep(0 - v);
            case 'a':
                return keep(static_cast<uint64_t>(std::llabs(signed_of(a, w))));
            case 'p':
                return static_cast<uint64_t>(__builtin_popcountll(v));
            case 'c':
                return v == 0 ? all : static_cast<uint64_t>(__builtin_clzll(v) - (64 - all));
            case 'f': {
                if (v == 0) {
                    return 0xffffffffu;
                }
                const int top = 63 - __builtin_clzll(v);
                return static_cast<uint64_t>(shift ? all - 1 - top : top);
            }
            default: {
                uint64_t r = 0;
                for (int i = 0; i < all; ++i) {
                    r |= (v >> i & 1) << (all - 1 - i);
                }
                return r;
            }
        }
    });
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
