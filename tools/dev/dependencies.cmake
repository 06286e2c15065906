# Dependencies: Debian packages, and llama.cpp from PyPI. None of them is committed.

# --- Debian packages -----------------------------------------------------------------------------
find_package(Threads REQUIRED)
find_package(OpenSSL)
find_package(CURL)
find_package(ZLIB)
find_package(Catch2 QUIET)
find_path(GT_STB_DIR stb_image.h PATH_SUFFIXES stb)
find_path(GT_SODIUM_DIR sodium.h)
find_library(GT_SODIUM_LIB sodium)
find_path(GT_DNNL_DIR dnnl.h)  # Debian 12's dnnl-config.cmake would ask for OpenCL's headers
find_library(GT_DNNL_LIB dnnl)
# optional: a hub asks the router to forward its port
find_library(GT_NATPMP_LIB natpmp)
find_library(GT_MINIUPNPC_LIB miniupnpc)
# optional: export writes ONNX
find_library(GT_ONNX_LIB onnx_proto)
find_package(Protobuf QUIET)

set(GT_MISSING "")
foreach(pair "OPENSSL_FOUND:libssl-dev" "CURL_FOUND:libcurl4-openssl-dev" "ZLIB_FOUND:zlib1g-dev"
             "GT_DNNL_LIB:libdnnl-dev" "GT_STB_DIR:libstb-dev" "GT_SODIUM_LIB:libsodium-dev")
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
add_library(dnnl INTERFACE)
target_include_directories(dnnl INTERFACE ${GT_DNNL_DIR})
target_link_libraries(dnnl INTERFACE ${GT_DNNL_LIB})

# --- third-party code of another build: builds with sanitizers need no second copy of it ------------
if(GT_THIRD_PARTY)
    load_cache(${GT_THIRD_PARTY} READ_WITH_PREFIX "" llama.cpp_SOURCE_DIR)
    set(GT_LLAMA_CPP_DIR ${llama.cpp_SOURCE_DIR})
    set(GT_GGML_IMPL_DIR ${GT_LLAMA_CPP_DIR}/ggml/src)
    include(${GT_THIRD_PARTY}/third-party.cmake)
    return()
endif()

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
            message(FATAL_ERROR "pip could not download llama-cpp-python ${GT_LLAMA_VERSION}. Install pip "
                "(sudo apt-get install python3-pip), check the network, or pass an existing llama.cpp "
                "source tree with -DGT_LLAMA_CPP_DIR=PATH")
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
set(GT_GGML_IMPL_DIR ${GT_LLAMA_CPP_DIR}/ggml/src)

set(BUILD_SHARED_LIBS  OFF CACHE BOOL "" FORCE)
set(GGML_LLAMAFILE     ON  CACHE BOOL "" FORCE)  # without it F32 mul_mat is four times slower
set(GGML_OPENMP        OFF CACHE BOOL "" FORCE)  # OpenMP would ignore our thread pools
set(GGML_NATIVE        ${GT_NATIVE} CACHE BOOL "" FORCE)
set(GGML_CCACHE        OFF CACHE BOOL "" FORCE)
set(GGML_CUDA          ${GT_CUDA} CACHE BOOL "" FORCE)
set(GGML_CUDA_GRAPHS   OFF CACHE BOOL "" FORCE)  # captured graphs keep memory that ggml's pool frees when it runs out
set(GGML_CUDA_NO_VMM   ON  CACHE BOOL "" FORCE)  # else binaries need libcuda.so to start at all
set(GGML_CUDA_NCCL     OFF CACHE BOOL "" FORCE)  # its reduction rounds gradients to BF16
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "" FORCE)
set(LLAMA_ALL_WARNINGS OFF CACHE BOOL "" FORCE)
set(own_c_flags "${CMAKE_C_FLAGS}")
set(own_cxx_flags "${CMAKE_CXX_FLAGS}")
string(APPEND CMAKE_C_FLAGS " -w")  # no warnings from third-party code
string(APPEND CMAKE_CXX_FLAGS " -w")
add_subdirectory(${GT_LLAMA_CPP_DIR} ${CMAKE_BINARY_DIR}/llama.cpp EXCLUDE_FROM_ALL)
set(CMAKE_C_FLAGS "${own_c_flags}")
set(CMAKE_CXX_FLAGS "${own_cxx_flags}")
# libllama builds graphs and loads files; ggml, which computes, keeps -O3. Saves a third of its build.
target_compile_options(llama PRIVATE -O1)
# ggml's AMX kernels end with SIGILL on virtual machines that show AMX and do not grant it; only
# quantized models would use them.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    target_compile_options(ggml-cpu PRIVATE -mno-amx-tile -mno-amx-int8 -mno-amx-bf16)
endif()

# cpp-httplib from llama.cpp's vendor folder; it is only reachable behind mutual TLS.
add_library(httplib STATIC EXCLUDE_FROM_ALL ${GT_LLAMA_CPP_DIR}/vendor/cpp-httplib/httplib.cpp)
target_include_directories(httplib SYSTEM PUBLIC ${GT_LLAMA_CPP_DIR}/vendor/cpp-httplib)
target_compile_definitions(httplib PUBLIC CPPHTTPLIB_OPENSSL_SUPPORT CPPHTTPLIB_TCP_NODELAY=1)
# poll idle connections 4 times a second instead of 100
target_compile_definitions(httplib PRIVATE CPPHTTPLIB_KEEPALIVE_TIMEOUT_CHECK_INTERVAL_USECOND=250000)
target_compile_options(httplib PRIVATE -w -O1)
target_link_libraries(httplib PUBLIC OpenSSL::SSL OpenSSL::Crypto Threads::Threads)

# llama.cpp's engine of chat templates, without the rest of its common library
file(GLOB jinja_sources ${GT_LLAMA_CPP_DIR}/common/jinja/*.cpp)
add_library(jinja STATIC EXCLUDE_FROM_ALL
    ${jinja_sources} ${GT_LLAMA_CPP_DIR}/common/json.cpp ${GT_LLAMA_CPP_DIR}/common/unicode.cpp)
target_include_directories(jinja SYSTEM PUBLIC ${GT_LLAMA_CPP_DIR}/common PRIVATE ${GT_LLAMA_CPP_DIR}/vendor)
target_compile_options(jinja PRIVATE -w -O1)
target_link_libraries(jinja PRIVATE ggml)

set(third_party ggml ggml-base ggml-cpu llama httplib jinja)
if(GT_CUDA)
    list(APPEND third_party ggml-cuda)
endif()
export(TARGETS ${third_party} FILE ${CMAKE_BINARY_DIR}/third-party.cmake)
