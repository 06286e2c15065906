#include "ggml-train/device/registry.h"

#include "ggml-train/cuda/table.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <optional>
#include <sstream>

namespace gt {

// Kernels that are linked into this program, and the backend whose devices run them.
static const struct {
    const char * backend;
    const cuda::Kernels & (*kernels)();
} kLinkedKernels[] = {
#ifdef GT_CUDA
    {"CUDA", cuda::kernels},
#endif
    {nullptr, nullptr},
};

std::string DeviceSpec::name() const {
    return format("%s:%d", backend.c_str(), index);
}

// NAME[:INDEX[:PARAMS]]; nothing if the text has another form.
static std::optional<DeviceSpec> parse_device(const std::string & text) {
    DeviceSpec   spec;
    const size_t colon = std::min(text.find(':'), text.size());
    spec.backend       = text.substr(0, colon);
    if (spec.backend.empty() ||
        spec.backend.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") !=
            std::string::npos) {
        return std::nullopt;
    }
    if (colon == text.size()) {
        return spec;
    }
    const char * const end       = text.data() + text.size();
    const auto [rest, malformed] = std::from_chars(text.data() + colon + 1, end, spec.index);
    if (malformed != std::errc() || spec.index < 0 || (rest != end && *rest != ':') ||
        rest + 1 == end) {
        return std::nullopt;
    }
    spec.params = rest == end ? "" : std::string(rest + 1, end);
    return spec;
}

std::vector<DeviceSpec> parse_devices(const std::string & text) {
    std::vector<DeviceSpec> devices;
    std::stringstream       list(choose_device(text) + (text.ends_with(',') ? "," : ""));
    for (std::string item; std::getline(list, item, ',');) {
        const std::optional<DeviceSpec> spec = parse_device(item);
        if (!spec) {
            throw Error(
                "--device " + text + ": invalid device '" + item +
                "'; write auto, cpu, or a list such as cuda:0,cuda:1"
            );
        }
        for (const DeviceSpec & other : devices) {
            if (other.backend != spec->backend || other.index == spec->index) {
                throw Error(
                    "--device " + text + ": " + other.name() + " and " + spec->name() +
                    " do not go together; name different devices of one backend"
                );
            }
        }
        devices.push_back(*spec);
    }
    if (devices.empty()) {
        throw Error("--device is empty; write cpu, or a list such as cuda:0,cuda:1");
    }
    return devices;
}

ggml_backend_reg_t find_backend(const std::string & name) {
    static std::mutex     mutex;  // ranks ask at the same time
    const std::lock_guard lock(mutex);
    if (ggml_backend_reg_t reg = ggml_backend_reg_by_name(name.c_str())) {
        return reg;
    }
    const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const auto module = folder / ("libggml-" + name + ".so");
    if (!std::filesystem::exists(module)) {
        return nullptr;
    }
    ggml_log_set([](ggml_log_level, const char *, void *) {}, nullptr);  // the Error says it
    ggml_backend_reg_t reg = ggml_backend_load(module.c_str());
    ggml_log_set(
        [](ggml_log_level level, const char * text, void *) {
            if (level == GGML_LOG_LEVEL_ERROR) {
                std::fputs(text, stderr);
            }
        },
        nullptr
    );
    if (!reg) {
        throw Error(
            "--device " + name + ": no driver found: " + module.string() + " does not start; " +
            "install the driver of the device, and the libraries that ldd does not find"
        );
    }
    return reg;
}

std::string choose_device(const std::string & text) {
    if (text != "auto") {
        return text;
    }
    for (const char * backend : {"cuda", "vulkan"}) {
        ggml_backend_reg_t reg = nullptr;
        try {
            reg = find_backend(backend);
        } catch (const Error &) {
            continue;  // no driver on this machine
        }
        for (size_t i = 0; reg && i < ggml_backend_reg_dev_count(reg); ++i) {
            const ggml_backend_dev_t device = ggml_backend_reg_dev_get(reg, i);
            if (ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_GPU) {
                return format("%s:%zu", backend, i);
            }
        }
    }
    return "cpu";
}

// "cpu, cuda"
static std::string backend_names() {
    std::string names;
    for (size_t i = 0; i < ggml_backend_reg_count(); ++i) {
        std::string name = ggml_backend_reg_name(ggml_backend_reg_get(i));
        std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
            return static_cast<char>(std::tolower(c));
        });
        names += (names.empty() ? "" : ", ") + name;
    }
    return names;
}

static const cuda::Kernels * find_kernels(ggml_backend_reg_t reg) {
    using Get = const cuda::Kernels * (*) ();
    if (void * get = ggml_backend_reg_get_proc_address(reg, "gt_kernels")) {
        return reinterpret_cast<Get>(get)();
    }
    for (const auto & linked : kLinkedKernels) {
        if (linked.backend && std::string(linked.backend) == ggml_backend_reg_name(reg)) {
            return &linked.kernels();
        }
    }
    return nullptr;
}

ggml_backend_dev_t find_device(const DeviceSpec & spec) {
    const ggml_backend_reg_t reg = find_backend(spec.backend);
    if (!reg) {
        throw Error(
            "--device " + spec.backend + ": this program has no such backend, only " +
            backend_names() + "; GPUs need a build with -DGT_CUDA=ON or -DGT_VULKAN=ON"
        );
    }
    const size_t n = ggml_backend_reg_dev_count(reg);
    if (static_cast<size_t>(spec.index) < n) {
        return ggml_backend_reg_dev_get(reg, static_cast<size_t>(spec.index));
    }
    const char * why = n == 0 ? "no driver found" : "";
    if (const cuda::Kernels * kernels = find_kernels(reg)) {
        kernels->n_devices(&why);
    }
    throw Error(format(
        "--device %s: there is no %s, this machine has %zu%s%s; use --device cpu",
        spec.backend.c_str(), spec.name().c_str(), n, *why ? ": " : "", why
    ));
}

const cuda::Kernels * find_kernels(ggml_backend_dev_t device) {
    return find_kernels(ggml_backend_dev_backend_reg(device));
}

bool multiplies_bf16(const DeviceSpec & device) {
    const cuda::Kernels * kernels = find_kernels(find_device(device));
    if (kernels) {
        kernels->set_device(device.index);
    }
    return kernels && kernels->has_tensor_cores();
}

bool is_host(ggml_backend_dev_t device) {
    return ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU;
}

std::shared_ptr<void> lend_memory(ggml_backend_t backend) {
    using Lend                   = void (*)(ggml_backend_t, bool begin);
    const ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend));
    const auto lend = reinterpret_cast<Lend>(ggml_backend_reg_get_proc_address(reg, "gt_lend"));
    if (!lend) {
        return nullptr;
    }
    lend(backend, true);
    return {backend, [lend](ggml_backend_t lent) { lend(lent, false); }};
}

}  // namespace gt
