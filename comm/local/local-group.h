// comm/local/local-group.h — the two implementations of LocalGroup. Internal to run-ranks.cpp.
#pragma once

#include "comm/local/rendezvous.h"

namespace gt {

std::unique_ptr<LocalGroup> make_local_threads(Rendezvous & meeting, int rank);

// Shared by the ranks of an NCCL group: the loaded library and the group's id.
struct NcclClique;
std::shared_ptr<NcclClique>
make_nccl_clique(const std::vector<int> & devices, const std::string & library);
std::unique_ptr<LocalGroup>
make_local_nccl(std::shared_ptr<NcclClique> clique, Rendezvous & meeting, int rank);

// Aborts unless `offsets` has an entry per rank and one more, starts at 0, ascends, and fits the sizes
// of the whole and of this rank's shard.
void check_offsets(
    const LocalGroup & group, std::span<const int64_t> offsets, size_t full_size, size_t shard_size
);

// A digest that must be equal on all ranks.
uint64_t digest_offsets(std::span<const int64_t> offsets);

}  // namespace gt
