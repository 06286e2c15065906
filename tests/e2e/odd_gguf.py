"""odd_gguf.py SOURCE FOLDER: legal but unusual copies of a llama GGUF, as other programs write them."""

import sys

import gguf
import numpy as np

Q8_0 = gguf.GGMLQuantizationType.Q8_0
SOURCE = gguf.GGUFReader(sys.argv[1])
OPTIONAL = ("llama.attention.head_count_kv", "llama.rope.dimension_count", "llama.rope.freq_base", "llama.vocab_size")


def write(name, change=lambda keys, tensors: None, alignment=None):
    """change: of {key: (value, type, type of elements)} and of {name: (array, type)}."""
    keys = {k: (f.contents(), f.types[0], f.types[-1] if len(f.types) > 1 else None) for k, f in SOURCE.fields.items() if not k.startswith("GGUF.")}
    tensors = {t.name: (t.data, None) for t in SOURCE.tensors}
    arch = keys.pop("general.architecture")[0]
    change(keys, tensors)
    writer = gguf.GGUFWriter(f"{sys.argv[2]}/{name}.gguf", arch)
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
    keys["someone.else"] = ([1, 2], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.INT8)
    keys["llama.rope.scaling.type"] = ("none", gguf.GGUFValueType.STRING, None)
    keys["llama.context_length"] = (keys["llama.context_length"][0], gguf.GGUFValueType.UINT64, None)


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
    tensors["blk.0.attn_q.bias"] = (np.zeros(32, np.float32), None)


def other_values(keys, _):
    keys["llama.attention.key_length"] = (16, gguf.GGUFValueType.UINT32, None)
    keys["llama.attention.value_length"] = (8, gguf.GGUFValueType.UINT32, None)


def unequal_layers(keys, _):
    keys["llama.attention.head_count_kv"] = ([2, 1], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT32)


def experts(keys, _):
    keys["llama.expert_count"] = (4, gguf.GGUFValueType.UINT32, None)


def split(keys, _):
    keys["split.count"] = (3, gguf.GGUFValueType.UINT16, None)


write("plain")
write("aligned", alignment=64)
for change in [without_optional_keys, other_keys, reversed_order, own_output, padded, mixed_types, half_norms, biases, other_values, unequal_layers, experts, split]:
    write(change.__name__.replace("_", "-"), change)
