// tests/cuda/cuda-emu-kernels.cpp — all our CUDA sources as one C++ file, for the emulator: the library
// gt-cuda-emu, which implements ggml-train/cuda/kernels.h on the CPU.
#include "ggml-train/cuda/activation.cu"
#include "ggml-train/cuda/attention-mma.cu"
#include "ggml-train/cuda/attention.cu"
#include "ggml-train/cuda/bf16.cu"
#include "ggml-train/cuda/demo.cu"
#include "ggml-train/cuda/device.cu"
#include "ggml-train/cuda/embedding.cu"
#include "ggml-train/cuda/loss.cu"
#include "ggml-train/cuda/muon.cu"
#include "ggml-train/cuda/norm.cu"
#include "ggml-train/cuda/rows.cu"
