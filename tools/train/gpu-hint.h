// tools/train/gpu-hint.h — tells a user of the CPU about a GPU that this program can't use.
#pragma once

#include <string>

namespace gt {

// One line if `device` (see choose_device) is the CPU and the machine has a GPU; otherwise "".
// root: the folder with dev/ and proc/, for tests.
std::string gpu_hint(const std::string & device, const std::string & root = "");

}  // namespace gt
