#!/usr/bin/env python3
"""ViTs of timm and Hugging Face with random weights: imported, exported for timm and ONNX Runtime, imported again.
Prints the largest difference of log-probabilities, relative to the largest logit, and one line of JSON; fails above 1e-4.

    tests/bench/vit-timm.py [BIN_DIR] [--pictures 20] [--only NAME]

timm, transformers and onnxruntime are installed by bench_venv.py."""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

from bench_venv import ROOT, venv_python

# name, timm's architecture, arguments; the second deit has a token that is dropped
MODELS = [
    ("vit_tiny", "vit_tiny_patch16_224", {}),
    ("vit_small", "vit_small_patch16_224", {}),
    ("deit_tiny", "deit_tiny_patch16_224", {}),
    ("deit_tiny_distilled", "deit_tiny_distilled_patch16_224", {}),
    ("dinov2_like", "vit_small_patch14_dinov2", dict(img_size=98, num_classes=7)),
    ("clip_like", "vit_tiny_patch16_224", dict(pre_norm=True, img_size=64, num_classes=11, depth=3)),
    ("clip", "vit_base_patch16_clip_224", dict(embed_dim=192, num_heads=3, depth=3, img_size=64, num_classes=11)),
    ("mean_pooled", "vit_tiny_patch16_224", dict(global_pool="avg", img_size=64, num_classes=11, depth=3)),
    ("no_class_token", "vit_tiny_patch16_224", dict(global_pool="avg", class_token=False, fc_norm=False, depth=3, num_classes=11)),
    ("wide_pictures", "vit_tiny_patch16_224", dict(img_size=(48, 80), embed_dim=96, num_heads=4, mlp_ratio=2.7, depth=2, num_classes=3, in_chans=1)),
    ("hf_vit", None, dict(image_size=64, patch_size=8, hidden_size=96, num_hidden_layers=4, num_attention_heads=4, intermediate_size=200, num_labels=9)),
]
LIMIT = 1e-4


def run(*command):
    done = subprocess.run(command, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def stir(model, torch):
    """Random values everywhere: zero biases and unit norms would hide errors."""
    torch.manual_seed(1)
    for parameter in model.parameters():
        parameter.data += 0.02 * torch.randn_like(parameter)
    for name, parameter in model.named_parameters():
        if name.endswith("gamma"):
            parameter.data = 1 + 0.1 * torch.randn_like(parameter)
    return model.eval()


def make_theirs(name, architecture, arguments, folder):
    """Writes model.safetensors and config.json. Returns a function from pixels in [0, 1] to logits, and the input's shape."""
    import timm
    import torch
    from safetensors.torch import save_file

    if architecture is None:
        import transformers

        model = stir(transformers.ViTForImageClassification(transformers.ViTConfig(**arguments)), torch)
        model.save_pretrained(folder)
        mean, std, shape = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5), (3, arguments["image_size"], arguments["image_size"])
        json.dump(dict(image_mean=mean, image_std=std), open(f"{folder}/preprocessor_config.json", "w"))
        return lambda x: model((x - 0.5) / 0.5).logits, shape
    model = stir(timm.create_model(architecture, **arguments), torch)
    state = {key: value.contiguous() for key, value in model.state_dict().items()}
    save_file(state, f"{folder}/model.safetensors")
    shape = (arguments.get("in_chans", 3), *model.patch_embed.img_size)
    mean, std = [0.4 + 0.05 * i for i in range(shape[0])], [0.2 + 0.05 * i for i in range(shape[0])]
    config = dict(architecture=architecture, model_args={k: v for k, v in arguments.items() if k in ("num_heads", "global_pool", "img_size")},
                  pretrained_cfg=dict(input_size=shape, mean=mean, std=std, crop_pct=1.0))
    json.dump(config, open(f"{folder}/config.json", "w"))
    if "dist_token" in state:  # the same model without the token
        plain = timm.create_model("deit_tiny_patch16_224", **arguments)
        positions = state["pos_embed"]
        state = {k: v for k, v in state.items() if "dist" not in k}
        state["pos_embed"] = torch.cat([positions[:, :1], positions[:, 2:]], 1)
        plain.load_state_dict(state)
        model = plain.eval()
    mean, std = torch.tensor(mean)[:, None, None], torch.tensor(std)[:, None, None]
    return lambda x: model((x - mean) / std), shape


def our_answers(bin_dir, model, pictures, n_classes):
    """Logarithms of the shares, by class."""
    import numpy as np

    rows = []
    for line in run(f"{bin_dir}/classify", "-m", model, "--json", "--top", str(n_classes), *pictures).splitlines():
        row = np.zeros(n_classes)
        for answer in json.loads(line)["answers"]:
            row[int(answer["class"].split()[1])] = answer["share"]
        rows.append(np.log(np.maximum(row, 1e-300)))
    return np.array(rows)


def compare(name, architecture, arguments, bin_dir, n_pictures):
    import numpy as np
    import onnxruntime
    import timm
    import torch
    from PIL import Image
    from safetensors.torch import load_file

    with tempfile.TemporaryDirectory() as work:
        os.mkdir(f"{work}/theirs")
        os.mkdir(f"{work}/out")
        theirs, shape = make_theirs(name, architecture, arguments, f"{work}/theirs")
        run(f"{bin_dir}/new-model", "--from", f"{work}/theirs/model.safetensors", "-o", f"{work}/m.gguf")
        rng = np.random.default_rng(1)
        pixels = rng.integers(0, 256, (n_pictures, *shape), dtype=np.uint8)
        pictures = []
        for i, picture in enumerate(pixels):
            pictures.append(f"{work}/{i}.png")
            Image.fromarray(picture[0] if shape[0] == 1 else picture.transpose(1, 2, 0)).save(pictures[-1])
        x = torch.tensor(pixels).float() / 255
        with torch.no_grad():
            want = theirs(x).double()
        largest = want.abs().max().item()
        answers = torch.log_softmax(want, 1).numpy()
        ours = our_answers(bin_dir, f"{work}/m.gguf", pictures, want.shape[1])
        seen = answers > -80  # smaller shares are zero in F32

        def difference(a, b):
            return float(np.abs(a - b)[seen].max() / largest)

        result = {"imported": difference(ours, answers)}

        run(f"{bin_dir}/ggml-train", "export", f"{work}/m.gguf", "-o", f"{work}/out/model.safetensors")
        run(f"{bin_dir}/new-model", "--from", f"{work}/out/model.safetensors", "-o", f"{work}/again.gguf")
        os.mkdir(f"{work}/again")
        run(f"{bin_dir}/ggml-train", "export", f"{work}/again.gguf", "-o", f"{work}/again/model.safetensors")
        result["same_bits"] = all(
            open(f"{work}/out/{file}", "rb").read() == open(f"{work}/again/{file}", "rb").read()
            for file in ("model.safetensors", "config.json"))

        config = json.load(open(f"{work}/out/config.json"))
        made = timm.create_model(config["architecture"], num_classes=config["num_classes"], **config["model_args"])
        made.load_state_dict(load_file(f"{work}/out/model.safetensors"))
        for norm in (m for m in made.modules() if isinstance(m, torch.nn.LayerNorm)):
            if not math.isclose(norm.eps, config["norm_eps"], rel_tol=1e-6):
                assert architecture is None, "timm has an architecture with this epsilon"
                norm.eps = config["norm_eps"]
        cfg = config["pretrained_cfg"]
        mean, std = torch.tensor(cfg["mean"])[:, None, None], torch.tensor(cfg["std"])[:, None, None]
        with torch.no_grad():
            result["timm_from_ours"] = difference(torch.log_softmax(made.eval()((x - mean) / std).double(), 1).numpy(), answers)

        run(f"{bin_dir}/ggml-train", "export", f"{work}/m.gguf", "-o", f"{work}/m.onnx")
        session = onnxruntime.InferenceSession(f"{work}/m.onnx")
        logits = session.run(None, {"pixels": x.numpy()})[0]
        assert session.run(None, {"pixels": x[:1].numpy()})[0].shape == (1, want.shape[1])  # any batch size
        result["onnx"] = difference(torch.log_softmax(torch.tensor(logits).double(), 1).numpy(), ours)
        return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir", nargs="?", default=str(ROOT / "build" / "bin"))
    parser.add_argument("--pictures", type=int, default=20)
    parser.add_argument("--only")
    args = parser.parse_args()
    python = venv_python("timm", "transformers", "onnxruntime", "safetensors")
    if not os.path.samefile(os.path.dirname(python), os.path.dirname(sys.executable)):
        os.execv(python, [python, *sys.argv])  # the same command in the environment that has PyTorch
    print(f"{'':20} {'imported':>10} {'timm again':>10} {'ONNX':>10}  bits")
    rows, ok = {}, True
    for name, architecture, arguments in MODELS:
        if args.only and name != args.only:
            continue
        row = rows[name] = compare(name, architecture, arguments, args.bin_dir, args.pictures)
        print(f"{name:20} {row['imported']:10.1e} {row['timm_from_ours']:10.1e} {row['onnx']:10.1e}  {'same' if row['same_bits'] else 'OTHER'}", flush=True)
        ok = ok and row["same_bits"] and all(row[key] <= LIMIT for key in ("imported", "timm_from_ours", "onnx"))
    print(json.dumps({"bench": "vit-timm", "pictures": args.pictures, "limit": LIMIT, **rows}))
    sys.exit(0 if ok else 1)


main()
