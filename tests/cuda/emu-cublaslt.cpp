// tests/cuda/emu-cublaslt.cpp — a replacement for cuBLASLt on the emulator's memory and streams. It enforces the
// rules of the library: matrices fit together and are as long as their rows say, an algorithm is only used for what
// it was chosen for, with addresses as aligned as was promised and all the workspace it asked for. Products are done
// when their stream is synchronized. Like cuda-emu.cpp, never compiled with sanitizers.
//
// GT_EMU_CUBLASLT_FAIL=choose|epilogue|run    finds no algorithm; none with GELU or sums; fails to run one
// Not modelled: the order of cuBLASLt's sums, types and epilogues that gemm.cpp does not use.
#include "cuda-emu.h"
#include "emu-matrix.h"
#include "ggml-train/cuda/cublaslt.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace gt::cuda {

struct LtHandle {};
struct LtProduct {
    LtCompute    compute{};
    int32_t      transpose[2]{};  // A, B
    uint32_t     epilogue = kLtPlain;
    const void * bias     = nullptr;
    void *       aux      = nullptr;
    int64_t      aux_ld   = 0;

    bool has_gelu() const { return (epilogue & ~uint32_t{kLtBias}) == kLtGelu; }
    bool has_bias() const { return epilogue == kLtBias || epilogue == kLtGeluAndBias; }
};
struct LtLayout {
    LtType  type{};
    int64_t rows = 0, columns = 0, ld = 0;
};
struct LtPreference {
    uint64_t workspace    = 0;
    uint32_t alignment[4] = {256, 256, 256, 256};  // A, B, C, D
};

namespace {

constexpr LtStatus kAllocFailed   = LtStatus(3);
constexpr uint64_t kWorkspaceUsed = 4 << 20;

LtStatus fail(const char * why) {
    std::fprintf(stderr, "emulated cuBLASLt: %s\n", why);
    return kLtInvalidValue;
}

bool fails(const char * where) {
    const char * named = std::getenv("GT_EMU_CUBLASLT_FAIL");
    return named && std::string(named) == where;
}

const char * status_string(LtStatus status) {
    return status == kLtSuccess        ? "no error"
           : status == kLtNotSupported ? "not supported"
           : status == kAllocFailed    ? "allocation failed"
                                       : "invalid value";
}

LtStatus create(LtHandle ** handle) {
    static LtHandle the_handle;
    *handle = &the_handle;
    return kLtSuccess;
}

template <class T>
LtStatus destroy(T * made) {
    delete made;
    return kLtSuccess;
}

LtStatus create_product(LtProduct ** product, LtCompute compute, LtType scale) {
    if (scale != kLtF32 || (compute != kLtSumF32 && compute != kLtSumF32FromTf32)) {
        return kLtNotSupported;
    }
    *product            = new LtProduct;
    (*product)->compute = compute;
    return kLtSuccess;
}

template <class T>
LtStatus copy_value(T & to, const void * from, size_t bytes) {
    if (bytes != sizeof(T)) {
        return fail("an attribute of another size");
    }
    memcpy(&to, from, bytes);
    return kLtSuccess;
}

LtStatus
set_product(LtProduct * product, LtProductAttribute what, const void * value, size_t bytes) {
    switch (what) {
        case kLtTransposeA:
        case kLtTransposeB:
            return copy_value(product->transpose[what - kLtTransposeA], value, bytes);
        case kLtEpilogue:
            return copy_value(product->epilogue, value, bytes);
        case kLtBiasPointer:
            return copy_value(product->bias, value, bytes);
        case kLtAuxPointer:
            return copy_value(product->aux, value, bytes);
        case kLtAuxLd:
            return copy_value(product->aux_ld, value, bytes);
    }
    return fail("an unknown attribute");
}

LtStatus
create_layout(LtLayout ** layout, LtType type, uint64_t rows, uint64_t columns, int64_t ld) {
    *layout = new LtLayout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld};
    return kLtSuccess;
}

LtStatus create_preference(LtPreference ** preference) {
    *preference = new LtPreference;
    return kLtSuccess;
}

LtStatus set_preference(
    LtPreference * preference, LtPreferenceAttribute what, const void * value, size_t bytes
) {
    if (what == kLtMostWorkspace) {
        return copy_value(preference->workspace, value, bytes);
    }
    const int i = what - kLtAlignmentA;
    return i >= 0 && i < 4 ? copy_value(preference->alignment[i], value, bytes)
                           : fail("an unknown preference");
}

// A product with all that it is about, in the form of an algorithm's data.
struct Shape {
    int32_t  M = 0, N = 0, K = 0;
    uint16_t flags = 0, epilogue = 0;
    uint32_t alignment[4]{};
    uint32_t ld[4]{};  // A, B, D, aux
};
static_assert(sizeof(Shape) <= sizeof(LtAlgorithm));

// False, and why: no such product.
bool shape_of(
    const LtProduct & op,
    const LtLayout &  A,
    const LtLayout &  B,
    const LtLayout &  C,
    const LtLayout &  D,
    Shape &           shape
) {
    const bool    ta = op.transpose[0] != 0, tb = op.transpose[1] != 0;
    const int64_t K = ta ? A.rows : A.columns;
    for (const LtLayout * m : {&A, &B, &C, &D}) {
        if (m->ld < m->rows || m->rows <= 0 || m->columns <= 0) {
            return fail("columns are longer than the leading dimension, or empty"), false;
        }
    }
    if ((ta ? A.columns : A.rows) != D.rows || (tb ? B.rows : B.columns) != D.columns ||
        (tb ? B.columns : B.rows) != K || C.rows != D.rows || C.columns != D.columns) {
        return fail("matrices do not fit together"), false;
    }
    if (A.type != B.type || C.type != D.type || (D.type == kLtBf16 && A.type != kLtBf16)) {
        return fail("types that cuBLASLt does not combine"), false;
    }
    if ((op.has_bias() || op.epilogue == kLtSumsOfB) != (op.bias != nullptr)) {
        return fail("an epilogue without its bias, or the reverse"), false;
    }
    if ((op.has_gelu() || op.epilogue == kLtGeluBack) != (op.aux != nullptr)) {
        return fail("an epilogue without its auxiliary matrix, or the reverse"), false;
    }
    if (op.aux && (op.aux_ld < D.rows || op.aux_ld % kLtAuxStep != 0 || D.type != kLtBf16)) {
        return fail("an auxiliary matrix that is not bf16, of D's size, with a step of 8"), false;
    }
    shape       = {};
    shape.M     = static_cast<int32_t>(D.rows);
    shape.N     = static_cast<int32_t>(D.columns);
    shape.K     = static_cast<int32_t>(K);
    shape.flags = static_cast<uint16_t>(
        ta + 2 * tb + 4 * (A.type == kLtBf16) + 8 * (D.type == kLtBf16) + 16 * op.compute
    );
    shape.epilogue = static_cast<uint16_t>(op.epilogue);
    int i          = 0;
    for (const int64_t ld : {A.ld, B.ld, D.ld, op.aux_ld}) {
        shape.ld[i++] = static_cast<uint32_t>(ld);
    }
    return true;
}

LtStatus choose(
    LtHandle *,
    LtProduct *    op,
    LtLayout *     A,
    LtLayout *     B,
    LtLayout *     C,
    LtLayout *     D,
    LtPreference * preference,
    int            n_asked,
    LtChoice *     choices,
    int *          n
) {
    *n = 0;
    if (fails("choose")) {
        return kLtNotSupported;
    }
    Shape shape;
    if (n_asked < 1 || !shape_of(*op, *A, *B, *C, *D, shape)) {
        return kLtInvalidValue;
    }
    if ((op->epilogue & ~uint32_t{kLtBias}) > kLtPlain && fails("epilogue")) {
        return kLtNotSupported;
    }
    std::copy_n(preference->alignment, 4, shape.alignment);
    choices[0] = {};
    memcpy(&choices[0].algorithm, &shape, sizeof(shape));
    choices[0].workspace_bytes = std::min(preference->workspace, kWorkspaceUsed);
    *n                         = 1;
    return kLtSuccess;
}

float load(LtType type, const void * from, int64_t at) {
    return type == kLtBf16
               ? __uint_as_float(unsigned{static_cast<const uint16_t *>(from)[at]} << 16)
               : static_cast<const float *>(from)[at];
}

// op(X) as rows of `inner` floats.
std::vector<float>
packed(const void * from, const LtLayout & x, bool rows_inside, int64_t outer, int64_t inner) {
    std::vector<float> all(static_cast<size_t>(outer * inner));
    for (int64_t o = 0; o < outer; ++o) {
        for (int64_t i = 0; i < inner; ++i) {
            const int64_t at   = rows_inside ? o * x.ld + i : i * x.ld + o;
            all[o * inner + i] = load(x.type, from, at);
        }
    }
    return all;
}

struct Work {
    LtProduct   op;
    Shape       shape;
    LtLayout    A, B, D;
    const void *a = nullptr, *b = nullptr, *c = nullptr;
    void *      d    = nullptr;
    float       beta = 0.0f;
};

void save(LtType type, void * to, int64_t at, float x) {
    if (type == kLtBf16) {
        static_cast<uint16_t *>(to)[at] = static_cast<uint16_t>(bf16_bits(x));
    } else {
        static_cast<float *>(to)[at] = x;
    }
}

// x/2 (1 + tanh(z)) with z = kRootTwoOverPi (x + kCubic x^3), and its slope.
constexpr float kRootTwoOverPi = 0.79788456f, kCubic = 0.044715f;

float gelu_of(float x) {
    return 0.5f * x * (1.0f + std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x)));
}

float gelu_slope_at(float x) {
    const float t = std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x));
    return 0.5f * (1.0f + t) +
           0.5f * x * (1.0f - t * t) * kRootTwoOverPi * (1.0f + 3.0f * kCubic * x * x);
}

// What becomes of element [m, n] of the sum.
float finished(const Work & w, int64_t m, int64_t n, float sum) {
    const LtType type = w.D.type;
    if (w.op.has_bias()) {
        sum += load(type, w.op.bias, m);
    }
    const int64_t at = n * w.op.aux_ld + m;
    if (w.op.has_gelu()) {
        save(type, w.op.aux, at, sum);
        return gelu_of(sum);
    }
    return w.op.epilogue == kLtGeluBack ? sum * gelu_slope_at(load(type, w.op.aux, at)) : sum;
}

void run(const Work & w) {
    const int64_t M = w.shape.M, N = w.shape.N, K = w.shape.K, ld = w.D.ld;
    const auto    a = packed(w.a, w.A, w.op.transpose[0] == 0, K, M);  // rows of op(A)'s columns
    const auto    b = packed(w.b, w.B, w.op.transpose[1] == 0, N, K);
    std::vector<float> sum(static_cast<size_t>(M));
    for (int64_t n = 0; n < N; ++n) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        float of_b = 0.0f;
        for (int64_t k = 0; k < K; ++k) {
            const float   factor = b[n * K + k];
            const float * column = a.data() + k * M;
            of_b += factor;
            for (int64_t m = 0; m < M; ++m) {
                sum[m] += factor * column[m];
            }
        }
        if (w.op.epilogue == kLtSumsOfB) {
            save(w.D.type, const_cast<void *>(w.op.bias), n, of_b);
        }
        for (int64_t m = 0; m < M; ++m) {
            const int64_t at  = n * ld + m;
            const float   old = w.beta == 0.0f ? 0.0f : w.beta * load(w.D.type, w.c, at);
            save(w.D.type, w.d, at, finished(w, m, n, sum[m] + old));
        }
    }
}

bool is_aligned(const void * p, uint32_t to) {
    return reinterpret_cast<uintptr_t>(p) % to == 0;
}

LtStatus start(
    LtHandle *,
    LtProduct *         op,
    const void *        alpha,
    const void *        a,
    LtLayout *          A,
    const void *        b,
    LtLayout *          B,
    const void *        beta,
    const void *        c,
    LtLayout *          C,
    void *              d,
    LtLayout *          D,
    const LtAlgorithm * algorithm,
    void *              workspace,
    size_t              workspace_bytes,
    Stream              stream
) {
    if (fails("run")) {
        return kAllocFailed;
    }
    Shape shape, chosen;
    if (!shape_of(*op, *A, *B, *C, *D, shape)) {
        return kLtInvalidValue;
    }
    memcpy(static_cast<void *>(&chosen), algorithm, sizeof(chosen));
    std::copy_n(chosen.alignment, 4, shape.alignment);
    if (memcmp(&shape, &chosen, sizeof(shape)) != 0) {
        return fail("an algorithm that was chosen for another product");
    }
    if (!is_aligned(a, shape.alignment[0]) || !is_aligned(b, shape.alignment[1]) ||
        !is_aligned(c, shape.alignment[2]) || !is_aligned(d, shape.alignment[3])) {
        return fail("an address that is not aligned as the preference says");
    }
    if (!workspace || workspace_bytes < kWorkspaceUsed) {
        return fail("too little workspace");
    }
    Work work{*op, shape, *A, *B, *D, a, b, c, d, 0.0f};
    memcpy(&work.beta, beta, sizeof(float));
    float one = 0.0f;
    memcpy(&one, alpha, sizeof(float));
    if (one != 1.0f) {
        return fail("an alpha that gemm.cpp does not use");
    }
    cuda_emu::enqueue(stream, [work] { run(work); });
    return kLtSuccess;
}

}  // namespace

CublasLt load_cublaslt() {
    CublasLt table;
    table.cublasLtGetStatusString              = status_string;
    table.cublasLtCreate                       = create;
    table.cublasLtMatmulDescCreate             = create_product;
    table.cublasLtMatmulDescDestroy            = destroy<LtProduct>;
    table.cublasLtMatmulDescSetAttribute       = set_product;
    table.cublasLtMatrixLayoutCreate           = create_layout;
    table.cublasLtMatrixLayoutDestroy          = destroy<LtLayout>;
    table.cublasLtMatmulPreferenceCreate       = create_preference;
    table.cublasLtMatmulPreferenceDestroy      = destroy<LtPreference>;
    table.cublasLtMatmulPreferenceSetAttribute = set_preference;
    table.cublasLtMatmulAlgoGetHeuristic       = choose;
    table.cublasLtMatmul                       = start;
    return table;
}

}  // namespace gt::cuda
