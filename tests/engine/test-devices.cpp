#include "ggml-train/cuda/table.h"
#include "ggml-train/device/backend.h"
#include "tests/catch.h"

#include <cmath>

using namespace gt;

TEST_CASE("devices_are_named_as_the_flag_says") {
    const auto names = [](const std::string & text) {
        std::string all;
        for (const DeviceSpec & device : parse_devices(text)) {
            all += device.name() + " ";
        }
        return all;
    };
    CHECK(names("cpu") == "cpu:0 ");
    CHECK(names("fake:0,fake:1") == "fake:0 fake:1 ");
    CHECK(parse_devices("fake:1:64")[0].params == "64");
    CHECK(names("cuda") == "cuda:0 ");
    CHECK(names("cuda:1,cuda:0") == "cuda:1 cuda:0 ");
    for (const char * wrong :
         {"", ",", "fake:x", "fake:0:", "cuda:", "cuda:0,", "cuda:-1", "../cuda", "cuda:0,cuda:0",
          "cpu,cuda:0"}) {
        INFO(wrong);
        CHECK_THROWS_AS(parse_devices(wrong), Error);
    }
}

TEST_CASE("a_missing_backend_or_device_is_an_error_that_names_it") {
    CHECK_THROWS_WITH(
        Backend("gpu", 1), ContainsSubstring("--device gpu: this program has no such backend")
    );
    CHECK_THROWS_WITH(
        Backend("cpu:1", 1), ContainsSubstring("there is no cpu:1, this machine has 1")
    );
}

TEST_CASE("a_backend_module_beside_the_program_brings_its_devices") {
    const Backend cpu("cpu", 1), fake("fake:1:2", 1), other("fake:1", 1);
    CHECK(cpu.is_host());
    CHECK(cpu.device() == nullptr);
    CHECK(std::string(ggml_backend_name(fake.get())) == "FAKE1");
    CHECK_FALSE(fake.is_host());
    size_t free = 0, total = 0;
    ggml_backend_dev_memory(ggml_backend_get_device(fake.get()), &free, &total);
    CHECK(total == 2'000'000);
    CHECK(ggml_backend_get_device(fake.get()) != ggml_backend_get_device(other.get()));
    CHECK_THROWS_WITH(Backend("fake:0:x", 1), ContainsSubstring("fake:0"));
}

TEST_CASE("kernels_come_with_the_backend_that_offers_them", "[device]") {
    CHECK(find_kernels(find_device({"cpu", 0})) == nullptr);
    CHECK(find_kernels(find_device({"fake", 0})) != nullptr);
    CHECK(Backend("fake", 1).device() != nullptr);
}

// Our kernels and ggml's nodes have streams of their own, and both run as late as they may. This is what
// graph/compute.cpp alternates between, with each of its waits left out in turn.
TEST_CASE("a_missing_wait_between_our_kernels_and_ggmls_nodes_changes_the_result", "[device]") {
    constexpr int64_t        n = 64;
    const Backend            fake("fake", 1);
    Device &                 device = *fake.device();
    const ggml_context_ptr   ctx    = make_context(8, 4);
    ggml_tensor *            x      = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, n);
    ggml_tensor *            y      = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, n);
    ggml_tensor *            twice  = ggml_scale(ctx.get(), y, 2.0f);
    ggml_tensor *            z      = ggml_new_tensor_1d(ctx.get(), GGML_TYPE_F32, n);
    const auto               buffer = fake.allocate(ctx.get(), "a test");
    const std::vector<float> ones(n, 1.0f), zeros(n, 0.0f);
    ggml_cgraph *            graph = ggml_new_graph_custom(ctx.get(), 4, false);
    ggml_build_forward_expand(graph, twice);
    const auto at = [](ggml_tensor * t) { return static_cast<float *>(t->data); };

    // z = gelu(2 gelu(x)), our kernel, ggml's node, our kernel
    const auto run = [&](bool wait_for_ours, bool wait_for_ggml) {
        for (ggml_tensor * t : {y, twice, z}) {
            ggml_backend_tensor_set(t, zeros.data(), 0, n * sizeof(float));
        }
        ggml_backend_tensor_set(x, ones.data(), 0, n * sizeof(float));
        device.kernels().gelu(nullptr, n, cuda::Gelu::erf, at(x), at(y));
        if (wait_for_ours) {
            device.wait();
        }
        REQUIRE(ggml_backend_graph_compute_async(fake.get(), graph) == GGML_STATUS_SUCCESS);
        if (wait_for_ggml) {
            ggml_backend_synchronize(fake.get());
        }
        device.kernels().gelu(nullptr, n, cuda::Gelu::erf, at(twice), at(z));
        device.wait();
        ggml_backend_synchronize(fake.get());
        return Floats{{at(z), n}, &device}.read()[0];
    };
    const auto gelu = [](double v) { return 0.5 * v * (1.0 + std::erf(v / std::sqrt(2.0))); };
    CHECK(run(true, true) == Approx(gelu(2.0 * gelu(1.0))).epsilon(1e-5));
    CHECK(run(false, true) == 0.0f);
    CHECK(run(true, false) == 0.0f);
}
