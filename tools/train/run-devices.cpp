#include "tools/train/run-devices.h"

#include "ggml-train/base/text.h"
#include "ggml-train/device/backend.h"

namespace gt {

void run_devices(
    const std::string & devices, int n_ranks, const std::function<void(LocalGroup & ranks)> & fn
) {
    const std::vector<DeviceSpec> specs = parse_devices(devices);
    std::vector<int>              indices;
    for (const DeviceSpec & spec : specs) {
        indices.push_back(spec.index);
        check_device(spec);
    }
    if (specs.size() == 1) {
        run_ranks(n_ranks, fn);
        return;
    }
    if (n_ranks != 1 && n_ranks != static_cast<int>(specs.size())) {
        throw Error(format(
            "--ranks %d with %zu devices: each device is a rank; drop --ranks", n_ranks,
            specs.size()
        ));
    }
    run_ranks_nccl(indices, fn);
}

static std::string compute_types(ggml_backend_dev_t dev) {
    const ggml_context_ptr ctx = make_context(12);
    std::string            types;
    for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_F16}) {
        ggml_tensor * w = ggml_new_tensor_2d(ctx.get(), type, 64, 64);
        ggml_tensor * x = ggml_new_tensor_2d(ctx.get(), GGML_TYPE_F32, 64, 64);
        if (ggml_backend_dev_supports_op(dev, ggml_mul_mat(ctx.get(), w, x))) {
            types += std::string(types.empty() ? "" : "|") + ggml_type_name(type);
        }
    }
    return types;
}

static std::string describe(ggml_backend_dev_t dev, const DeviceSpec & spec) {
    size_t free = 0, total = 0;
    ggml_backend_dev_memory(dev, &free, &total);
    const bool ours = is_host(dev) || find_kernels(dev);
    return format(
        "  %s  %s, %s free of %s, %s, --compute %s\n", spec.name().c_str(),
        ggml_backend_dev_description(dev), bytes_text(free).c_str(), bytes_text(total).c_str(),
        ours ? "our kernels" : "ggml's ops", is_host(dev) ? "f32" : compute_types(dev).c_str()
    );
}

std::string device_list() {
    std::string text = "devices (--device):\n";
    for (const char * name : {"cpu", "cuda", "vulkan"}) {
        ggml_backend_reg_t reg = nullptr;
        try {
            reg = find_backend(name);
        } catch (const Error & error) {
            text += "  " + std::string(error.what()) + "\n";
            continue;
        }
        const auto n = reg ? static_cast<int>(ggml_backend_reg_dev_count(reg)) : 0;
        for (int i = 0; i < n; ++i) {
            text += describe(
                ggml_backend_reg_dev_get(reg, static_cast<size_t>(i)),
                {.backend = name, .index = i, .params = {}}
            );
        }
        if (n == 0) {
            text += format(
                "  %s  %s\n", name,
                reg ? "no device: no driver found" : "not in this build (tools/README.md)"
            );
        }
    }
    return text;
}

}  // namespace gt
