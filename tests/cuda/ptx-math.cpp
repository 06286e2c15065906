// tests/cuda/ptx-math.cpp — comparisons, conversions and arithmetic of PTX. .approx is computed exactly,
// .ftz keeps subnormals: the tests that meet them have a tolerance.
#include "ptx-line.h"

#include <cfenv>
#include <cmath>

namespace ptx {

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

// Two floats to two bf16; the first operand becomes the upper half.
static uint64_t bf16_pair(uint64_t high, uint64_t low) {
    const auto round = [](uint64_t v) -> uint64_t {
        const auto u = static_cast<uint32_t>(v);
        return std::isnan(f32(v)) ? 0x7fff : (u + 0x7fffull + (u >> 16 & 1)) >> 16;
    };
    return round(high) << 16 | round(low);
}

Instruction convert(const Line & l) {
    if (l.has("bf16x2")) {
        return l.binary(bf16_pair);
    }
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
static uint64_t fused(float a, float b, float c, bool down) {
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

namespace {

// Integers of w bytes.
struct Integers {
    int  w;
    bool sign;

    uint64_t keep(uint64_t v) const { return unsigned_of(v, w); }
    __int128 value(uint64_t v) const {
        return sign ? static_cast<__int128>(signed_of(v, w))
                    : static_cast<__int128>(unsigned_of(v, w));
    }
};

// Shifts and bit fields; empty if the op is another one.
Instruction bit_operation(const Line & l, Integers i) {
    const int         all   = 8 * i.w;
    const bool        sign  = i.sign;
    const std::string op    = l.op;
    const auto        keep  = [i](uint64_t v) { return i.keep(v); };
    const auto        value = [i](uint64_t v) { return i.value(v); };
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
    if (op == "prmt") {  // four bytes out of eight; the high bit of a selector takes the sign
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
    return {};
}

Instruction unary_operation(const Line & l, Integers i) {
    const int         w = i.w, all = 8 * i.w;
    const std::string op   = l.op;
    const auto        keep = [i](uint64_t v) { return i.keep(v); };
    const char        one  = op == "not"     ? '~'
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

}  // namespace

Instruction integer_arithmetic(const Line & l) {
    const Integers    i{l.w, l.is_signed};
    const int         w = i.w, all = 8 * i.w;
    const std::string op    = l.op;
    const auto        keep  = [i](uint64_t v) { return i.keep(v); };
    const auto        value = [i](uint64_t v) { return i.value(v); };
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
    const Instruction bits = bit_operation(l, i);
    return bits ? bits : unary_operation(l, i);
}

}  // namespace ptx
