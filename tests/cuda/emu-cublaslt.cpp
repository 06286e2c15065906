// tests/cuda/emu-cublaslt.cpp — a replacement for cuBLASLt on the emulator's memory and streams. It enforces the
// rules of the library: matrices fit together and are as long as their rows say, an algorithm is only used for what
// it was chosen for, with addresses as aligned as was promised and all the workspace it asked for. Products are done
// when their stream is synchronized. Like cuda-emu.cpp, never compiled with sanitizers.
//
// GT_EMU_CUBLASLT_FAIL=choose|run    finds no algorithm; fails to run one
// Not modelled: the order of cuBLASLt's sums, types and epilogues that gemm.cpp does not use.
#include "cuda-emu.h"
#include "emu-matrix.h"
#include "ggml-train/cuda/cublaslt.h"

#include <cstdio>
#include <cstdlib>

namespace gt::cuda {

struct LtHandle {};
struct LtProduct {
    LtCompute    compute{};
    int32_t      transpose[2]{};  // A, B
    uint32_t     epilogue = kLtPlain;
    const void * bias     = nullptr;
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
    int32_t  M = 0, N = 0, K = 0, flags = 0;
    uint32_t alignment[4]{};
    uint64_t ld[3]{};
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
    if ((op.epilogue == kLtBias) != (op.bias != nullptr)) {
        return fail("an epilogue without its bias, or the reverse"), false;
    }
    shape       = {};
    shape.M     = static_cast<int32_t>(D.rows);
    shape.N     = static_cast<int32_t>(D.columns);
    shape.K     = static_cast<int32_t>(K);
    shape.flags = ta + 2 * tb + 4 * (A.type == kLtBf16) + 8 * (op.epilogue == kLtBias) +
                  16 * op.compute + 4096 * (D.type == kLtBf16);
    shape.ld[0] = static_cast<uint64_t>(A.ld);
    shape.ld[1] = static_cast<uint64_t>(B.ld);
    shape.ld[2] = static_cast<uint64_t>(D.ld);
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

void run(const Work & w) {
    const int64_t M = w.shape.M, N = w.shape.N, K = w.shape.K, ld = w.shape.ld[2];
    const auto    a = packed(w.a, w.A, w.op.transpose[0] == 0, K, M);  // rows of op(A)'s columns
    const auto    b = packed(w.b, w.B, w.op.transpose[1] == 0, N, K);
    std::vector<float> sum(static_cast<size_t>(M));
    for (int64_t n = 0; n < N; ++n) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (int64_t k = 0; k < K; ++k) {
            const float   factor = b[n * K + k];
            const float * column = a.data() + k * M;
            for (int64_t m = 0; m < M; ++m) {
                sum[m] += factor * column[m];
            }
        }
        for (int64_t m = 0; m < M; ++m) {
            const int64_t at  = n * ld + m;
            const float   old = w.beta == 0.0f ? 0.0f : w.beta * load(w.D.type, w.c, at);
            const float   all = sum[m] + old + (w.op.bias ? load(w.D.type, w.op.bias, m) : 0.0f);
            if (w.D.type == kLtBf16) {
                static_cast<uint16_t *>(w.d)[at] = static_cast<uint16_t>(bf16_bits(all));
            } else {
                static_cast<float *>(w.d)[at] = all;
            }
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
