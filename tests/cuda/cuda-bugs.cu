// The kernel of cuda-bugs.cuh as nvcc sees it, for the PTX interpreter.
#include "tests/cuda/cuda-bugs.cuh"
