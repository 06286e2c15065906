// comm/local/nccl-table.cpp — see nccl-table.h.
#include "comm/local/nccl-table.h"

#include <cstdlib>
#include <dlfcn.h>

namespace gt {

namespace {

// Opens the library that the environment names, else the first of `names` that can be opened. `why` is
// the reason of the last failure.
void * open_first(const char * env, std::vector<const char *> names, std::string & why) {
    if (const char * named = *env ? std::getenv(env) : nullptr;
        named != nullptr && *named != '\0') {
        names = {named};
    }
    for (const char * name : names) {
        if (void * lib = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
            return lib;
        }
        why = dlerror();
    }
    return nullptr;
}

template <class F>
void find(void * lib, const char * name, const char * library, F & pointer) {
    pointer = reinterpret_cast<F>(dlsym(lib, name));
    if (pointer == nullptr) {
        throw Error(format("%s has no %s: it is too old, or another library", library, name));
    }
}

}  // namespace

void NcclTable::check(NcclResult result, const char * what) const {
    if (result != kNcclSuccess && result != kNcclInProgress) {
        throw Error(format("NCCL: %s: %s", what, ncclGetErrorString(result)));
    }
}

void NcclTable::check(CudaResult result, const char * what) const {
    if (result != kCudaSuccess) {
        throw Error(format("CUDA: %s: %s", what, cudaGetErrorString(result)));
    }
}

NcclTable load_nccl(const std::string & library) {
    std::string why;
    void *      nccl = library.empty() ? open_first("GT_NCCL_LIB", {"libnccl.so.2"}, why)
                                       : open_first("", {library.c_str()}, why);
    if (nccl == nullptr) {
        throw Error(format(
            "several GPUs need NCCL, which cannot be loaded (%s); install libnccl2 or name the "
            "file "
            "in GT_NCCL_LIB, or use one GPU",
            why.c_str()
        ));
    }
    void * cudart =
        dlsym(nccl, "cudaSetDevice") != nullptr
            ? nccl
            : open_first(
                  "GT_CUDART_LIB", {"libcudart.so.13", "libcudart.so.12", "libcudart.so"}, why
              );
    if (cudart == nullptr) {
        throw Error(format(
            "the CUDA runtime cannot be loaded (%s); install it or name the file in GT_CUDART_LIB",
            why.c_str()
        ));
    }
    NcclTable table;
#define GT_FIND(result, name, arguments) find(nccl, #name, "the NCCL library", table.name);
    GT_NCCL_CALLS(GT_FIND)
#undef GT_FIND
#define GT_FIND(result, name, arguments) find(cudart, #name, "the CUDA runtime", table.name);
    GT_CUDART_CALLS(GT_FIND)
#undef GT_FIND
    return table;
}

}  // namespace gt
