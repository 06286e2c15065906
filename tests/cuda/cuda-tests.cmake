# the fake device as a module beside the programs, for --device fake; it exports ggml_backend_init only
add_library(ggml-fake MODULE fake/fake-backend.cpp fake/fake-device.cpp ${CMAKE_SOURCE_DIR}/ggml-train/base/base.cpp)
target_include_directories(ggml-fake SYSTEM PRIVATE ${GT_GGML_IMPL_DIR} ${GT_LLAMA_CPP_DIR}/ggml/include)
target_compile_definitions(ggml-fake PRIVATE GT_VERSION="${PROJECT_VERSION}")
target_link_libraries(ggml-fake PRIVATE Threads::Threads)
set_target_properties(ggml-fake PROPERTIES CXX_VISIBILITY_PRESET hidden)
set_target_properties(ggml-fake gt-fake-nccl PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
foreach(tests engine-tests golden-tests logits-tests optim-graph-tests ranks-tests)
    add_dependencies(${tests} ggml-fake)
endforeach()

# Our CUDA kernels without a GPU. One source, run three ways: the emulator (plain, asan, tsan), nvcc's
# PTX in the interpreter, and on a GPU by tools/selftest. Sanitizer builds of the whole tree skip this:
# the emulator has builds of its own, in which the kernels are instrumented and the emulator is not.
if(GT_SANITIZE)
    return()
endif()

# gt_cuda_emu(name [sanitizer flags for the kernels ...]): the library gt-cuda as C++ on the CPU
function(gt_cuda_emu name)
    add_library(${name}-kernels OBJECT cuda/cuda-emu-kernels.cpp)
    target_include_directories(${name}-kernels PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/cuda)
    target_compile_options(${name}-kernels PRIVATE -O2 -g1 -ffp-contract=off ${ARGN})
    add_library(${name} STATIC cuda/cuda-emu.cpp cuda/cuda-emu-runtime.cpp cuda/emu-cublaslt.cpp cuda/matrix-unit.cpp
        ${CMAKE_SOURCE_DIR}/ggml-train/cuda/gemm.cpp ${CMAKE_SOURCE_DIR}/ggml-train/cuda/table.cpp $<TARGET_OBJECTS:${name}-kernels>)
    target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/cuda)
    target_link_libraries(${name} PUBLIC gt-base)
    target_link_options(${name} PUBLIC ${ARGN})
endfunction()
gt_cuda_emu(gt-cuda-emu)
gt_cuda_emu(gt-cuda-emu-asan -fsanitize=address,undefined -fno-sanitize-recover=all)
gt_cuda_emu(gt-cuda-emu-tsan -fsanitize=thread)
target_compile_definitions(gt-cuda-emu-asan PRIVATE GT_EMU_ASAN)
target_compile_definitions(gt-cuda-emu-tsan PRIVATE GT_EMU_TSAN)

# the same in the module of the fake device
target_sources(ggml-fake PRIVATE cuda/cuda-emu.cpp cuda/cuda-emu-runtime.cpp cuda/emu-cublaslt.cpp cuda/matrix-unit.cpp
    cuda/cuda-emu-kernels.cpp ${CMAKE_SOURCE_DIR}/ggml-train/cuda/gemm.cpp ${CMAKE_SOURCE_DIR}/ggml-train/cuda/table.cpp)
target_include_directories(ggml-fake PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/cuda)
target_compile_options(ggml-fake PRIVATE -O2 -g1 -ffp-contract=off -ftls-model=initial-exec)
target_compile_definitions(ggml-fake PRIVATE GT_EMULATED)
target_compile_definitions(golden-tests PRIVATE GT_EMULATED)
gt_tests(device-tests LABEL unit SOURCES optim/test-device-optim.cpp LIBS ggml-train optim)
add_dependencies(device-tests ggml-fake)

gt_tests(cuda-tests LABEL unit SOURCES cuda/test-cuda-kernels.cpp cuda/ptx-math.cpp cuda/ptx-ops.cpp cuda/ptx-run.cpp
         LIBS tools-selftest gt-cuda-emu ${CMAKE_DL_LIBS})
set_target_properties(cuda-tests PROPERTIES ENABLE_EXPORTS ON)  # kernels are found by name

# cuBLASLt as the GPU's kernels load it, and NVIDIA's own header and library if they are installed
gt_tests(cublaslt-tests LABEL unit SOURCES cuda/test-cublaslt.cpp ${CMAKE_SOURCE_DIR}/ggml-train/cuda/cublaslt.cpp
         LIBS gt-base ${CMAKE_DL_LIBS})
find_path(GT_CUBLASLT_INCLUDE cublasLt.h PATHS /usr/local/cuda/include)
if(GT_CUBLASLT_INCLUDE)
    target_include_directories(cublaslt-tests SYSTEM PRIVATE ${GT_CUBLASLT_INCLUDE})
endif()
find_library(GT_CUBLASLT_LIBRARY cublasLt PATHS /usr/local/cuda/lib64)
if(GT_CUBLASLT_LIBRARY)
    target_compile_definitions(cublaslt-tests PRIVATE GT_CUBLASLT_LIBRARY="${GT_CUBLASLT_LIBRARY}")
endif()

# the same tables, small, under a sanitizer
foreach(kind asan tsan)
    add_executable(cuda-${kind} cuda/cuda-sanitize.cpp)
    target_link_libraries(cuda-${kind} PRIVATE tools-selftest gt-cuda-emu-${kind})
    if(kind STREQUAL "tsan")
        set(once once)
    endif()
    add_test(NAME cuda-${kind} COMMAND cuda-${kind} ${once})
    set_tests_properties(cuda-${kind} PROPERTIES LABELS slow TIMEOUT 300)
endforeach()

# planted bugs
foreach(kind "" -asan -tsan)
    add_library(cuda-bugs-main${kind} OBJECT cuda/cuda-bugs.cpp)
    target_include_directories(cuda-bugs-main${kind} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/cuda)
    add_executable(cuda-bugs${kind} $<TARGET_OBJECTS:cuda-bugs-main${kind}> cuda/ptx-math.cpp cuda/ptx-ops.cpp cuda/ptx-run.cpp)
    target_link_libraries(cuda-bugs${kind} PRIVATE gt-cuda-emu${kind} ${CMAKE_DL_LIBS})
    set_target_properties(cuda-bugs${kind} PROPERTIES ENABLE_EXPORTS ON)
endforeach()
target_compile_options(cuda-bugs-main-asan PRIVATE -g1 -fsanitize=address)
target_compile_options(cuda-bugs-main-tsan PRIVATE -g1 -fsanitize=thread)
gt_tests(cuda-bugs-tests LABEL unit SOURCES cuda/test-cuda-bugs.cpp LIBS gt-base)
add_dependencies(cuda-bugs-tests cuda-bugs cuda-bugs-asan cuda-bugs-tsan)
target_compile_definitions(cuda-bugs-tests PRIVATE GT_BUGS="$<TARGET_FILE:cuda-bugs>"
    GT_BUGS_ASAN="$<TARGET_FILE:cuda-bugs-asan>" GT_BUGS_TSAN="$<TARGET_FILE:cuda-bugs-tsan>")

# selftest with our kernels, also where ggml-train has none (GT_CUDA off)
if(GT_HAS_CUDA_KERNELS)
    add_executable(selftest-cuda cuda/selftest-cuda.cpp ${CMAKE_SOURCE_DIR}/tools/selftest.cpp
        ${CMAKE_SOURCE_DIR}/tools/selftest/selftest-nccl.cpp ${CMAKE_SOURCE_DIR}/tools/selftest/selftest-step.cpp)
    target_link_libraries(selftest-cuda PRIVATE models tools-cli tools-selftest gt-cuda comm-local)
    add_test(NAME selftest-cuda COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/selftest.sh $<TARGET_FILE:selftest-cuda>)
    set_tests_properties(selftest-cuda PROPERTIES LABELS unit TIMEOUT 300)
endif()
add_test(NAME selftest COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/selftest.sh ${CMAKE_BINARY_DIR}/bin/selftest)
set_tests_properties(selftest PROPERTIES LABELS unit TIMEOUT 300)

# other toolkits than this machine's
add_test(NAME nvcc-versions COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/nvcc-versions.sh ${CMAKE_BINARY_DIR}/e2e/nvcc-versions)
set_tests_properties(nvcc-versions PROPERTIES LABELS unit TIMEOUT 120 SKIP_RETURN_CODE 77)

if(GT_HAS_CUDA_KERNELS)
    list(JOIN GT_PTX_FILES ":" ptx_files)
    target_compile_definitions(cuda-tests PRIVATE GT_PTX_FILES="${ptx_files}")
    add_dependencies(cuda-tests gt-ptx)

    set(bugs_ptx ${CMAKE_CURRENT_BINARY_DIR}/cuda-bugs.ptx)
    add_custom_command(OUTPUT ${bugs_ptx}
        COMMAND ${GT_NVCC} -std=c++20 -O3 -I${CMAKE_SOURCE_DIR} -arch=compute_80 -ptx
                ${CMAKE_CURRENT_SOURCE_DIR}/cuda/cuda-bugs.cu -o ${bugs_ptx}
        DEPENDS cuda/cuda-bugs.cu cuda/cuda-bugs.cuh VERBATIM)
    add_custom_target(cuda-bugs-ptx DEPENDS ${bugs_ptx})
    add_dependencies(cuda-bugs-tests cuda-bugs-ptx)
    target_compile_definitions(cuda-bugs-tests PRIVATE GT_BUGS_PTX="${bugs_ptx}")

    # what hosts must agree on is rounded operation by operation; and the check can tell
    set(check ${CMAKE_CURRENT_SOURCE_DIR}/cuda/ptx-check.sh)
    function(gt_ptx_check test name)
        set(file ${GT_PTX_FILES})
        list(FILTER file INCLUDE REGEX "/${name}\\.ptx$")
        add_test(NAME ptx-check-${test} COMMAND ${check} ${ARGN} ${file})
        set_tests_properties(ptx-check-${test} PROPERTIES LABELS unit)
    endfunction()
    gt_ptx_check(demo demo)
    gt_ptx_check(rows rows)
    gt_ptx_check(muon muon --fma product_kernel)
    gt_ptx_check(muon-unasked muon)
    gt_ptx_check(norm norm)
    set_tests_properties(ptx-check-muon-unasked ptx-check-norm PROPERTIES WILL_FAIL ON)

    find_program(GT_CUOBJDUMP cuobjdump PATHS /usr/local/cuda/bin)
    add_test(NAME sass-check COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/sass-check.sh
        ${CMAKE_BINARY_DIR}/cuda-usage/attention-mma.txt ${CMAKE_BINARY_DIR}/ggml-train/cuda/attention-mma.o
        $<$<BOOL:${GT_CUOBJDUMP}>:${GT_CUOBJDUMP}>)
    set_tests_properties(sass-check PROPERTIES LABELS unit)
endif()
