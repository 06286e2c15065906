#include "ggml-alloc.h"
#include "ggml-cpp.h"
#include "ggml-cpu.h"
#include "tests/catch.h"
#include "tests/fake/fake-device.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace gt;

namespace {

// y = W2 * silu(W1 * x) on a backend; returns y.
struct Net {
    ggml_context_ptr        state, graph_ctx;
    ggml_backend_buffer_ptr buffer;
    ggml_gallocr_ptr        alloc;
    ggml_tensor *           x     = nullptr;
    ggml_tensor *           w1    = nullptr;
    ggml_tensor *           w2    = nullptr;
    ggml_tensor *           y     = nullptr;
    ggml_cgraph *           graph = nullptr;

    explicit Net(ggml_backend_t backend) {
        const ggml_init_params params = {
            64 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true};
        state.reset(ggml_init(params));
        graph_ctx.reset(ggml_init(params));
        x  = ggml_new_tensor_2d(state.get(), GGML_TYPE_F32, 48, 7);   // [48, 7]
        w1 = ggml_new_tensor_2d(state.get(), GGML_TYPE_F32, 48, 33);  // [48, 33]
        w2 = ggml_new_tensor_2d(state.get(), GGML_TYPE_F32, 33, 5);   // [33, 5]
        y  = ggml_mul_mat(
             graph_ctx.get(), w2, ggml_silu(graph_ctx.get(), ggml_mul_mat(graph_ctx.get(), w1, x))
         );
        ggml_set_output(y);
        graph = ggml_new_graph(graph_ctx.get());
        ggml_build_forward_expand(graph, y);
        buffer.reset(ggml_backend_alloc_ctx_tensors(state.get(), backend));
        alloc.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend)));
        if (!buffer || !ggml_gallocr_alloc_graph(alloc.get(), graph)) {
            return;
        }
        fill(x, 1.0f);
        fill(w1, 0.3f);
        fill(w2, 0.5f);
    }

    static void fill(ggml_tensor * t, float scale) {
        std::vector<float> v(ggml_nelements(t));
        for (size_t i = 0; i < v.size(); ++i) {
            v[i] = scale * std::sin(1.7f * static_cast<float>(i) + scale);
        }
        ggml_backend_tensor_set(t, v.data(), 0, ggml_nbytes(t));
    }

    std::vector<float> run(ggml_backend_t backend) {
        REQUIRE(ggml_backend_graph_compute(backend, graph) == GGML_STATUS_SUCCESS);
        std::vector<float> v(ggml_nelements(y));
        ggml_backend_tensor_get(y, v.data(), 0, ggml_nbytes(y));
        return v;
    }
};

// The signal that ended fn in a child process; 0 if it returned.
template <class F>
int signal_of(const F & fn) {
    const pid_t pid = fork();
    if (pid == 0) {
        for (const int s : {SIGSEGV, SIGBUS, SIGABRT}) {
            std::signal(s, SIG_DFL);  // not Catch's
        }
        fn();
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

}  // namespace

TEST_CASE("fake_device_computes_what_the_cpu_does", "[fake-device]") {
    ggml_backend_ptr cpu(ggml_backend_cpu_init());
    ggml_backend_ptr fake(make_fake_device(3, 2, 0));
    CHECK(std::string(ggml_backend_name(fake.get())) == "FAKE3");
    CHECK(is_fake_device(fake.get()));
    CHECK_FALSE(is_fake_device(cpu.get()));
    Net a(cpu.get()), b(fake.get());
    CHECK_FALSE(ggml_backend_buffer_is_host(b.buffer.get()));
    CHECK(a.run(cpu.get()) == b.run(fake.get()));
}

TEST_CASE("a_graph_has_no_result_before_the_backend_is_synchronized", "[fake-device]") {
    ggml_backend_ptr         fake(make_fake_device(0, 1, 0));
    Net                      net(fake.get());
    const std::vector<float> first = net.run(fake.get());
    const auto               y     = [&] {
        std::vector<float> v(ggml_nelements(net.y));
        ggml_backend_tensor_get(net.y, v.data(), 0, ggml_nbytes(net.y));
        return v;
    };
    Net::fill(net.x, 2.0f);
    REQUIRE(ggml_backend_graph_compute_async(fake.get(), net.graph) == GGML_STATUS_SUCCESS);
    CHECK(y() == first);  // a missing wait
    ggml_backend_synchronize(fake.get());
    CHECK(y() != first);
}

TEST_CASE("fake_device_counts_every_byte_that_crosses", "[fake-device]") {
    ggml_backend_ptr fake(make_fake_device(0, 1, 0));
    Net              net(fake.get());
    const size_t     inputs = ggml_nbytes(net.x) + ggml_nbytes(net.w1) + ggml_nbytes(net.w2);
    CHECK(fake_device_stats(fake.get()).to_device == inputs);
    CHECK(fake_device_stats(fake.get()).to_host == 0);
    (void) net.run(fake.get());
    CHECK(fake_device_stats(fake.get()).to_device == inputs);
    CHECK(fake_device_stats(fake.get()).to_host == ggml_nbytes(net.y));
    CHECK(fake_device_stats(fake.get()).n_computes == 1);
}

TEST_CASE("host_code_that_touches_device_memory_crashes", "[fake-device]") {
    ggml_backend_ptr fake(make_fake_device(0, 1, 0));
    Net              net(fake.get());
    auto *           data = static_cast<volatile float *>(net.x->data);
    CHECK(signal_of([&] { (void) data[0]; }) == SIGSEGV);
    CHECK(signal_of([&] { data[5] = 1.0f; }) == SIGSEGV);
    lend_fake_device(fake.get(), true);
    CHECK(signal_of([&] { (void) data[0]; }) == 0);
    // the mapping's end is a guard page
    const auto * end =
        static_cast<const volatile char *>(ggml_backend_buffer_get_base(net.buffer.get())) +
        (ggml_backend_buffer_get_size(net.buffer.get()) + 127) / 128 * 128;
    CHECK(signal_of([&] { (void) *end; }) == SIGSEGV);
    lend_fake_device(fake.get(), false);
    (void) net.run(fake.get());
    CHECK(signal_of([&] { (void) data[0]; }) == SIGSEGV);
}

TEST_CASE("fresh_device_memory_is_nan", "[fake-device]") {
    ggml_backend_ptr        fake(make_fake_device(0, 1, 0));
    ggml_context_ptr        ctx(ggml_init({ggml_tensor_overhead(), nullptr, true}));
    ggml_tensor *           t = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, 9);
    ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors(ctx.get(), fake.get()));
    float                   v[9] = {};
    ggml_backend_tensor_get(t, v, 0, sizeof v);
    CHECK(std::all_of(v, v + 9, [](float f) { return std::isnan(f); }));
}

TEST_CASE("allocation_beyond_the_limit_returns_null", "[fake-device]") {
    ggml_backend_ptr fake(make_fake_device(0, 1, 4096));
    auto *           buft = ggml_backend_get_default_buffer_type(fake.get());
    {
        ggml_backend_buffer_ptr a(ggml_backend_buft_alloc_buffer(buft, 3000));
        CHECK(a);
        CHECK(ggml_backend_buft_alloc_buffer(buft, 2000) == nullptr);
        CHECK(ggml_backend_buft_alloc_buffer(buft, SIZE_MAX / 2) == nullptr);
        size_t free = 0, total = 0;
        ggml_backend_dev_memory(ggml_backend_get_device(fake.get()), &free, &total);
        CHECK(total == 4096);
        CHECK(free == 4096 - 3072);
    }
    ggml_backend_buffer_ptr b(ggml_backend_buft_alloc_buffer(buft, 4096));
    CHECK(b);  // freed memory can be allocated again
    CHECK(fake_device_stats(fake.get()).peak_bytes == 4096);

    ggml_backend_ptr small(make_fake_device(1, 1, 1024));
    const Net        net(small.get());
    CHECK(!net.buffer);
    CHECK(fake_device_stats(small.get()).bytes == 0);
}

TEST_CASE("device_refuses_custom_ops_and_foreign_tensors", "[fake-device]") {
    ggml_backend_ptr fake(make_fake_device(0, 1, 0)), other(make_fake_device(1, 1, 0));
    Net              net(fake.get());
    CHECK(ggml_backend_graph_compute(other.get(), net.graph) == GGML_STATUS_FAILED);

    ggml_context_ptr ctx(
        ggml_init({16 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true})
    );
    ggml_tensor * args[1] = {net.x};
    ggml_tensor * custom  = ggml_custom_4d(
         ctx.get(), GGML_TYPE_F32, 4, 1, 1, 1, args, 1, [](ggml_tensor *, int, int, void *) {}, 1,
         nullptr
     );
    CHECK_FALSE(ggml_backend_supports_op(fake.get(), custom));
    CHECK(ggml_backend_supports_op(fake.get(), net.y));
    ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors(ctx.get(), fake.get()));
    ggml_cgraph *           graph = ggml_new_graph(ctx.get());
    ggml_build_forward_expand(graph, custom);
    CHECK(ggml_backend_graph_compute(fake.get(), graph) == GGML_STATUS_FAILED);
}

TEST_CASE("tensors_travel_between_devices_through_the_host", "[fake-device]") {
    ggml_backend_ptr a(make_fake_device(0, 1, 0)), b(make_fake_device(1, 1, 0));
    Net              na(a.get()), nb(b.get());
    Net::fill(na.x, 2.0f);
    const size_t before = fake_device_stats(a.get()).to_host;
    ggml_backend_tensor_copy(na.x, nb.x);
    CHECK(fake_device_stats(a.get()).to_host - before == ggml_nbytes(na.x));
    CHECK(na.run(a.get()) == nb.run(b.get()));
}

TEST_CASE("devices_work_on_their_own_threads_and_buffers_outlive_them", "[fake-device]") {
    std::vector<std::vector<float>> y(4);
    std::vector<std::thread>        threads;
    for (size_t r = 0; r < y.size(); ++r) {
        threads.emplace_back([&y, r] {
            ggml_backend_ptr fake(make_fake_device(static_cast<int>(r), 1, 1 << 20));
            Net              net(fake.get());
            for (int i = 0; i < 20; ++i) {
                ggml_backend_graph_compute(fake.get(), net.graph);
            }
            y[r].resize(ggml_nelements(net.y));
            fake.reset();
            ggml_backend_tensor_get(net.y, y[r].data(), 0, ggml_nbytes(net.y));
        });
    }
    for (std::thread & t : threads) {
        t.join();
    }
    CHECK(y[0] == y[1]);
    CHECK(y[0] == y[2]);
    CHECK(y[0] == y[3]);
}
