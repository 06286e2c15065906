#include "ggml-train/device/backend.h"
#include "ggml-train/shard/shared-state.h"
#include "tests/catch.h"

using namespace gt;

namespace {

// A piece of a tensor that holds these values, on the device or, if null, in `host`.
HostTensor::Piece
make_piece(std::span<const float> values, Device * device, std::vector<float> & host) {
    float *      data = device ? static_cast<float *>(device->alloc(values.size_bytes(), "a piece"))
                               : (host.resize(values.size()), host.data());
    const Floats floats{{data, values.size()}, device};
    floats.write(values);
    return {.copies = {floats}};
}

}  // namespace

TEST_CASE("the_digest_does_not_depend_on_where_the_state_is_and_how_it_is_cut", "[device]") {
    const Backend      backend("fake", 1);
    Device *           device = backend.device();
    Workers            workers(2);
    std::vector<float> values(900'001);  // four blocks, the last one short
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = random_uniform(random_bits(1, i));
    }
    uint64_t   counter = 7;
    const auto digest  = [&](std::vector<size_t> cuts, std::vector<Device *> devices) {
        HostState                       state;
        std::vector<std::vector<float>> host(2 * devices.size());
        for (size_t t = 0; t < 2; ++t) {
            HostTensor tensor{.name = "w" + std::to_string(t), .pieces = {}, .shared = true};
            for (size_t i = 0; i < devices.size(); ++i) {
                const auto part = std::span(values).subspan(cuts[i], cuts[i + 1] - cuts[i]);
                tensor.pieces.push_back(make_piece(part, devices[i], host[2 * i + t]));
            }
            state.weights.push_back(tensor);
        }
        state.counters.push_back({"steps", {&counter}, true});
        return SharedState(state, workers).digest();
    };
    const size_t   n    = values.size();
    const uint64_t want = digest({0, n}, {nullptr});
    CHECK(digest({0, n}, {device}) == want);
    CHECK(digest({0, 300'000, n}, {nullptr, nullptr}) == want);
    CHECK(digest({0, 300'000, 300'000, 300'101, n}, {device, device, device, device}) == want);
    CHECK(digest({0, 262'144, 700'000, n}, {device, nullptr, device}) == want);
    values[n - 1] += 1.0f;
    CHECK(digest({0, n}, {device}) != want);
}
