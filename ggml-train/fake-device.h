// ggml-train/fake-device.h — a ggml device inside this process, with memory of its own.
//
// For tests, and for `--device fake:N`: what a GPU would refuse, this refuses too. Its memory is
// inaccessible (PROT_NONE) except during copies and graph compute, so that host code which takes
// a device pointer for its own crashes at that line; fresh memory is filled with NaN; memory is
// limited, and an allocation beyond the limit fails as ggml expects (null). Graphs run on a
// private CPU backend: native ggml ops only, no custom ones, no tensors of other devices.
// Not a simulation of speed or of asynchronous streams.
#pragma once

#include "ggml-backend.h"

#include <cstddef>
#include <memory>

namespace gt {

// A device named FAKE<id> that computes with `n_threads` and holds at most `limit` bytes of
// buffers (0: no limit). Freed by ggml_backend_free; buffers may live longer than it.
// Each rank owns one; calls on one device come from one thread at a time.
[[nodiscard]] ggml_backend_t make_fake_device(int id, int n_threads, size_t limit);

bool is_fake_device(ggml_backend_t backend);

struct FakeDeviceStats {
    size_t to_device  = 0;  // bytes copied from the host
    size_t to_host    = 0;  // bytes copied to the host
    size_t bytes      = 0;  // in buffers now
    size_t peak_bytes = 0;  // most ever in buffers
    size_t n_computes = 0;  // graphs run
};
// REQUIRES: is_fake_device(backend).
FakeDeviceStats fake_device_stats(ggml_backend_t backend);

// While it lives, the calling program may touch the device's memory, as a kernel would.
class FakeDeviceOpen {
public:
    explicit FakeDeviceOpen(ggml_backend_t backend);
    ~FakeDeviceOpen();
    FakeDeviceOpen(const FakeDeviceOpen &)             = delete;
    FakeDeviceOpen & operator=(const FakeDeviceOpen &) = delete;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gt
