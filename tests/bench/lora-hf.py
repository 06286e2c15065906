#!/usr/bin/env python3
"""lora-hf — models of transformers, as llama.cpp's own converter makes files of them, against our graphs.

    tests/bench/lora-hf.py [BUILD_DIR] [--keep FOLDER]

Small random models in the shapes of Llama 2 and 3.2, Mistral, SmolLM2, Granite Code (biases), Qwen2.5, Qwen3, Gemma 3 and GPT-2 are
saved by transformers and converted by the converter in llama.cpp's source, also with --fuse-qkv; only the vocabulary is one of
llama.cpp's own. logits-tests compares our logits, whole and of a base with an adapter of zeros, and our tokens with libllama's, and
the logits with those of transformers. Prints a line per file and one line of JSON; fails above 1e-3 of the largest logit.
"""

import argparse
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_venv import ROOT, venv_python

ROPE3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 64}
SMALL = {"num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 224, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 256}
# name: class of transformers, what differs from SMALL, vocabulary
MODELS = {
    "llama-2": ("Llama", {"tie_word_embeddings": False}, "llama-spm"),
    "llama-3.2": ("Llama", {"rope_parameters": ROPE3, "tie_word_embeddings": True, "rms_norm_eps": 1e-5}, "llama-bpe"),
    "mistral": ("Mistral", {"sliding_window": 4096, "head_dim": 48}, "llama-spm"),
    "smollm2": ("Llama", {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0}}, "gpt-2"),
    "granite-code": ("Llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}, "starcoder"),
    "linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}}, "llama-spm"),
    "qwen2.5": ("Qwen2", {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, "qwen2"),
    "qwen2.5-yarn": ("Qwen2", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 64}},
                     "qwen2"),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True, "head_dim": 48, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, "qwen2"),
    "gemma-3": ("Gemma3", {"num_hidden_layers": 7, "head_dim": 48, "query_pre_attn_scalar": 48, "sliding_window": 16, "sliding_window_pattern": 6},
                "llama-spm"),
    "gpt2": ("GPT2", {"n_layer": 2, "n_embd": 128, "n_head": 4, "n_positions": 256, "n_ctx": 256}, "gpt-2"),
}


def make_model(name, folder, n_vocab):
    import torch
    import transformers

    kind, changes, _ = MODELS[name]
    sizes = {} if kind == "GPT2" else SMALL
    config = getattr(transformers, "Gemma3TextConfig" if kind == "Gemma3" else f"{kind}Config")(vocab_size=n_vocab, **(sizes | changes))
    config.bos_token_id, config.eos_token_id = 1, 2
    make = getattr(transformers, {"GPT2": "GPT2LMHeadModel"}.get(kind, f"{kind}ForCausalLM"))
    torch.manual_seed(1)
    model = make(config).eval()
    with torch.no_grad():  # norms and biases away from their initial values, weights large enough that all matter
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    # Gemma's converter counts the tokens here
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {str(i): i for i in range(n_vocab)}}, "added_tokens": []}))
    return model


@functools.cache
def vocabulary(source, name):
    """The tokenizer's keys of one of llama.cpp's vocabularies: (key, value, type, type of elements)."""
    import gguf

    fields = gguf.GGUFReader(source / "models" / f"ggml-vocab-{name}.gguf").fields
    return [(key, f.contents(), f.types[0], f.types[-1] if len(f.types) > 1 else None) for key, f in fields.items() if key.startswith("tokenizer.")]


def convert(folder, out, vocab, fuse):
    """llama.cpp's converter, with these keys in place of the folder's tokenizer."""
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class

    def set_vocab(self):
        for key, value, kind, of in vocab:
            self.gguf_writer.add_key_value(key, value, kind, sub_type=of)

    hparams = ModelBase.load_hparams(folder, False)
    made = get_model_class(get_model_architecture(hparams, ModelType.TEXT), mmproj=False)
    made.set_vocab = set_vocab
    made(folder, gguf.LlamaFileType.ALL_F32, out, fuse_qkv=fuse).write()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?", type=Path, default=ROOT / "build")
    parser.add_argument("--keep", type=Path, help="folder for the models")
    parser.add_argument("--only", default="", help="names, with commas")
    args = parser.parse_args()
    python = venv_python("transformers", "gguf", "sentencepiece", "safetensors", "requests")
    if not os.path.samefile(os.path.dirname(python), os.path.dirname(sys.executable)):
        os.execv(python, [python, *sys.argv])  # the same command in the environment that has transformers
    cache = (args.build / "CMakeCache.txt").read_text()
    third = next(line.split("=")[1] for line in cache.splitlines() if line.startswith("GT_THIRD_PARTY:")) or args.build
    source = next(Path(third).glob("llama-cpp-python/*/vendor/llama.cpp"))
    sys.path[:0] = [str(source), str(source / "gguf-py")]  # the converter, and the gguf package that belongs to it
    import numpy as np
    import torch

    with tempfile.TemporaryDirectory() as temporary:
        work = args.keep or Path(temporary)
        files = work / "gguf"
        files.mkdir(parents=True, exist_ok=True)
        for name in args.only.split(",") if args.only else MODELS:
            vocab = vocabulary(source, MODELS[name][2])
            n_vocab = next(len(value) for key, value, *_ in vocab if key == "tokenizer.ggml.tokens")
            model = make_model(name, work / name, n_vocab)
            for fuse in [False, True] if MODELS[name][0] != "GPT2" else [False]:
                convert(work / name, files / f"{name}{'-fused' if fuse else ''}.gguf", vocab, fuse)
            tokens = torch.arange(5, 125)[None] * 37 % n_vocab
            with torch.no_grad():
                model(tokens).logits[0].numpy().astype(np.float32).tofile(files / f"{name}.logits")
            tokens[0].numpy().astype(np.int32).tofile(files / f"{name}.tokens")
        env = dict(os.environ, GT_MODELS=str(files))
        done = subprocess.run([args.build / "bin" / "logits-tests", "[others]"], env=env, stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    worst = {
        "libllama": max(map(float, re.findall(r"differ by (\S+) of", done.stdout)), default=None),
        "transformers": max(map(float, re.findall(r"program's by (\S+)", done.stdout)), default=None)}
    print(json.dumps({"bench": "lora-hf", "files": done.stdout.count("differ by"), "worst": worst, "ok": done.returncode == 0}))
    sys.exit(done.returncode)


main()
