"""PEFT's side of lora-peft: a GGUF as a model of transformers with PEFT's adapters; prints one line of JSON.

    lora_peft_peer.py losses BASE INITIAL_ADAPTER SAMPLES STEPS LR ALPHA THREADS
    lora_peft_peer.py speed BASE B T STEPS RANK ALPHA plain|checkpointing THREADS
"""

import json
import sys
import time
from pathlib import Path

import torch
from gguf import GGUFReader
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

# llama.cpp's names of the matrices of a block -> those of transformers
MATRICES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
OTHERS = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}


def read(path):
    """Keys and F32 tensors of a GGUF."""
    reader = GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer")}
    return keys, {t.name: torch.from_numpy(t.data.copy()) for t in reader.tensors}


def their_name(name):
    if not name.startswith("blk."):
        return OTHERS[name]
    _, layer, what, kind = name.split(".")
    return f"model.layers.{layer}.{(MATRICES | OTHERS)[what]}.{kind}"


def neighbours_to_halves(w, n_heads):
    """llama.cpp's llama rotates neighbours, transformers' i and i + D/2: the rows of a head in that order."""
    return w.view(n_heads, w.shape[0] // n_heads // 2, 2, -1).transpose(1, 2).reshape(w.shape)


def base_model(path):
    keys, tensors = read(path)
    arch = keys["general.architecture"]
    key = lambda name: keys[f"{arch}.{name}"]
    config = dict(
        vocab_size=tensors["token_embd.weight"].shape[0], hidden_size=key("embedding_length"), intermediate_size=key("feed_forward_length"),
        num_hidden_layers=key("block_count"), num_attention_heads=key("attention.head_count"), num_key_value_heads=key("attention.head_count_kv"),
        max_position_embeddings=key("context_length"), rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base")}, tie_word_embeddings="output.weight" not in tensors, use_cache=False)
    kinds = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM)}
    make_config, make = kinds[arch]
    model = make(make_config(**config))
    if arch == "llama":
        for name in tensors:
            if name.endswith(("attn_q.weight", "attn_k.weight")):
                heads = "attention.head_count" if "attn_q" in name else "attention.head_count_kv"
                tensors[name] = neighbours_to_halves(tensors[name], key(heads))
    missing, extra = model.load_state_dict({their_name(name): tensor for name, tensor in tensors.items()}, strict=False)
    assert not extra and set(missing) <= {"lm_head.weight"}, (missing, extra)
    return model


def with_adapter(model, rank, alpha):
    names = [name.split(".")[-1] for name in MATRICES.values()]
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules=names, bias="none", task_type="CAUSAL_LM"))


def optimizer_of(model, lr):
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(trained, lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True), trained


def step(model, optimizer, trained, **batch):
    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def losses(base, first, samples, steps, lr, alpha):
    _, initial = read(first)
    rank = next(iter(t for name, t in initial.items() if name.endswith("lora_a"))).shape[0]
    model = with_adapter(base_model(base), rank, float(alpha))
    n_set = 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_A" in name:
                layer, matrix = name.split("layers.")[1].split(".", 1)
                ours = next(k for k, v in MATRICES.items() if matrix.startswith(v))
                parameter.copy_(initial[f"blk.{layer}.{ours}.weight.lora_a"])
                n_set += 1
    assert 2 * n_set == len(initial)
    pairs = json.load(open(samples))
    length = max(len(tokens) for tokens, _ in pairs)
    ids = torch.tensor([tokens + [0] * (length - len(tokens)) for tokens, _ in pairs])
    labels = torch.tensor([counted + [-100] * (length - len(counted)) for _, counted in pairs])
    optimizer, trained = optimizer_of(model, float(lr))
    return {"losses": [step(model, optimizer, trained, input_ids=ids, labels=labels) for _ in range(int(steps))]}


def peak_mb():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def speed(base, B, T, steps, rank, alpha, how):
    model = with_adapter(base_model(base), int(rank), float(alpha))
    if how == "checkpointing":
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable()
        model.train()
    ids = torch.randint(model.config.vocab_size, (int(B), int(T)))
    optimizer, trained = optimizer_of(model, 2e-4)
    Path("/proc/self/clear_refs").write_text("5")  # a new peak: reading the model took more than a step
    seconds, cpu = [], []
    for _ in range(int(steps)):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        step(model, optimizer, trained, input_ids=ids, labels=ids)
        seconds.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - cpu_begin)
    return {"seconds": seconds, "cpu": cpu, "peak_mb": peak_mb()}


torch.manual_seed(1)
torch.set_num_threads(int(sys.argv[-1]))
print(json.dumps({"losses": losses, "speed": speed}[sys.argv[1]](*sys.argv[2:-1])))
