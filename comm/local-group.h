// comm/local-group.h — the two implementations of LocalGroup, for run_ranks alone (local.h).
#pragma once

#include "comm/rendezvous.h"

namespace gt {

std::unique_ptr<LocalGroup> make_local_threads(Rendezvous & meeting, int rank);

// What the ranks of an NCCL group share: the loaded library and the group's id.
struct NcclClique;
std::shared_ptr<NcclClique>
make_nccl_clique(const std::vector<int> & devices, const std::string & library);
std::unique_ptr<LocalGroup>
make_local_nccl(std::shared_ptr<NcclClique> clique, Rendezvous & meeting, int rank);

// Aborts, as our bug, unless offsets is ascending, has an entry per rank and one more, starts at 0
// and fits the sizes of the whole and of this rank's slice.
void check_slices(
    const LocalGroup & group, std::span<const int64_t> offsets, size_t full_size, size_t shard_size
);

// One number in which all ranks must agree.
uint64_t digest_offsets(std::span<const int64_t> offsets);

}  // namespace gt
