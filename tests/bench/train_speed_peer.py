"""PyTorch's side of train-speed: one process, one model, a few steps; prints one line of JSON."""

import json
import resource
import sys
import time

import torch

from peer_models import Gpt, Vit, adamw

MODELS = {
    "gpt2-124m": lambda: Gpt(12, 768, 12, 50257, 1024),
    "gpt-10m": lambda: Gpt(6, 384, 6, 256, 256),
    "vit-192": lambda: Vit(12, 192, 3, 32, 4, 3, 10),
}


def main():
    name, B, T, steps, threads = sys.argv[1], *map(int, sys.argv[2:6])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    model = MODELS[name]()
    optimizer = adamw(model, 1e-4)
    if name.startswith("vit"):
        batch = torch.rand(B, 3, 32, 32), torch.ones(B, dtype=torch.long)
    else:
        vocab = model.tokens.num_embeddings
        batch = torch.randint(vocab, (B, T)), torch.randint(vocab, (B, T))
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        loss = model(*batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"loss": loss.item(), "peak_mb": peak, "seconds": seconds}))


main()
