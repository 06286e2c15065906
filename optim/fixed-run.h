// optim/fixed-run.h — a digest of a small fixed run: hosts with the same one compute the same bits.
#pragma once

#include <cstdint>

namespace gt {

// Of messages and weights of two hosts, over a few steps with several replicators and rules. Machines
// may train together if it is the same on all, whatever the version of their programs is.
uint64_t fixed_run_digest();

}  // namespace gt
