// The functions of cuBLASLt as cublaslt.h repeats them, against NVIDIA's header and library where they are
// installed. No GPU is needed for that.
#include "ggml-train/base/base.h"
#include "ggml-train/cuda/cublaslt.h"
#include "tests/catch.h"

#include <cstdlib>
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

using namespace gt;
using namespace gt::cuda;

namespace {

class NamedLibrary {
public:
    explicit NamedLibrary(const char * file) { setenv("GT_CUBLASLT_LIB", file, 1); }
    ~NamedLibrary() { unsetenv("GT_CUBLASLT_LIB"); }
    NamedLibrary(const NamedLibrary &)             = delete;
    NamedLibrary & operator=(const NamedLibrary &) = delete;
};

std::string error_of(const char * file) {
    const NamedLibrary named(file);
    try {
        (void) load_cublaslt();
    } catch (const Error & e) {
        return e.what();
    }
    return "";
}

}  // namespace

TEST_CASE("a_missing_or_foreign_cublaslt_is_one_message") {
    const std::string missing = error_of("/nonexistent/libcublasLt.so");
    INFO(missing);
    CHECK(missing.find("cuBLASLt cannot be loaded (/nonexistent/libcublasLt.so") == 0);
    CHECK(missing.find("install libcublas of CUDA 12 or 13") != std::string::npos);
    CHECK(
        error_of("libm.so.6") ==
        "the cuBLASLt library has no cublasLtGetStatusString: it is too old, or another library"
    );
}

#ifdef CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA  // cublasLt.h is there
namespace {

// Arguments that a call passes in the same way: pointers for pointers, numbers of the same size.
template <class A, class B>
constexpr bool passes_same =
    std::is_pointer_v<A> ? std::is_pointer_v<B> : !std::is_pointer_v<B> && sizeof(A) == sizeof(B);
template <class R, class... A, class Q, class... B>
constexpr bool same_call(R (*)(A...), Q (*)(B...)) {
    if constexpr (sizeof...(A) == sizeof...(B)) {
        return passes_same<R, Q> && (passes_same<A, B> && ...);
    }
    return false;
}

}  // namespace

TEST_CASE("the_table_has_the_abi_of_cublaslt_h") {
    const CublasLt table;
#define GT_SAME(result, name, arguments) CHECK(same_call(table.name, ::name));
    GT_CUBLASLT_CALLS(GT_SAME)
#undef GT_SAME
    CHECK(int(kLtSuccess) == int(CUBLAS_STATUS_SUCCESS));
    CHECK(int(kLtInvalidValue) == int(CUBLAS_STATUS_INVALID_VALUE));
    CHECK(int(kLtNotSupported) == int(CUBLAS_STATUS_NOT_SUPPORTED));
    CHECK(int(kLtF32) == int(CUDA_R_32F));
    CHECK(int(kLtBf16) == int(CUDA_R_16BF));
    CHECK(int(kLtSumF32) == int(CUBLAS_COMPUTE_32F));
    CHECK(int(kLtSumF32FromTf32) == int(CUBLAS_COMPUTE_32F_FAST_TF32));
    CHECK(int(kLtTransposeA) == int(CUBLASLT_MATMUL_DESC_TRANSA));
    CHECK(int(kLtTransposeB) == int(CUBLASLT_MATMUL_DESC_TRANSB));
    CHECK(int(kLtEpilogue) == int(CUBLASLT_MATMUL_DESC_EPILOGUE));
    CHECK(int(kLtBiasPointer) == int(CUBLASLT_MATMUL_DESC_BIAS_POINTER));
    CHECK(int(kLtPlain) == int(CUBLASLT_EPILOGUE_DEFAULT));
    CHECK(int(kLtBias) == int(CUBLASLT_EPILOGUE_BIAS));
    CHECK(int(kLtAuxPointer) == int(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER));
    CHECK(int(kLtAuxLd) == int(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD));
    CHECK(int(kLtGelu) == int(CUBLASLT_EPILOGUE_GELU_AUX));
    CHECK(int(kLtGeluAndBias) == int(CUBLASLT_EPILOGUE_GELU_AUX_BIAS));
    CHECK(int(kLtGeluBack) == int(CUBLASLT_EPILOGUE_DGELU));
    CHECK(int(kLtSumsOfB) == int(CUBLASLT_EPILOGUE_BGRADB));
    CHECK(int(kLtMostWorkspace) == int(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES));
    CHECK(int(kLtAlignmentA) == int(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES));
    CHECK(int(kLtAlignmentA) + 3 == int(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES));
    CHECK(sizeof(LtAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
    CHECK(sizeof(LtChoice) == sizeof(cublasLtMatmulHeuristicResult_t));
    CHECK(
        offsetof(LtChoice, workspace_bytes) ==
        offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize)
    );
    CHECK(offsetof(LtChoice, status) == offsetof(cublasLtMatmulHeuristicResult_t, state));
    CHECK(int(CUBLAS_OP_N) == 0);  // gemm.cpp passes whether a factor is transposed
    CHECK(int(CUBLAS_OP_T) == 1);
}
#else
TEST_CASE("the_table_has_the_abi_of_cublaslt_h") {
    WARN("cublasLt.h was not found: the table was not compared with it");
}
#endif

#ifdef GT_CUBLASLT_LIBRARY
TEST_CASE("the_library_takes_our_descriptions_of_a_product") {
    const NamedLibrary named(GT_CUBLASLT_LIBRARY);
    const CublasLt     lt      = load_cublaslt();
    LtProduct *        product = nullptr;
    REQUIRE(lt.cublasLtMatmulDescCreate(&product, kLtSumF32, kLtF32) == kLtSuccess);
    const auto set = [&](LtProductAttribute what, const auto & value) {
        return lt.cublasLtMatmulDescSetAttribute(product, what, &value, sizeof(value));
    };
    CHECK(set(kLtTransposeA, int32_t{1}) == kLtSuccess);
    CHECK(set(kLtTransposeB, int32_t{0}) == kLtSuccess);
    CHECK(set(kLtTransposeB, int64_t{0}) == kLtInvalidValue);  // it looks at sizes
    for (const LtEpilogue epilogue :
         {kLtPlain, kLtBias, kLtGelu, kLtGeluAndBias, kLtGeluBack, kLtSumsOfB}) {
        CHECK(set(kLtEpilogue, epilogue) == kLtSuccess);
    }
    CHECK(set(kLtBiasPointer, static_cast<const float *>(nullptr)) == kLtSuccess);
    CHECK(set(kLtAuxPointer, static_cast<const float *>(nullptr)) == kLtSuccess);
    CHECK(set(kLtAuxLd, int64_t{3072}) == kLtSuccess);
    CHECK(set(kLtAuxLd, int32_t{3072}) == kLtInvalidValue);
    CHECK(lt.cublasLtMatmulDescDestroy(product) == kLtSuccess);

    LtLayout * layout = nullptr;
    REQUIRE(lt.cublasLtMatrixLayoutCreate(&layout, kLtBf16, 768, 3072, 768) == kLtSuccess);
    CHECK(lt.cublasLtMatrixLayoutDestroy(layout) == kLtSuccess);

    LtPreference * preference = nullptr;
    REQUIRE(lt.cublasLtMatmulPreferenceCreate(&preference) == kLtSuccess);
    const uint64_t workspace = 32 << 20;
    const uint32_t alignment = 4;
    CHECK(
        lt.cublasLtMatmulPreferenceSetAttribute(
            preference, kLtMostWorkspace, &workspace, sizeof(workspace)
        ) == kLtSuccess
    );
    for (int i = 0; i < 4; ++i) {
        CHECK(
            lt.cublasLtMatmulPreferenceSetAttribute(
                preference, LtPreferenceAttribute(kLtAlignmentA + i), &alignment, sizeof(alignment)
            ) == kLtSuccess
        );
    }
    CHECK(lt.cublasLtMatmulPreferenceDestroy(preference) == kLtSuccess);
    CHECK_THAT(
        std::string(lt.cublasLtGetStatusString(kLtNotSupported)), ContainsSubstring("not supported")
    );
}
#endif
