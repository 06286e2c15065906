// tests/cuda/ptx-line.h — a parsed line of PTX; only for ptx-ops.cpp and ptx-math.cpp.
//
// Registers hold 64 bits; an operation of w bytes reads the low ones and clears the others.
#pragma once

#include "ptx-run.h"

#include <algorithm>

namespace ptx {

using Strings = std::vector<std::string>;
using Value   = std::function<uint64_t(Machine &, Thread &)>;  // of an operand

template <class To, class From>
To bits(From v) {
    To to{};
    memcpy(&to, &v, std::min(sizeof to, sizeof v));
    return to;
}
inline float f32(uint64_t v) {
    return bits<float>(static_cast<uint32_t>(v));
}
inline double f64(uint64_t v) {
    return bits<double>(v);
}
inline uint64_t of(float v) {
    return bits<uint32_t>(v);
}
inline uint64_t of(double v) {
    return bits<uint64_t>(v);
}
inline uint64_t unsigned_of(uint64_t v, int w) {
    return w == 8 ? v : v & ((uint64_t(1) << (8 * w)) - 1);
}
inline int64_t signed_of(uint64_t v, int w) {
    return w == 8   ? static_cast<int64_t>(v)
           : w == 4 ? static_cast<int32_t>(v)
           : w == 2 ? static_cast<int16_t>(v)
                    : static_cast<int8_t>(v);
}
inline int width_of(const std::string & type) {
    return type == "pred" ? 1 : std::atoi(type.c_str() + 1) / 8;
}

int   register_of(const Kernel & k, const std::string & name);
Value operand(const Kernel & k, const std::string & text);

// ---- one parsed line -------------------------------------------------------------------------------------

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

// ptx-math.cpp
Instruction compare(const Line & l);
Instruction convert(const Line & l);
Instruction real_arithmetic(const Line & l);
Instruction integer_arithmetic(const Line & l);

}  // namespace ptx
