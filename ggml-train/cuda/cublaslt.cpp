#include "ggml-train/cuda/cublaslt.h"

#include "ggml-train/base/base.h"

#include <cstdlib>
#include <dlfcn.h>

namespace gt::cuda {

CublasLt load_cublaslt() {
    std::vector<const char *> names = {"libcublasLt.so.13", "libcublasLt.so.12"};
    if (const char * named = std::getenv("GT_CUBLASLT_LIB"); named && *named) {
        names = {named};
    }
    void *      library = nullptr;
    std::string why;
    for (size_t i = 0; i < names.size() && !library; ++i) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        why     = library ? why : dlerror();
    }
    if (!library) {
        throw Error(
            "cuBLASLt cannot be loaded (" + why +
            "); install libcublas of CUDA 12 or 13 or name the file in GT_CUBLASLT_LIB, or use "
            "--portable"
        );
    }
    CublasLt table;
#define GT_FIND(result, name, arguments)                                                           \
    table.name = reinterpret_cast<decltype(table.name)>(dlsym(library, #name));                    \
    if (!table.name) {                                                                             \
        throw Error("the cuBLASLt library has no " #name ": it is too old, or another library");   \
    }
    GT_CUBLASLT_CALLS(GT_FIND)
#undef GT_FIND
    return table;
}

}  // namespace gt::cuda
