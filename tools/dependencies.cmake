# What the project stands on, found or fetched. Nothing of it is ever committed.

# --- Debian packages -----------------------------------------------------------------------------
find_package(Threads REQUIRED)
find_package(OpenSSL)
find_package(CURL)
find_package(ZLIB)
find_package(dnnl CONFIG QUIET)
find_package(Catch2 QUIET)
find_path(GT_STB_DIR stb_image.h PATH_SUFFIXES stb)
find_path(GT_SODIUM_DIR sodium.h)
find_library(GT_SODIUM_LIB sodium)

set(GT_MISSING "")
foreach(pair "OPENSSL_FOUND:libssl-dev" "CURL_FOUND:libcurl4-openssl-dev" "ZLIB_FOUND:zlib1g-dev"
             "dnnl_FOUND:libdnnl-dev" "GT_STB_DIR:libstb-dev" "GT_SODIUM_LIB:libsodium-dev")
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 0 found)
    list(GET pair 1 package)
    if(NOT ${found})
        list(APPEND GT_MISSING ${package})
    endif()
endforeach()
if(GT_TESTS AND NOT Catch2_FOUND)
    list(APPEND GT_MISSING catch2)
endif()
if(GT_MISSING)
    list(JOIN GT_MISSING " " GT_MISSING)
    message(FATAL_ERROR "missing libraries; install them with\n    sudo apt-get install ${GT_MISSING}")
endif()
add_library(sodium INTERFACE)
target_include_directories(sodium INTERFACE ${GT_SODIUM_DIR})
target_link_libraries(sodium INTERFACE ${GT_SODIUM_LIB})

# --- ggml and libllama: from the PyPI sdist of llama-cpp-python, by name, version and digest -------
set(GT_LLAMA_VERSION 0.3.36)
set(GT_LLAMA_SHA256  832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e)
if(NOT GT_LLAMA_CPP_DIR)
    set(sdist_dir ${CMAKE_BINARY_DIR}/llama-cpp-python)
    set(sdist     ${sdist_dir}/llama_cpp_python-${GT_LLAMA_VERSION}.tar.gz)
    if(NOT EXISTS ${sdist})
        message(STATUS "fetching llama-cpp-python ${GT_LLAMA_VERSION} (ggml and libllama) from PyPI")
        find_package(Python3 REQUIRED COMPONENTS Interpreter)
        execute_process(
            COMMAND ${Python3_EXECUTABLE} -m pip download --quiet --no-deps --dest ${sdist_dir}
                    --no-binary llama-cpp-python llama-cpp-python==${GT_LLAMA_VERSION}
            RESULT_VARIABLE failed)
        if(failed)
            message(FATAL_ERROR "pip could not fetch llama-cpp-python ${GT_LLAMA_VERSION}; check the "
                "network, or name a llama.cpp source tree with -DGT_LLAMA_CPP_DIR=PATH")
        endif()
    endif()
    file(SHA256 ${sdist} digest)
    if(NOT digest STREQUAL GT_LLAMA_SHA256)
        message(FATAL_ERROR "${sdist}: sha256 ${digest}, expected ${GT_LLAMA_SHA256}; delete it and try again")
    endif()
    set(unpacked ${sdist_dir}/llama_cpp_python-${GT_LLAMA_VERSION}/vendor/llama.cpp)
    if(NOT EXISTS ${unpacked}/CMakeLists.txt)
        file(ARCHIVE_EXTRACT INPUT ${sdist} DESTINATION ${sdist_dir})
    endif()
    set(GT_LLAMA_CPP_DIR ${unpacked})
endif()

set(BUILD_SHARED_LIBS  OFF CACHE BOOL "" FORCE)
set(GGML_LLAMAFILE     ON  CACHE BOOL "" FORCE)  # without it F32 mul_mat is four times slower
set(GGML_OPENMP        OFF CACHE BOOL "" FORCE)  # OpenMP would ignore our thread pools
set(GGML_NATIVE        ${GT_NATIVE} CACHE BOOL "" FORCE)
set(GGML_CCACHE        OFF CACHE BOOL "" FORCE)
set(GGML_CUDA          ${GT_CUDA} CACHE BOOL "" FORCE)
set(GGML_CUDA_NO_VMM   ON  CACHE BOOL "" FORCE)  # else binaries need libcuda.so to start at all
set(GGML_CUDA_NCCL     OFF CACHE BOOL "" FORCE)  # its reduction rounds gradients to BF16
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "" FORCE)
add_subdirectory(${GT_LLAMA_CPP_DIR} ${CMAKE_BINARY_DIR}/llama.cpp EXCLUDE_FROM_ALL)
set(GT_GGML_IMPL_DIR ${GT_LLAMA_CPP_DIR}/ggml/src)

# cpp-httplib as llama.cpp carries it; only ever reachable behind mutual TLS.
add_library(httplib STATIC EXCLUDE_FROM_ALL ${GT_LLAMA_CPP_DIR}/vendor/cpp-httplib/httplib.cpp)
target_include_directories(httplib SYSTEM PUBLIC ${GT_LLAMA_CPP_DIR}/vendor/cpp-httplib)
target_compile_definitions(httplib PUBLIC CPPHTTPLIB_OPENSSL_SUPPORT CPPHTTPLIB_TCP_NODELAY=1)
# an idle connection looks up four times a second, not a hundred times
target_compile_definitions(httplib PRIVATE CPPHTTPLIB_KEEPALIVE_TIMEOUT_CHECK_INTERVAL_USECOND=250000)
target_compile_options(httplib PRIVATE -w)
if(GT_SANITIZE)
    target_compile_options(httplib PRIVATE -O0)  # optimized and sanitized, GCC takes a quarter of an hour
endif()
target_link_libraries(httplib PUBLIC OpenSSL::SSL OpenSSL::Crypto Threads::Threads)
