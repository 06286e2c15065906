#include "ggml-train/device/backend.h"
#include "tests/catch.h"

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
