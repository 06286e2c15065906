"""Peer of bench-optim: the DeMo replicator of `detonation` in two gloo processes, and PyTorch's fused AdamW.

Prints one line of JSON: seconds of the fastest step of each. Run by tests/bench/optim-speed.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def gpt2_parameters():
    def param(*shape):
        return torch.nn.Parameter(torch.full(shape, 0.02))

    parameters = [param(50257, 768), param(1024, 768)]
    for _ in range(12):
        parameters += [param(768), param(768), param(2304, 768), param(2304), param(768, 768), param(768)]
        parameters += [param(768), param(768), param(3072, 768), param(3072), param(768, 3072), param(768)]
    return parameters + [param(768), param(768)]


def new_gradients(parameters, seed):
    generator = torch.Generator().manual_seed(seed)
    for p in parameters:
        p.grad = torch.randn(p.shape, generator=generator) * 1e-3


def fused_adamw(threads, repeats):
    torch.set_num_threads(threads)
    parameters = gpt2_parameters()
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    new_gradients(parameters, 0)
    best = 1e9
    for i in range(repeats + 1):
        begin = time.perf_counter()
        optimizer.step()
        if i > 0:
            best = min(best, time.perf_counter() - begin)
    return best


def demo_worker(rank, world, threads, repeats, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(world), RANK=str(rank))
    torch.set_num_threads(max(1, threads // world))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    from detonation.optim import DeToSGD
    from detonation.repl import DeMoReplicator

    alone = [dist.new_group([r]) for r in range(world)][rank]
    parameters = gpt2_parameters()
    optimizer = DeToSGD(
        parameters,
        lr=1e-4,
        replicator=DeMoReplicator(compression_topk=32, compression_chunk=64),
        sharding_parallel_group=alone,
        replication_parallel_group=dist.group.WORLD,
    )
    best = 1e9
    for i in range(repeats + 1):
        new_gradients(parameters, i * world + rank)
        dist.barrier()
        begin = time.perf_counter()
        optimizer.step()
        if i > 0:
            best = min(best, time.perf_counter() - begin)
    if rank == 0:
        results["demo_s"] = best
        results["bytes"] = int(optimizer.replicators[0].data_transmitted[-1])
    dist.destroy_process_group()


def main():
    threads, repeats = int(sys.argv[1]), int(sys.argv[2])
    adamw = fused_adamw(threads, 2 * repeats)
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(demo_worker, (2, threads, repeats, 29517, results), nprocs=2)
        print(
            json.dumps(
                {
                    "torch": torch.__version__,
                    "torch_adamw_s": round(adamw, 4),
                    "detonation_demo_s": round(results["demo_s"], 4),
                    "detonation_bytes": results["bytes"],
                }
            )
        )


if __name__ == "__main__":
    main()
