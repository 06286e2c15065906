// Every CUDA kernel against its CPU form: its source under the emulator in three orders of threads,
// and its PTX from nvcc in the interpreter. The tables are in tools/selftest/selftest-cuda*.cpp.
#include "ggml-train/base/base.h"
#include "ggml-train/cuda/muon.h"
#include "optim/device/dct-program.h"
#include "optim/math/dct.h"
#include "ptx-run.h"
#include "tests/catch.h"
#include "tools/selftest/selftest-cuda.h"

#include <cstdio>
#include <cstring>

using namespace gt;

namespace {

const auto kOrders = {cuda_emu::Order::up, cuda_emu::Order::down, cuda_emu::Order::random};

void check_all(const SelftestOptions & options) {
    const std::vector<SelftestRow> rows = selftest_cuda(options);
    CHECK(rows.size() > 30);
    for (const SelftestRow & row : rows) {
        INFO(row.name << ": error " << row.error << (row.exact ? ", same bits asked for" : ""));
        CHECK(row.ok);
    }
}

// The stages as a device runs them, on a single column.
std::vector<float> run_stages(const DctStages & s, std::vector<float> x) {
    for (int64_t stage = 0; stage < s.n_stages; ++stage) {
        std::vector<float> y(x.size());
        for (int64_t i = 0; i < s.n; ++i) {
            const cuda::DctOp & op = s.ops[stage * s.n + i];
            volatile float a = op.q >= -1 ? x[op.p] * op.a : 0.0f;  // volatile: never contracted
            volatile float b = op.q >= 0 ? x[op.q] * op.b : 0.0f;
            y[i]             = op.q >= 0 ? a + b : a;
            if (op.q <= -2) {
                const cuda::DctDot & dot = s.dots[-2 - op.q];
                volatile float       sum = x[dot.first] * s.table[dot.at];
                for (int32_t j = 1; j < dot.n; ++j) {
                    volatile float product = x[dot.first + j] * s.table[dot.at + j * dot.stride];
                    sum                    = sum + product;
                }
                y[i] = sum;
            }
        }
        x = y;
    }
    return x;
}

}  // namespace

TEST_CASE("kernels_equal_the_cpu_in_every_thread_order", "[cuda]") {
    for (const auto order : kOrders) {
        cuda_emu::config.order = order;
        check_all({});
    }
    cuda_emu::config = {};
}

TEST_CASE("stages_of_a_dct_have_the_bits_of_the_recursion", "[cuda]") {
    for (const int64_t n :
         {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 29, 32, 36, 48, 50, 63, 64, 96, 100, 512, 1000}) {
        const Dct  dct(n);
        const auto x = selftest_values(n, 50);
        for (const bool inverse : {false, true}) {
            const LaneBuffer columns(n * kRowLanes);
            for (int64_t i = 0; i < n * kRowLanes; ++i) {
                columns.data()[i] = x[i / kRowLanes];
            }
            float * const v = columns.data();
            inverse ? dct.inverse(v, kRowLanes, v, kRowLanes, kRowLanes)
                    : dct.forward(v, kRowLanes, v, kRowLanes, kRowLanes);
            const auto y        = run_stages(make_dct_stages(n, inverse), x);
            int        n_differ = 0;
            for (int64_t i = 0; i < n; ++i) {
                n_differ += std::memcmp(&y[i], &columns.data()[i * kRowLanes], sizeof(float)) != 0;
            }
            INFO("n " << n << (inverse ? " inverse" : " forward"));
            CHECK(n_differ == 0);
        }
    }
}

TEST_CASE("what_a_gpu_cannot_do_is_an_error", "[cuda]") {
    CHECK_THROWS_WITH(
        cuda::attention(
            nullptr, {.B = 1, .T = 4, .H = 1, .Hkv = 1, .D = 256}, nullptr, nullptr, nullptr
        ),
        "CUDA: attention: heads of 256, at most 128 are supported"
    );
    CHECK_THROWS_WITH(
        cuda::demo_extract(nullptr, {.rows = 128, .cols = 64, .n_chunks = 1}, {}, nullptr, nullptr),
        "CUDA: chunks of 8192 elements, at most 4096 are supported; choose a smaller --chunk"
    );
}

TEST_CASE("a_product_that_cublaslt_refuses_is_named", "[cuda]") {
    const DeviceArray<float> a(6), c(6);
    const cuda::Gemm         g{
                .M = 2, .N = 3, .K = 1, .A = a, .lda = 1, .B = a, .ldb = 3, .C = c, .ldc = 3};
    const auto error_of = [&](const char * where) {
        setenv("GT_EMU_CUBLASLT_FAIL", where, 1);
        std::string text;
        try {
            cuda::gemm(nullptr, g);
        } catch (const Error & e) {
            text = e.what();
        }
        unsetenv("GT_EMU_CUBLASLT_FAIL");
        return text;
    };
    const std::string product = " for a product of 2x3x1 (f32, rows of 1, 3 and 3): ";
    const std::string advice  = "; update the CUDA libraries, or use --portable";
    CHECK(error_of("choose") == "cuBLASLt: no algorithm" + product + "not supported" + advice);
    CHECK(error_of("run") == "cuBLASLt: an error" + product + "allocation failed" + advice);
    CHECK(error_of("") == "");
}

TEST_CASE("epilogues_that_cublaslt_refuses_are_kernels_of_ours", "[cuda]") {
    const DeviceArray<float> a(12), b(12), c(9), sums(3);
    const auto               n_launches = [&] {
        int n                 = 0;
        cuda_emu::launch_hook = [&](const cuda_emu::Launch &) { ++n; };
        cuda::gemm(
                          nullptr, {.ta     = true,
                                    .M      = 3,
                                    .N      = 3,
                                    .K      = 4,
                                    .A      = a,
                                    .lda    = 3,
                                    .B      = b,
                                    .ldb    = 3,
                                    .C      = c,
                                    .ldc    = 3,
                                    .a_sums = sums}
                      );
        cuda::synchronize(nullptr);
        cuda_emu::launch_hook = {};
        return n;
    };
    CHECK(n_launches() == 0);
    setenv("GT_EMU_CUBLASLT_FAIL", "epilogue", 1);
    CHECK(n_launches() == 1);
    check_all({.only = "gemm"});
    unsetenv("GT_EMU_CUBLASLT_FAIL");
}

TEST_CASE("many_matrices_are_orthogonalised_in_the_launches_of_one", "[cuda]") {
    for (const int64_t count : {1, 12}) {
        int n_launches        = 0;
        cuda_emu::launch_hook = [&](const cuda_emu::Launch &) { ++n_launches; };
        const cuda::Matrices       m{count, 24, 40};
        const DeviceArray<float>   x(static_cast<size_t>(count * m.size()));
        const DeviceArray<uint8_t> room(cuda::orthogonalise_bytes(m));
        cuda::orthogonalise(nullptr, m, 5, x, room);
        cuda::synchronize(nullptr);
        cuda_emu::launch_hook = {};
        CHECK(n_launches == 3 + 5 * 3);  // the norm, and three products a step
    }
}

#ifdef GT_PTX_FILES
TEST_CASE("ptx_of_nvcc_equals_the_cpu", "[cuda][ptx]") {
    const ptx::Scope scope(ptx::split(GT_PTX_FILES, ":"));
    for (const auto order : kOrders) {
        cuda_emu::config.order = order;
        check_all({.small = order != cuda_emu::Order::up});
    }
    cuda_emu::config = {};
    CHECK(scope.n_launches() > 100);
    CHECK(scope.unused() == std::vector<std::string>{});
}

// The limits are the counts of today plus ten per cent.
TEST_CASE("a_chunk_of_demo_takes_few_instructions", "[cuda][ptx]") {
    const ptx::Scope scope(ptx::split(GT_PTX_FILES, ":"));
    const ChunkGrid  grid = chunk_grid({.name = "w", .rows = 64, .cols = 64}, parse_chunk("64x64"));
    const DemoPlan   plan(grid, 32, Wire::q4);
    const DeviceArray<uint8_t> tables(plan.tables()),
        message(static_cast<size_t>(plan.bytes_per_chunk()));
    const cuda::DemoChunks   chunks = plan.chunks(tables, 1);
    const DeviceArray<float> gradient(selftest_values(4096, 60)),
        momentum(selftest_values(4096, 61)), update(4096);
    const DeviceArray<cuda::DemoPiece> pieces(std::vector<cuda::DemoPiece>(2, {message}));
    const auto                         count = [&](const char * name, const auto & launch) {
        const uint64_t before = scope.n_instructions();
        launch();
        cuda::synchronize(nullptr);
        const uint64_t n = scope.n_instructions() - before;
        std::printf("%s: %.2f M PTX instructions of threads\n", name, static_cast<double>(n) / 1e6);
        return n;
    };
    CHECK(count("demo_extract", [&] {
              cuda::demo_extract(nullptr, chunks, {gradient, 0.9f, 0.1f}, momentum, message);
          }) < 1'300'000);
    CHECK(count("demo_merge", [&] {
              cuda::demo_merge(nullptr, chunks, pieces, 2, update);
          }) < 800'000);
}
#else
TEST_CASE("ptx_of_nvcc_equals_the_cpu", "[cuda][ptx]") {
    WARN("nvcc was not found: NO PTX WAS CHECKED; the kernels ran under the emulator only");
}
#endif
