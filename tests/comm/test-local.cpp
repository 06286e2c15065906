#include "comm/local/nccl-table.h"
#include "tests/comm/local-suite.h"

#include <cstdlib>
#include <numeric>
#include <type_traits>
#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

using namespace gt;

namespace {

// Sets an environment variable until it is destroyed.
class Env {
public:
    Env(const char * name, const char * value) : name_(name) { setenv(name, value, 1); }
    ~Env() { unsetenv(name_); }
    Env(const Env &)             = delete;
    Env & operator=(const Env &) = delete;

private:
    const char * name_;
};

void run_threads(int n, const suite::RankFn & fn, const RanksOptions & options) {
    run_ranks(n, fn, options);
}

// The stand-in's "device" memory is host memory.
void run_nccl(int n, const suite::RankFn & fn, const RanksOptions & options) {
    const Env        lib("GT_NCCL_LIB", GT_FAKE_NCCL);
    std::vector<int> devices(static_cast<size_t>(n));
    std::iota(devices.rbegin(), devices.rend(), 1);  // rank r is not on device r
    run_ranks_nccl(devices, fn, options);
}

std::string message_of(const std::function<void()> & fn) {
    try {
        fn();
    } catch (const Error & e) {
        return e.what();
    }
    return "";
}

}  // namespace

TEST_CASE("threads_sum_and_share_shards_of_any_size", "[local]") {
    suite::check_results(run_threads);
}
TEST_CASE("threads_keep_calls_in_order", "[local]") {
    suite::check_order(run_threads);
}
TEST_CASE("threads_take_calls_from_other_threads", "[local]") {
    suite::check_other_threads(run_threads);
}
TEST_CASE("threads_end_together_when_a_rank_fails", "[local]") {
    suite::check_failures(run_threads);
}

TEST_CASE("nccl_sums_and_shares_shards_of_any_size", "[local][nccl]") {
    suite::check_results(run_nccl);
}
TEST_CASE("nccl_keeps_calls_in_order", "[local][nccl]") {
    suite::check_order(run_nccl);
}
TEST_CASE("nccl_takes_calls_from_other_threads", "[local][nccl]") {
    suite::check_other_threads(run_nccl);
}
TEST_CASE("nccl_ends_together_when_a_rank_fails", "[local][nccl]") {
    suite::check_failures(run_nccl);
}

TEST_CASE("an_error_inside_nccl_ends_all_ranks_with_one_message", "[local][nccl]") {
    const Env            fail("GT_FAKE_NCCL_FAIL", "1:3");
    const suite::Outcome o = suite::outcome(run_nccl, 3, suite::work_forever);
    CHECK(o.message == "rank 1: NCCL: all_gather: unhandled system error");
    CHECK(o.seconds < 8);  // the fake NCCL blocks other ranks for five seconds
}

TEST_CASE("a_missing_nccl_or_device_is_one_message", "[local][nccl]") {
    {
        const Env  lib("GT_NCCL_LIB", "/nonexistent/libnccl.so.2");
        const auto m = message_of([] { run_ranks_nccl({0, 1}, [](LocalGroup &) {}); });
        CHECK(
            m.find("several GPUs need NCCL, which cannot be loaded (/nonexistent/libnccl.so.2") == 0
        );
        CHECK(m.find("GT_NCCL_LIB") != std::string::npos);
        CHECK(m.find('\n') == std::string::npos);
    }
    const Env lib("GT_NCCL_LIB", GT_FAKE_NCCL);
    const Env n("GT_FAKE_NCCL_DEVICES", "2");
    CHECK(message_of([] {
              run_ranks_nccl({0, 2}, [](LocalGroup &) {});
          }) == "cuda:2 does not exist; this machine has 2 GPUs");
    CHECK(message_of([] {
              run_ranks(0, [](LocalGroup &) {});
          }) == "0 ranks: a host needs at least one");
}

#ifdef NCCL_MAJOR
// Same number of arguments, each of the same size.
template <class R, class... A, class S, class... B>
static bool like(R (*)(A...), S (*)(B...)) {
    if constexpr (sizeof...(A) == sizeof...(B)) {
        return ((sizeof(A) == sizeof(B)) && ...) && sizeof(R) == sizeof(S);
    }
    return false;
}

TEST_CASE("our_table_repeats_the_abi_of_nccl", "[local][nccl]") {
    CHECK(sizeof(NcclId) == sizeof(ncclUniqueId));
    CHECK(int{kNcclSuccess} == int{ncclSuccess});
    CHECK(int{kNcclInProgress} == int{ncclInProgress});
    CHECK(int{kNcclUint8} == int{ncclUint8});
    CHECK(int{kNcclFloat32} == int{ncclFloat32});
    CHECK(int{kNcclSum} == int{ncclSum});
    CHECK(int{kCudaSuccess} == int{cudaSuccess});
    CHECK(int{kCudaNotReady} == int{cudaErrorNotReady});
    CHECK(like(NcclTable{}.ncclCommInitRank, decltype(&ncclCommInitRank){}));
    CHECK(like(NcclTable{}.ncclCommAbort, decltype(&ncclCommAbort){}));
    CHECK(like(NcclTable{}.ncclCommGetAsyncError, decltype(&ncclCommGetAsyncError){}));
    CHECK(like(NcclTable{}.ncclReduceScatter, decltype(&ncclReduceScatter){}));
    CHECK(like(NcclTable{}.ncclAllReduce, decltype(&ncclAllReduce){}));
    CHECK(like(NcclTable{}.ncclAllGather, decltype(&ncclAllGather){}));
    CHECK(like(NcclTable{}.ncclReduce, decltype(&ncclReduce){}));
    CHECK(like(NcclTable{}.ncclBroadcast, decltype(&ncclBroadcast){}));
}
#endif
