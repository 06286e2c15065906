#!/usr/bin/env python3
"""lora-memory — an adapter of rank 16 on a llama of 1.1B random weights in Q4_K, 512 tokens, batch 1: peak memory.

    tests/bench/lora-memory.py [BIN_DIR] [--steps 2] [--threads 2] [--limit 2000] [--recompute]

Prints what the run took and one line of JSON; fails above --limit MB resident.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_venv import ROOT, venv_python

SIZES = {"block_count": 22, "embedding_length": 2048, "feed_forward_length": 5632, "attention.head_count": 32, "attention.head_count_kv": 4,
         "context_length": 2048, "rope.dimension_count": 64}


def write_model(source, path):
    """The tokenizer of `source` with the sizes of TinyLlama and random blocks of Q4_K."""
    import gguf
    import numpy as np

    reader, writer = gguf.GGUFReader(source), gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if not name.startswith(("GGUF.", "llama.", "general.architecture")):
            kind, *of = field.types
            writer.add_key_value(name, field.contents(), kind, sub_type=of[-1] if of else None)
    for name, value in SIZES.items():
        writer.add_uint32(f"llama.{name}", value)
    writer.add_layer_norm_rms_eps(1e-5)
    rng = np.random.default_rng(1)
    C, F, KV = SIZES["embedding_length"], SIZES["feed_forward_length"], 256
    V = len(reader.fields["tokenizer.ggml.tokens"].data)

    def matrix(name, rows, cols):
        blocks = rng.integers(0, 256, (rows, cols // 256, 144), dtype=np.uint8)
        blocks[..., 0:4] = np.array([1e-4, 7.5e-4], np.float16).view(np.uint8)  # scales: mean 0, deviation about 0.02
        writer.add_tensor(name, blocks.reshape(rows, -1), raw_dtype=gguf.GGMLQuantizationType.Q4_K)

    def norm(name):
        writer.add_tensor(name, np.ones(C, np.float32))

    matrix("token_embd.weight", V, C)
    for i in range(SIZES["block_count"]):
        for name, rows, cols in [("attn_q", C, C), ("attn_k", KV, C), ("attn_v", KV, C), ("attn_output", C, C), ("ffn_gate", F, C), ("ffn_up", F, C),
                                 ("ffn_down", C, F)]:
            matrix(f"blk.{i}.{name}.weight", rows, cols)
        norm(f"blk.{i}.attn_norm.weight")
        norm(f"blk.{i}.ffn_norm.weight")
    norm("output_norm.weight")
    matrix("output.weight", V, C)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir", nargs="?", type=Path, default=ROOT / "build" / "bin")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--limit", type=float, default=2000.0, help="MB")
    parser.add_argument("--recompute", action="store_true", help="passed to train-gpt")
    args = parser.parse_args()
    python = venv_python("gguf")
    if not os.path.samefile(os.path.dirname(python), os.path.dirname(sys.executable)):
        os.execv(python, [python, *sys.argv])  # the same command in the environment that has gguf
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        small, base, text = work / "small.gguf", work / "base.gguf", work / "text.txt"
        subprocess.run([args.bin_dir / "new-model", *"--arch llama --layers 1 --width 64 --heads 4 --context 64 --vocab llama-spm -o".split(), small], check=True)
        write_model(small, base)
        text.write_text("".join(f"{i} plus {i + 1} is {2 * i + 1}, said the clerk.\n" for i in range(4000)))
        command = [args.bin_dir / "train-gpt", "-m", base, text, "--lora", 16, "--batch", 1, "--context", 512, "--steps", args.steps, "--threads", args.threads,
                   "--val-fraction", 0, "--sample-tokens", 4, "--out", work / "run", "--log-every", 1]
        command += ["--recompute"] if args.recompute else []
        child = subprocess.Popen([str(c) for c in command])
        _, status, usage = os.wait4(child.pid, 0)
        if status:
            sys.exit("train-gpt failed")
        base_mb = base.stat().st_size / 1e6
    peak = usage.ru_maxrss * 1024 / 1e6
    print(f"base {base_mb:.0f} MB, peak of the run {peak:.0f} MB resident; limit {args.limit:.0f}")
    print(json.dumps({"bench": "lora-memory", "recompute": args.recompute, "base_mb": base_mb, "peak_mb": peak, "ratio": peak / args.limit}))
    sys.exit(0 if peak <= args.limit else 1)


main()
