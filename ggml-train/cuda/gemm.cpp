// ggml-train/cuda/gemm.cpp — products by cuBLASLt. Compiled by the host's compiler: cublaslt.h has all it needs.
//
// cuBLASLt is column-major, where our matrices are their own transposes: it is asked for C^T = op(B)^T op(A)^T, in
// which both keep their flags, and a bias per column of C is one per row, as its epilogue wants it. No GPU has been
// asked which products have algorithms for which epilogues: kernels of ours do what has none.
#include "ggml-train/base/base.h"
#include "ggml-train/cuda/cublaslt.h"

#include <atomic>
#include <map>
#include <mutex>

namespace gt::cuda {

namespace {

constexpr size_t kWorkspace = size_t{32} << 20;  // what cuBLAS takes itself on the newest GPUs

std::atomic<bool> g_tf32{false};

// Of one device. Lives as long as the process, as the library does.
struct Products {
    CublasLt   lt;
    LtHandle * handle    = nullptr;
    void *     workspace = nullptr;
};

// Of the calling thread's device. All products of a device are on one stream, so that they share the workspace.
const Products & products() {
    static std::mutex              mutex;
    static std::map<int, Products> all;
    const std::lock_guard          lock(mutex);
    Products &                     p = all[current_device()];
    if (!p.workspace) {
        p.lt = load_cublaslt();
        p.lt.check(p.lt.cublasLtCreate(&p.handle), "start");
        p.workspace = alloc(kWorkspace);
    }
    return p;
}

// A descriptor of cuBLASLt's, freed at the end of its block.
template <class T>
using Owned = std::unique_ptr<T, LtStatus (*)(T *)>;

Owned<LtLayout> layout(
    const CublasLt & lt, LtType type, bool transposed, int64_t rows, int64_t columns, int64_t ld
) {
    LtLayout * made = nullptr;
    if (transposed) {
        std::swap(rows, columns);
    }
    lt.check(
        lt.cublasLtMatrixLayoutCreate(
            &made, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), ld
        ),
        "matrix"
    );
    return {made, lt.cublasLtMatrixLayoutDestroy};
}

LtEpilogue epilogue(const Gemm & g) {
    if (g.a_sums) {
        return kLtSumsOfB;
    }
    switch (g.then) {
        case Gemm::Then::gelu:
            return g.bias ? kLtGeluAndBias : kLtGelu;
        case Gemm::Then::gelu_back:
            return kLtGeluBack;
        default:
            return g.bias ? kLtBias : kLtPlain;
    }
}

Owned<LtProduct> product(const CublasLt & lt, const Gemm & g) {
    LtProduct * made = nullptr;
    lt.check(
        lt.cublasLtMatmulDescCreate(
            &made, g_tf32 && !g.bf16 ? kLtSumF32FromTf32 : kLtSumF32, kLtF32
        ),
        "product"
    );
    Owned<LtProduct> owned(made, lt.cublasLtMatmulDescDestroy);
    const auto       set = [&](LtProductAttribute attribute, const auto & value) {
        lt.check(
                  lt.cublasLtMatmulDescSetAttribute(made, attribute, &value, sizeof(value)), "product"
              );
    };
    set(kLtTransposeA, int32_t{g.tb});
    set(kLtTransposeB, int32_t{g.ta});
    set(kLtEpilogue, epilogue(g));
    if (const void * bias = g.a_sums ? g.a_sums : g.bias) {
        set(kLtBiasPointer, bias);  // of C's type, unless another attribute says otherwise
    }
    if (g.inner) {
        set(kLtAuxPointer, g.inner);
        set(kLtAuxLd, g.ldc);
    }
    return owned;
}

// The algorithms that may be chosen: kernels that load 16 bytes at once need such addresses.
Owned<LtPreference> preference(const CublasLt & lt, std::initializer_list<const void *> addresses) {
    LtPreference * made = nullptr;
    lt.check(lt.cublasLtMatmulPreferenceCreate(&made), "preference");
    Owned<LtPreference> owned(made, lt.cublasLtMatmulPreferenceDestroy);
    const auto          set = [&](int attribute, const auto & value) {
        lt.check(
                     lt.cublasLtMatmulPreferenceSetAttribute(
                         made, static_cast<LtPreferenceAttribute>(attribute), &value, sizeof(value)
                     ),
                     "preference"
                 );
    };
    set(kLtMostWorkspace, uint64_t{kWorkspace});
    int attribute = kLtAlignmentA;
    for (const void * address : addresses) {
        const auto bits = reinterpret_cast<uintptr_t>(address) | 256;
        set(attribute++, static_cast<uint32_t>(bits & (~bits + 1)));
    }
    return owned;
}

struct Answer {
    LtStatus status;
    int      n_algorithms = 0;
};

Answer multiply(Stream s, const Gemm & g) {
    const Products & p    = products();
    const CublasLt & lt   = p.lt;
    const LtType     type = g.bf16 ? kLtBf16 : kLtF32;
    const LtType     made = g.C.bf16 ? kLtBf16 : kLtF32;
    const void *     add  = g.residual ? g.residual : g.C.at;
    const auto       op   = product(lt, g);
    const auto       A    = layout(lt, type, g.tb, g.N, g.K, g.ldb),
               B          = layout(lt, type, g.ta, g.K, g.M, g.lda);
    const auto C          = layout(lt, made, false, g.N, g.M, g.ldc);
    const auto wanted     = preference(lt, {g.B, g.A, add, g.C.at});
    LtChoice   choice{};
    Answer     answer{};
    answer.status = lt.cublasLtMatmulAlgoGetHeuristic(
        p.handle, op.get(), A.get(), B.get(), C.get(), C.get(), wanted.get(), 1, &choice,
        &answer.n_algorithms
    );
    if (answer.status == kLtSuccess && answer.n_algorithms > 0) {
        const float alpha = 1.0f, beta = g.residual ? 1.0f : 0.0f;
        answer.status = lt.cublasLtMatmul(
            p.handle, op.get(), &alpha, g.B, A.get(), g.A, B.get(), &beta, add, C.get(), g.C.at,
            C.get(), &choice.algorithm, p.workspace, kWorkspace, s
        );
    } else if (answer.status == kLtSuccess) {
        answer.status = kLtNotSupported;
    }
    return answer;
}

// The product alone, then a kernel for what it has no algorithm for.
void gemm_and_kernel(Stream s, const Gemm & g) {
    Gemm alone   = g;
    alone.then   = Gemm::Then::nothing;
    alone.inner  = nullptr;
    alone.a_sums = nullptr;
    if (g.then == Gemm::Then::gelu) {
        alone.C = g.inner;
    }
    gemm(s, alone);
    const int64_t n = g.M * g.N;
    if (g.then == Gemm::Then::gelu) {
        gelu(s, n, Gelu::tanh, g.inner, g.C);
    } else if (g.then == Gemm::Then::gelu_back) {
        gelu_back(s, n, Gelu::tanh, g.inner, g.C, g.C);
    } else if (g.bf16) {
        sum_rows(s, g.K, g.M, static_cast<const uint16_t *>(g.A), g.lda, 0.0f, g.a_sums);
    } else {
        sum_rows(s, g.K, g.M, static_cast<const float *>(g.A), g.lda, 0.0f, g.a_sums);
    }
}

}  // namespace

void CublasLt::check(LtStatus result, const char * what) const {
    if (result != kLtSuccess) {
        throw Error(format("cuBLASLt: %s: %s", what, cublasLtGetStatusString(result)));
    }
}

void use_tf32(bool on) {
    g_tf32 = on;
}

void gemm(Stream s, const Gemm & g) {
    if (g.M == 0 || g.N == 0) {
        return;
    }
    if (g.inner && g.ldc % kLtAuxStep != 0) {
        gemm_and_kernel(s, g);
        return;
    }
    const Answer answer = multiply(s, g);
    if (answer.status == kLtSuccess) {
        return;
    }
    if (answer.status == kLtNotSupported && answer.n_algorithms == 0 && (g.inner || g.a_sums)) {
        gemm_and_kernel(s, g);
        return;
    }
    throw Error(format(
        "cuBLASLt: %s for a product of %lldx%lldx%lld (%s%s%s, rows of %lld, %lld and %lld): "
        "%s; "
        "update the CUDA libraries, or use --portable",
        answer.n_algorithms > 0 ? "an error" : "no algorithm", static_cast<long long>(g.M),
        static_cast<long long>(g.N), static_cast<long long>(g.K),
        g.C.bf16 ? "bf16 to bf16"
        : g.bf16 ? "bf16"
                 : "f32",
        g.ta ? ", A transposed" : "", g.tb ? ", B transposed" : "", static_cast<long long>(g.lda),
        static_cast<long long>(g.ldb), static_cast<long long>(g.ldc),
        products().lt.cublasLtGetStatusString(answer.status)
    ));
}

}  // namespace gt::cuda
