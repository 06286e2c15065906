#!/usr/bin/env python3
"""converge-gpt — a byte-level GPT learns real text, ours beside PyTorch.

    tests/bench/converge-gpt.py [--steps 200] [--batch 8] [--context 0] [--preset gpt-10m]
                                [--text FILE] [--threads 2] [--bin build/bin] [--work FOLDER]

Both start from the same weights (our GGUF), see the same samples in the same order, and use the same
AdamW, clipping and learning rates; both are then validated on the same windows. Prints a table and one
line of JSON; fails if the validation losses differ by more than 1 %. The text is Debian's bible-kjv
unless one is given. PyTorch comes from PyPI into a scratch environment ($GT_BENCH_VENV, else
build/bench-venv).
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BETAS, DECAY, CLIP, SEED, HOST = (0.9, 0.95), 0.1, 1.0, 1, b"self"
MASK, GOLDEN = (1 << 64) - 1, 0x9E3779B97F4A7C15


def in_venv():
    """Starts this script again inside the environment that has PyTorch, if we are not in it."""
    try:
        import gguf, torch  # noqa: F401, E401
    except ImportError:
        if os.environ.get("GT_BENCH_INSIDE"):
            raise
        venv = Path(os.environ.get("GT_BENCH_VENV", ROOT / "build" / "bench-venv"))
        python = venv / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        if subprocess.run([python, "-c", "import gguf, torch"], capture_output=True).returncode != 0:
            subprocess.run([python, "-m", "pip", "install", "--quiet", "torch", "numpy", "gguf"], check=True)
        os.environ["GT_BENCH_INSIDE"] = "1"
        os.execv(python, [str(python), *sys.argv])


# --- which samples: as ggml-train/base/base.cpp and data.cpp compute them ---------------------------------


def mix(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def random_bits(seed, a, b, c):
    x = mix(seed + GOLDEN & MASK)
    for i, part in enumerate((a, b, c), 1):
        x = mix(x ^ (part + i) * GOLDEN & MASK)
    return x


def digest64(data):
    h = mix(len(data) * GOLDEN & MASK)
    for (word,) in struct.iter_unpack("<Q", data[: len(data) // 8 * 8]):
        h = (h ^ word) * 0x9FB21C651E98DF25 & MASK
        h ^= h >> 32
    tail = 0
    for byte in data[len(data) // 8 * 8 :]:
        tail = tail << 8 | byte
    return mix(h ^ tail)


class TokenData:
    """A token file of models/text/token-data.h."""

    def __init__(self, path):
        import numpy

        head = path.read_bytes()[:80]
        assert head[:8] == b"GTTOKENS"
        size, self.n_train, self.n_val = struct.unpack_from("<I16xQQ", head, 12)
        self.tokens = numpy.fromfile(path, "<u2" if size == 2 else "<i4", offset=128).astype("int64")

    def cut(self, offsets, T):
        import torch

        rows = torch.stack([torch.from_numpy(self.tokens[o : o + T + 1]) for o in offsets])
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def train(self, step, B, T):
        who = digest64(HOST)
        return self.cut([random_bits(SEED, step, who, i) * (self.n_train - T) >> 64 for i in range(B)], T)

    def val(self, most, T):
        n_all = (self.n_val - 1) // T
        n = min(n_all, most)
        return self.cut([self.n_train + i * n_all // n * T for i in range(n)], T)


# --- the two sides -----------------------------------------------------------------------------------


def peer_model(path):
    """PyTorch's model with the weights of our GGUF."""
    import torch
    from gguf import GGUFReader

    from peer_models import Gpt

    reader = GGUFReader(path)
    field = {key: reader.fields[f"gpt2.{key}"].contents() for key in
             ("block_count", "embedding_length", "attention.head_count", "context_length")}
    weights = {t.name: torch.from_numpy(t.data.copy()) for t in reader.tensors}
    model = Gpt(field["block_count"], field["embedding_length"], field["attention.head_count"],
                weights["token_embd.weight"].shape[0], field["context_length"])
    names = {"tokens.weight": "token_embd.weight", "positions.weight": "position_embd.weight",
             "norm.weight": "output_norm.weight", "norm.bias": "output_norm.bias"}
    parts = {"ln1": "attn_norm", "qkv": "attn_qkv", "out": "attn_output", "ln2": "ffn_norm", "up": "ffn_up",
             "down": "ffn_down"}
    for name, parameter in model.named_parameters():
        if name.startswith("blocks."):
            _, i, part, kind = name.split(".")
            theirs = f"blk.{i}.{parts[part]}.{kind}"
        else:
            theirs = names[name]
        with torch.no_grad():
            parameter.copy_(weights.pop(theirs).view_as(parameter))
    assert not weights, f"weights that the peer does not have: {list(weights)}"
    return model


def train_peer(model, data, rates, args, T):
    import torch

    from peer_models import adamw

    torch.set_num_threads(args.threads)
    optimizer = adamw(model, 1.0, DECAY, BETAS)
    losses, start = [], time.perf_counter()
    for step, rate in enumerate(rates):
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = model(*data.train(step, args.batch, T))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
        if step % 10 == 9:
            print(f"  pytorch {step + 1}/{len(rates)} loss {losses[-1]:.4f}", flush=True)
    seconds = time.perf_counter() - start
    with torch.no_grad():
        ids, labels = data.val(args.eval_batches * args.batch, T)
        parts = [model(ids[i : i + 8], labels[i : i + 8]).item() * len(ids[i : i + 8]) for i in range(0, len(ids), 8)]
    return losses, sum(parts) / len(ids), seconds


def run(*command, quiet=True):
    subprocess.run([str(c) for c in command], check=True, stdout=subprocess.DEVNULL if quiet else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("steps", 200), ("batch", 8), ("context", 0), ("eval-batches", 16), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--preset", default="gpt-10m")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--bin", type=Path, default=ROOT / "build" / "bin")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "bench-converge-gpt")
    args = parser.parse_args()
    in_venv()
    sys.path.insert(0, str(HERE))

    args.work.mkdir(parents=True, exist_ok=True)
    text, model, tokens = args.text or args.work / "bible.txt", args.work / "m.gguf", args.work / "m.tokens"
    if not text.exists():
        text.write_bytes(subprocess.run(["bible", "-f", "gen1:1-rev22:21"], check=True, capture_output=True).stdout)
    run(args.bin / "new-model", "--preset", args.preset, "-o", model, "--force")
    run(args.bin / "prepare-data", "-m", model, text, "-o", tokens, "--force")
    start = time.perf_counter()
    run(args.bin / "train-gpt", "-m", model, "--data", tokens, "--out", args.work / "run", "--fresh", "--seed", SEED,
        "--steps", args.steps, "--batch", args.batch, "--context", args.context, "--lr", args.lr, "--clip", CLIP,
        "--weight-decay", DECAY, "--beta1", BETAS[0], "--beta2", BETAS[1], "--rule", "adamw", "--eval-every", args.steps,
        "--eval-batches", args.eval_batches, "--sample-every", args.steps, "--save-every", args.steps,
        "--threads", args.threads, "--export", args.work / "trained.gguf", quiet=False)
    seconds = time.perf_counter() - start
    rows = [json.loads(row) for row in (args.work / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "loss" in row]
    ours, ours_val = [row["loss"] for row in steps], [row["val_loss"] for row in rows if "val_loss" in row][-1]

    T = steps[0]["tokens"] // args.batch
    theirs, theirs_val, their_seconds = train_peer(
        peer_model(model), TokenData(tokens), [row["lr"] for row in steps], args, T)

    print(f"\n{'step':>6} {'ours':>9} {'pytorch':>9} {'ratio':>8}")
    for step in sorted({0, *range(0, args.steps, max(1, args.steps // 10)), args.steps - 1}):
        print(f"{step + 1:>6} {ours[step]:>9.4f} {theirs[step]:>9.4f} {ours[step] / theirs[step]:>8.4f}")
    ratio = ours_val / theirs_val
    print(f"{'val':>6} {ours_val:>9.4f} {theirs_val:>9.4f} {ratio:>8.4f}")
    print(json.dumps({
        "bench": "converge-gpt", "preset": args.preset, "steps": args.steps, "batch": args.batch, "context": T,
        "val_loss": ours_val, "peer_val_loss": theirs_val, "ratio": ratio, "first_loss_ratio": ours[0] / theirs[0],
        "seconds": round(seconds, 1), "peer_seconds": round(their_seconds, 1)}))
    sys.exit(abs(ratio - 1.0) > 0.01)


if __name__ == "__main__":
    main()
