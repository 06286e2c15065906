"""odd_gguf.py SOURCE FOLDER [NAME...]: legal but unusual copies of a GGUF, as other programs write them; all of a llama,
or those named. Files that libllama runs are in FOLDER/runs."""

import os
import sys

import gguf
import numpy as np

Q8_0 = gguf.GGMLQuantizationType.Q8_0
SOURCE, FOLDER = gguf.GGUFReader(sys.argv[1]), sys.argv[2]
OPTIONAL = ("llama.attention.head_count_kv", "llama.rope.dimension_count", "llama.rope.freq_base", "llama.vocab_size")


def write(name, change=lambda keys, tensors: None, alignment=None):
    """change: of {key: (value, type, type of elements)} and of {name: (array, type)}."""
    keys = {k: (f.contents(), f.types[0], f.types[-1] if len(f.types) > 1 else None) for k, f in SOURCE.fields.items() if not k.startswith("GGUF.")}
    tensors = {t.name: (t.data, None) for t in SOURCE.tensors}
    arch = keys.pop("general.architecture")[0]
    change(keys, tensors)
    writer = gguf.GGUFWriter(f"{FOLDER}/{name}.gguf", arch)
    if alignment:
        writer.add_custom_alignment(alignment)
    for key, (value, kind, of) in keys.items():
        writer.add_key_value(key, value, kind, sub_type=of)
    for key, (array, kind) in tensors.items():
        writer.add_tensor(key, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def without_optional_keys(keys, _):
    for key in OPTIONAL:
        del keys[key]


def other_keys(keys, _):
    array, text = gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING
    keys["someone.else"] = ([1, 2], array, gguf.GGUFValueType.INT8)
    keys["general.tags"] = (["text", "größer"], array, text)
    keys["quantize.imatrix.file"] = ("i.dat", text, None)
    keys["llama.attention.sliding_window"] = (4096, gguf.GGUFValueType.UINT32, None)  # of Mistral; llama.cpp does not use it
    keys["llama.rope.scaling.type"] = ("none", text, None)
    keys["tokenizer.chat_template.tool_use"] = ("{{ tools }}", text, None)


def wide_keys(keys, _):
    keys["llama.context_length"] = (keys["llama.context_length"][0], gguf.GGUFValueType.UINT64, None)


def sizes_per_layer(keys, _):
    for name in ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        value = keys[f"llama.{name}"][0]
        keys[f"llama.{name}"] = ([value, value], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT32)


def windows_per_layer(keys, _):
    keys["gemma3.attention.sliding_window"] = (8, gguf.GGUFValueType.UINT32, None)
    keys["gemma3.attention.sliding_window_pattern"] = ([True, False, True, False], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.BOOL)


def uneven_windows(keys, _):
    keys["gemma3.attention.sliding_window"] = (8, gguf.GGUFValueType.UINT32, None)
    keys["gemma3.attention.sliding_window_pattern"] = ([True, False, False, True], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.BOOL)


def reversed_order(_, tensors):
    for name in reversed(list(tensors)):
        tensors[name] = tensors.pop(name)


def own_output(_, tensors):
    tensors["output.weight"] = tensors["token_embd.weight"]


def padded(_, tensors):
    table = tensors["token_embd.weight"][0]
    tensors["token_embd.weight"] = (np.concatenate([table, np.zeros((7, table.shape[1]), np.float32)]), None)


def mixed_types(_, tensors):
    for name, (array, _) in tensors.items():
        if array.ndim == 2 and "attn" in name:
            tensors[name] = (gguf.quantize(array, Q8_0), Q8_0)
        elif array.ndim == 2:
            tensors[name] = (array.astype(np.float16), None)


def half_norms(_, tensors):
    for name, (array, kind) in tensors.items():
        if array.ndim == 1:
            tensors[name] = (array.astype(np.float16), None)


def biases(_, tensors):
    for name, (array, _) in list(tensors.items()):
        if name.startswith("blk.") and array.ndim == 2:
            tensors[name.replace(".weight", ".bias")] = (np.sin(np.arange(len(array), dtype=np.float32)), None)


def fused(_, tensors):
    for i in range(2):
        parts = [tensors.pop(f"blk.{i}.attn_{which}.weight")[0] for which in "qkv"]
        tensors[f"blk.{i}.attn_qkv.weight"] = (np.concatenate(parts), None)


def other_biases(_, tensors):
    tensors["blk.1.attn_q.bias"] = (np.zeros(32, np.float32), None)


def scales(_, tensors):
    tensors["blk.0.attn_q.scale"] = (np.ones(1, np.float32), None)


def other_values(keys, _):
    keys["llama.attention.key_length"] = (16, gguf.GGUFValueType.UINT32, None)
    keys["llama.attention.value_length"] = (8, gguf.GGUFValueType.UINT32, None)


def unequal_layers(keys, _):
    keys["llama.attention.head_count_kv"] = ([2, 1], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT32)


def experts(keys, _):
    keys["llama.expert_count"] = (4, gguf.GGUFValueType.UINT32, None)


def split(keys, _):
    keys["split.count"] = (3, gguf.GGUFValueType.UINT16, None)


RUN = [without_optional_keys, other_keys, reversed_order, own_output, mixed_types, sizes_per_layer, biases, fused]
DO_NOT_RUN = [wide_keys, padded, half_norms, other_values, unequal_layers, other_biases, scales, experts, split]
os.makedirs(f"{FOLDER}/runs", exist_ok=True)
if sys.argv[3:]:
    for name in sys.argv[3:]:
        write(name, globals()[name.split("/")[-1].replace("-", "_")])
    sys.exit()
write("runs/plain")
write("runs/aligned", alignment=64)
for change in RUN + DO_NOT_RUN:
    write(("runs/" if change in RUN else "") + change.__name__.replace("_", "-"), change)
