// In the order of ggml's interfaces: buffers, buffer type, device, backend.
#include "tests/fake/fake-device.h"

#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "ggml-impl.h"
#include "ggml-train/base/base.h"
#include "tests/fake/lazy-queue.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <utility>

namespace gt {

namespace {

struct Device;

// The context of one ggml buffer: a separate mapping that ends at a guard page.
struct Memory {
    std::shared_ptr<Device> device;
    char *                  map       = nullptr;
    size_t                  map_bytes = 0;        // with the guard page at each end
    char *                  base      = nullptr;  // returned to ggml
    size_t                  bytes     = 0;        // counted against the limit
};

// One device, owned by its backend and its buffers together: the last one frees it.
struct Device {
    std::string              name;
    size_t                   limit = 0;
    std::vector<ggml_op>     refused{GGML_OP_SOFT_MAX_BACK};  // the CPU's is wrong in place
    ggml_backend_device      dev{};
    ggml_backend_buffer_type buft{};
    ggml_backend_t           cpu  = nullptr;
    ggml_threadpool_t        pool = nullptr;
    std::weak_ptr<Device>    self;
    std::mutex               mutex;  // guards the members below
    std::set<Memory *>       memories;
    int                      n_open = 0;
    FakeDeviceStats          stats;

    ~Device() {
        ggml_backend_free(cpu);
        if (pool != nullptr) {
            ggml_threadpool_free(pool);
        }
    }

    void set_threads(int n) {
        ggml_threadpool_t before = pool;
        pool                     = nullptr;
        if (n > 1) {
            ggml_threadpool_params params = ggml_threadpool_params_default(n);
            pool                          = ggml_threadpool_new(&params);
        }
        ggml_backend_cpu_set_n_threads(cpu, n);
        ggml_backend_cpu_set_threadpool(cpu, pool);
        if (before != nullptr) {
            ggml_threadpool_free(before);
        }
    }

    static void protect(const Memory & m, int access) {
        GT_CHECK(
            mprotect(m.map + kPage, m.map_bytes - 2 * kPage, access) == 0, "mprotect must work"
        );
    }

    void open() {
        const std::lock_guard lock(mutex);
        if (n_open++ == 0) {
            for (const Memory * m : memories) {
                protect(*m, PROT_READ | PROT_WRITE);
            }
        }
    }

    void close() {
        const std::lock_guard lock(mutex);
        if (--n_open == 0) {
            for (const Memory * m : memories) {
                protect(*m, PROT_NONE);
            }
        }
    }

    static constexpr size_t kPage = 4096;
};

struct Open {
    explicit Open(std::shared_ptr<Device> d) : device(std::move(d)) { device->open(); }
    ~Open() { device->close(); }
    Open(const Open &)                              = delete;
    Open &                  operator=(const Open &) = delete;
    std::shared_ptr<Device> device;
};

// ---- buffers ------------------------------------------------------------------------------------

Memory & memory(ggml_backend_buffer_t buffer) {
    return *static_cast<Memory *>(buffer->context);
}

void buffer_free(ggml_backend_buffer_t buffer) {
    const std::unique_ptr<Memory> m(static_cast<Memory *>(buffer->context));
    {
        const std::lock_guard lock(m->device->mutex);
        m->device->memories.erase(m.get());
        m->device->stats.bytes -= m->bytes;
    }
    munmap(m->map, m->map_bytes);
}

void * buffer_base(ggml_backend_buffer_t buffer) {
    return memory(buffer).base;
}

void buffer_memset(
    ggml_backend_buffer_t buffer, ggml_tensor * tensor, uint8_t value, size_t offset, size_t size
) {
    const Open open(memory(buffer).device);
    std::memset(static_cast<char *>(tensor->data) + offset, value, size);
}

void buffer_set(
    ggml_backend_buffer_t buffer,
    ggml_tensor *         tensor,
    const void *          data,
    size_t                offset,
    size_t                size
) {
    const Open open(memory(buffer).device);
    open.device->stats.to_device += size;
    std::memcpy(static_cast<char *>(tensor->data) + offset, data, size);
}

void buffer_get(
    ggml_backend_buffer_t buffer,
    const ggml_tensor *   tensor,
    void *                data,
    size_t                offset,
    size_t                size
) {
    const Open open(memory(buffer).device);
    open.device->stats.to_host += size;
    std::memcpy(data, static_cast<const char *>(tensor->data) + offset, size);
}

// Copies within the device; for other buffers ggml copies through host memory by get and set.
bool buffer_copy(ggml_backend_buffer_t buffer, const ggml_tensor * src, ggml_tensor * dst) {
    const ggml_backend_buffer_t from = src->view_src ? src->view_src->buffer : src->buffer;
    if (from->buft != buffer->buft) {
        return false;
    }
    const Open open(memory(buffer).device);
    std::memcpy(dst->data, src->data, ggml_nbytes(src));
    return true;
}

void buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
    const Open open(memory(buffer).device);
    std::memset(memory(buffer).base, value, buffer->size);
}

// ---- buffer type --------------------------------------------------------------------------------

constexpr size_t kAlignment = 128;  // as ggml's CUDA backend

Device & device(ggml_backend_buffer_type_t buft) {
    return *static_cast<Device *>(buft->context);
}

const char * type_name(ggml_backend_buffer_type_t buft) {
    return device(buft).name.c_str();
}

size_t type_alignment(ggml_backend_buffer_type_t) {
    return kAlignment;
}

ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    Device & d = device(buft);
    auto     m = std::make_unique<Memory>();
    m->bytes   = (size + kAlignment - 1) / kAlignment * kAlignment;
    m->device  = d.self.lock();

    const std::lock_guard lock(d.mutex);
    if (d.limit != 0 && (m->bytes > d.limit || d.stats.bytes > d.limit - m->bytes)) {
        return nullptr;
    }
    const size_t body = (m->bytes + Device::kPage - 1) / Device::kPage * Device::kPage;
    m->map_bytes      = body + 2 * Device::kPage;
    void * map        = mmap(nullptr, m->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
        return nullptr;
    }
    m->map  = static_cast<char *>(map);
    m->base = m->map + Device::kPage + (body - m->bytes);  // an overrun hits the guard page
    Device::protect(*m, PROT_READ | PROT_WRITE);
    std::memset(m->base, 0xff, m->bytes);  // NaN, so that reads before writes are noticed
    if (d.n_open == 0) {
        Device::protect(*m, PROT_NONE);
    }
    d.memories.insert(m.get());
    d.stats.bytes += m->bytes;
    d.stats.peak_bytes = std::max(d.stats.peak_bytes, d.stats.bytes);

    ggml_backend_buffer_i i{};
    i.free_buffer   = buffer_free;
    i.get_base      = buffer_base;
    i.memset_tensor = buffer_memset;
    i.set_tensor    = buffer_set;
    i.get_tensor    = buffer_get;
    i.cpy_tensor    = buffer_copy;
    i.clear         = buffer_clear;
    return ggml_backend_buffer_init(buft, i, m.release(), size);
}

// ---- device -------------------------------------------------------------------------------------

Device & device(ggml_backend_dev_t dev) {
    return *static_cast<Device *>(dev->context);
}

const char * dev_name(ggml_backend_dev_t dev) {
    return device(dev).name.c_str();
}

const char * dev_description(ggml_backend_dev_t) {
    return "a device emulated in this process";
}

void dev_memory(ggml_backend_dev_t dev, size_t * free, size_t * total) {
    Device &              d = device(dev);
    const std::lock_guard lock(d.mutex);
    *total = d.limit;
    *free  = d.limit - std::min(d.limit, d.stats.bytes);
}

enum ggml_backend_dev_type dev_type(ggml_backend_dev_t) {
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

void dev_props(ggml_backend_dev_t dev, ggml_backend_dev_props * props) {
    *props             = {};
    props->name        = dev_name(dev);
    props->description = dev_description(dev);
    props->type        = GGML_BACKEND_DEVICE_TYPE_GPU;
    dev_memory(dev, &props->memory_free, &props->memory_total);
}

ggml_backend_buffer_type_t dev_buffer_type(ggml_backend_dev_t dev) {
    return &device(dev).buft;
}

bool is_custom(const ggml_tensor * op) {
    return op->op == GGML_OP_CUSTOM || op->op == GGML_OP_MAP_CUSTOM1 ||
           op->op == GGML_OP_MAP_CUSTOM2 || op->op == GGML_OP_MAP_CUSTOM3;
}

bool dev_supports_op(ggml_backend_dev_t dev, const ggml_tensor * op) {
    const Device & d   = device(dev);
    const bool refused = std::find(d.refused.begin(), d.refused.end(), op->op) != d.refused.end();
    return !refused && !is_custom(op) && ggml_backend_supports_op(d.cpu, op);
}

bool dev_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    return buft == &device(dev).buft;
}

// ---- backend ------------------------------------------------------------------------------------

struct Stream {
    std::shared_ptr<Device> device;
    LazyQueue               queue;
};

Stream & stream(ggml_backend_t backend) {
    return *static_cast<Stream *>(backend->context);
}

const char * backend_name(ggml_backend_t backend) {
    return stream(backend).device->name.c_str();
}

void backend_free(ggml_backend_t backend) {
    delete static_cast<Stream *>(backend->context);
    delete backend;
}

// True if a kernel of this device could read or write the tensor.
bool is_here(const Device & d, const ggml_tensor * tensor) {
    const ggml_backend_buffer_t b = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
    return b != nullptr && b->buft == &d.buft;
}

ggml_status backend_compute(ggml_backend_t backend, ggml_cgraph * graph) {
    const Open open(stream(backend).device);
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
        const ggml_tensor * node = ggml_graph_node(graph, i);
        const char *        why  = nullptr;
        if (is_custom(node)) {
            why = "is a custom op, which only the CPU runs";
        } else if (!is_here(*open.device, node)) {
            why = "is not in this device's memory";
        }
        for (int s = 0; s < GGML_MAX_SRC && why == nullptr; ++s) {
            if (node->src[s] != nullptr && !is_here(*open.device, node->src[s])) {
                why = "has a source that is not in this device's memory";
            }
        }
        if (why != nullptr) {
            GGML_LOG_ERROR(
                "%s: node %d '%s' (%s) %s\n", open.device->name.c_str(), i, node->name,
                ggml_op_desc(node), why
            );
            return GGML_STATUS_FAILED;
        }
    }
    stream(backend).queue.push([device = open.device, graph = *graph]() mutable {
        const Open here(device);
        ++device->stats.n_computes;
        const ggml_status status = ggml_backend_graph_compute(device->cpu, &graph);
        GT_CHECK(status == GGML_STATUS_SUCCESS, "ggml's CPU backend computes every graph");
    });
    return GGML_STATUS_SUCCESS;
}

// Runs as late as a GPU may.
void backend_synchronize(ggml_backend_t backend) {
    ++stream(backend).device->stats.n_waits;
    const Open open(stream(backend).device);  // our kernels run here, too, if ggml's wait for them
    stream(backend).queue.run();
}

LazyEvent & lazy(ggml_backend_event_t event) {
    return *static_cast<LazyEvent *>(event->context);
}

void backend_record(ggml_backend_t backend, ggml_backend_event_t event) {
    lazy(event) = stream(backend).queue.point();
}

void backend_wait(ggml_backend_t backend, ggml_backend_event_t event) {
    stream(backend).queue.push(lazy(event));
}

ggml_backend_event_t event_new(ggml_backend_dev_t dev) {
    return new ggml_backend_event{dev, new LazyEvent};
}

void event_free(ggml_backend_dev_t, ggml_backend_event_t event) {
    delete static_cast<LazyEvent *>(event->context);
    delete event;
}

ggml_guid kGuid = {0x67, 0x74, 0x2d, 0x66, 0x61, 0x6b, 0x65, 0x2d,
                   0x64, 0x65, 0x76, 0x69, 0x63, 0x65, 0x00, 0x01};

ggml_backend_t make_backend(std::shared_ptr<Device> d) {
    ggml_backend_i i{};
    i.get_name      = backend_name;
    i.free          = backend_free;
    i.graph_compute = backend_compute;
    i.synchronize   = backend_synchronize;
    i.event_record  = backend_record;
    i.event_wait    = backend_wait;
    return new ggml_backend{&kGuid, i, &d->dev, new Stream{d, {}}};
}

// A second backend of the same device shares its memory.
ggml_backend_t dev_init_backend(ggml_backend_dev_t dev, const char *) {
    return make_backend(device(dev).self.lock());
}

}  // namespace

ggml_backend_t make_fake_device(int id, int n_threads, size_t limit) {
    auto d   = std::make_shared<Device>();
    d->self  = d;
    d->name  = format("FAKE%d", id);
    d->limit = limit;

    d->buft.iface.get_name      = type_name;
    d->buft.iface.alloc_buffer  = type_alloc;
    d->buft.iface.get_alignment = type_alignment;
    d->buft.device              = &d->dev;
    d->buft.context             = d.get();

    d->dev.context               = d.get();
    d->dev.iface.get_name        = dev_name;
    d->dev.iface.get_description = dev_description;
    d->dev.iface.get_memory      = dev_memory;
    d->dev.iface.get_type        = dev_type;
    d->dev.iface.get_props       = dev_props;
    d->dev.iface.init_backend    = dev_init_backend;
    d->dev.iface.get_buffer_type = dev_buffer_type;
    d->dev.iface.supports_op     = dev_supports_op;
    d->dev.iface.supports_buft   = dev_supports_buft;
    d->dev.iface.event_new       = event_new;
    d->dev.iface.event_free      = event_free;

    d->cpu = ggml_backend_cpu_init();
    GT_CHECK(d->cpu != nullptr, "ggml's CPU backend must start");
    d->set_threads(n_threads);
    return make_backend(std::move(d));
}

void refuse_on_fake_device(ggml_backend_t backend, const std::vector<ggml_op> & ops) {
    GT_CHECK(is_fake_device(backend), "only a fake device refuses ops");
    std::vector<ggml_op> & refused = stream(backend).device->refused;
    refused.insert(refused.end(), ops.begin(), ops.end());
}

void set_fake_device_threads(ggml_backend_t backend, int n_threads) {
    GT_CHECK(is_fake_device(backend), "only a fake device has threads of its own");
    stream(backend).device->set_threads(n_threads);
}

bool is_fake_device(ggml_backend_t backend) {
    return backend != nullptr && ggml_guid_matches(backend->guid, &kGuid);
}

FakeDeviceStats fake_device_stats(ggml_backend_t backend) {
    GT_CHECK(is_fake_device(backend), "only a fake device counts");
    Device &              d = *stream(backend).device;
    const std::lock_guard lock(d.mutex);
    return d.stats;
}

void lend_fake_device(ggml_backend_t backend, bool begin) {
    GT_CHECK(is_fake_device(backend), "only a fake device guards its memory");
    Device & d = *stream(backend).device;
    if (begin) {
        ++d.stats.n_waits;
    }
    begin ? d.open() : d.close();
}

}  // namespace gt
