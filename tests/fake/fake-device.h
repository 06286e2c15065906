// tests/fake/fake-device.h — a ggml device inside this process, with memory of its own.
//
// It has the restrictions of a GPU. Its memory is inaccessible (PROT_NONE) except during copies and
// graph compute, so that host code which dereferences a device pointer crashes at that line. Fresh
// memory is filled with NaN. Memory is limited, and an allocation beyond the limit returns null, as
// ggml expects. Graphs run on a private CPU backend: native ggml ops only, no custom ones, no tensors
// of other devices. They run when the backend is synchronized, no earlier: what does not wait for its result
// reads what was there before. Our kernels have a stream of their own, which is as late (tests/cuda); events order
// the two. It does not simulate speed.
// Read next: fake-backend.cpp, the same device as a module for `--device fake`.
#pragma once

#include "ggml-backend.h"

#include <cstddef>
#include <vector>

namespace gt {

// A device named FAKE<id> that computes with `n_threads` and holds at most `limit` bytes of
// buffers (0: no limit). Freed by ggml_backend_free; buffers may live longer than it.
// Each rank owns one; calls on one device come from one thread at a time.
[[nodiscard]] ggml_backend_t make_fake_device(int id, int n_threads, size_t limit);

// REQUIRES, as all that follow: is_fake_device(backend).
// From now on it refuses these ops, as a backend does that lacks them.
void refuse_on_fake_device(ggml_backend_t backend, const std::vector<ggml_op> & ops);

void set_fake_device_threads(ggml_backend_t backend, int n_threads);

bool is_fake_device(ggml_backend_t backend);

struct FakeDeviceStats {
    size_t to_device  = 0;  // bytes copied from the host
    size_t to_host    = 0;  // bytes copied to the host
    size_t bytes      = 0;  // in buffers now
    size_t peak_bytes = 0;  // most ever in buffers
    size_t n_computes = 0;  // graphs run
    size_t n_waits =
        0;  // how often the host waited for ggml's stream, or asked for the memory to wait for ours
};
FakeDeviceStats fake_device_stats(ggml_backend_t backend);

// Between begin and end, host code may access the device's memory, as a kernel would. Calls nest.
void lend_fake_device(ggml_backend_t backend, bool begin);

}  // namespace gt
