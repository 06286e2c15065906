"""Golden files of other shapes, hosts and settings: ALGORITHMS in plain numpy, as far from the C++ as can be
(dense matrices for the DCT, full sorts, float64). golden-others.sh checks golden-tests against them.

    golden_make.py FOLDER [FIRST_SEED] [N_SEEDS]"""

import sys

import gguf
import numpy as np


def side(n, target):
    return max(d for d in range(1, min(n, target) + 1) if n % d == 0)


def dct(n):
    k, i = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
    table = np.cos(np.pi * (2 * i + 1) * k / (2 * n)) * np.sqrt(2 / n)
    table[0] /= np.sqrt(2)
    return np.where(abs(table) < 1e-12, 0, table)  # the cosine of a right angle, whose sign counts


def to_chunks(x, target):
    """Chunks as rows of a matrix of coefficients, and how to get back."""
    matrix = x.reshape(x.shape[0], -1) if x.ndim > 1 else x.reshape(1, -1)
    a, b = (side(x.shape[0], target), side(matrix.shape[1], target)) if x.ndim > 1 else (1, side(x.size, target))
    rows, cols = matrix.shape[0] // a, matrix.shape[1] // b
    left, right = dct(a), dct(b)
    blocks = left @ matrix.reshape(rows, a, cols, b).transpose(0, 2, 1, 3) @ right.T

    def back(coefficients):
        blocks = left.T @ coefficients.reshape(rows, cols, a, b) @ right
        return blocks.transpose(0, 2, 1, 3).reshape(x.shape)

    return blocks.reshape(rows * cols, a * b), back


class Demo:
    def __init__(self, s):
        self.k, self.target = s["topk"], s["chunk"]

    def extract(self, m, step, p):
        c, back = to_chunks(m, self.target)
        kept = np.zeros(c.shape, bool)
        np.put_along_axis(kept, np.argsort(-abs(c), axis=1, kind="stable")[:, : self.k], True, axis=1)
        self.back = back
        return (np.where(kept, c, 0), kept), back(np.where(kept, 0, c))

    def combine(self, sent, shape):
        n = sum(kept for _, kept in sent)
        return self.back(sum(value for value, _ in sent) / np.maximum(n, 1))


class Rows:
    def __init__(self, s, rows):
        self.rows = rows

    def extract(self, m, step, p):
        c, chosen = self.rows[step][p]
        view = m.reshape(c, -1).copy()
        sent = np.zeros_like(view)
        sent[chosen] = view[chosen]
        view[chosen] = 0
        return sent, view.reshape(m.shape)

    def combine(self, sent, shape):
        return (sum(sent) / len(sent)).reshape(shape)


def choose_rows(kind, shape, target, rate, step, random):
    c = shape[0] if kind == "random" else side(shape[0], target)
    n = max(1, int(np.floor(np.float32(rate) * c)))
    if kind == "random":
        return c, random.permutation(c)[:n]
    if kind == "slicing":
        return c, (step * n + np.arange(n)) % c
    stride = -(-c // n)
    return c, (step % stride + np.arange(n) * stride) % c


class AdamW:
    def __init__(self, s):
        self.s, self.t, self.m, self.v = s, 0, 0.0, 0.0

    def step(self, p, g):
        s = self.s
        self.t += 1
        self.m = s["beta1"] * self.m + (1 - s["beta1"]) * g
        self.v = s["beta2"] * self.v + (1 - s["beta2"]) * g * g
        m, v = self.m / (1 - s["beta1"] ** self.t), self.v / (1 - s["beta2"] ** self.t)
        return p * (1 - s["lr"] * s["wd"]) - s["lr"] * m / (np.sqrt(v) + s["eps"])


class File:
    def __init__(self, path, settings):
        self.w = gguf.GGUFWriter(path, "golden")
        add = {bool: self.w.add_bool, int: self.w.add_uint32, float: self.w.add_float32, str: self.w.add_string}
        for key, value in settings.items():
            add[type(value)](f"golden.{key}", value)

    def put(self, name, values, dtype=np.float32):
        self.w.add_tensor(name, np.ascontiguousarray(values, dtype))

    def close(self):
        self.w.write_header_to_file()
        self.w.write_kv_data_to_file()
        self.w.write_tensors_to_file()
        self.w.close()


def gradients(s, shapes, random):
    return [[[random.normal(size=x).astype(np.float32) for x in shapes] for _ in range(s["world"])] for _ in range(s["steps"])]


def put_gradients(out, grads):
    for step, hosts in enumerate(grads):
        for h, tensors in enumerate(hosts):
            for p, g in enumerate(tensors):
                out.put(f"grad/s{step}/n{h}/p{p}", g)


def decoupled(path, s, shapes, random):
    """demo.run and repl.run."""
    grads = gradients(s, shapes, random)
    weights = [random.normal(size=x).astype(np.float32) for x in shapes]
    kind = s.get("replicator", "demo")
    out = File(path, s)
    for p, w in enumerate(weights):
        out.put(f"init/p{p}", w)
    put_gradients(out, grads)
    rows = [[choose_rows(kind, x, s["chunk"], s["rate"], step, random) for x in shapes] for step in range(s["steps"])] \
        if kind in ("random", "striding", "slicing") else None
    for step, tensors in enumerate(rows or []):
        for p, (_, chosen) in enumerate(tensors):
            out.put(f"rows/s{step}/p{p}", chosen, np.int32)
    replicator = Rows(s, rows) if rows else Demo(s)
    adamw = s.get("base") == "adamw" and [AdamW(s) for _ in shapes]
    weights = [w.astype(np.float64) for w in weights]
    momentum = [[np.zeros(x) for x in shapes] for _ in range(s["world"])]
    for step in range(s["steps"]):
        for p, shape in enumerate(shapes):
            g = [grads[step][h][p].astype(np.float64) for h in range(s["world"])]
            if kind in ("full", "none"):
                u = g[0] if kind == "none" else sum(g) / len(g)
            else:
                sent = []
                for h in range(s["world"]):
                    m = s["decay"] * momentum[h][p] + s["lr"] * g[h]
                    q, momentum[h][p] = replicator.extract(m, step, p)
                    sent.append(q)
                u = replicator.combine(sent, shape)
            u = np.sign(u) if s.get("sign", True) else u
            if adamw:
                weights[p] = adamw[p].step(weights[p], u)
            else:
                decay = s["wd"] if s["kind"] == "demo.run" else 0.0
                weights[p] = weights[p] * (1 - s["lr"] * decay) - s["lr"] * u
            out.put(f"param/s{step}/p{p}", weights[p])
            for h in range(s["world"]):
                out.put(f"delta/s{step}/n{h}/p{p}", momentum[h][p])
    out.close()


def diloco(path, s, shapes, random):
    grads = gradients(s, shapes, random)
    out = File(path, s)
    common = [random.normal(size=x).astype(np.float32).astype(np.float64) for x in shapes]
    for p, w in enumerate(common):
        out.put(f"init/p{p}", w)
    put_gradients(out, grads)
    local = [[w.copy() for w in common] for _ in range(s["world"])]
    inner = [[AdamW(s) for _ in shapes] for _ in range(s["world"])]
    outer = [0.0 for _ in shapes]
    for step in range(s["steps"]):
        for p in range(len(shapes)):
            for h in range(s["world"]):
                local[h][p] = inner[h][p].step(local[h][p], grads[step][h][p].astype(np.float64))
            if (step + 1) % s["h"] == 0:
                change = common[p] - sum(local[h][p] for h in range(s["world"])) / s["world"]
                outer[p] = s["outer_momentum"] * outer[p] + change
                common[p] = common[p] - s["outer_lr"] * (change + s["outer_momentum"] * outer[p])
                for h in range(s["world"]):
                    local[h][p] = common[p].copy()
            for h in range(s["world"]):
                out.put(f"param/s{step}/n{h}/p{p}", local[h][p])
    out.close()


def settings(seed, random):
    """Numbers are rounded to float32, as the file holds them."""
    real = lambda *choices: float(np.float32(random.choice(choices)))
    shapes = [tuple(int(x) for x in random.choice([2, 7, 24, 29, 31, 48, 60, 64, 67, 96, 128], size=n)) for n in (2, 2, 1, 1)]
    common = dict(world=int(random.integers(1, 6)), seed=seed, steps=int(random.integers(3, 6)), lr=real(1e-3, 3e-3, 1e-2), wd=real(0.0, 0.1),
                  shapes=";".join("x".join(map(str, x)) for x in shapes))
    adam = dict(beta1=real(0.8, 0.9), beta2=real(0.95, 0.99), eps=real(1e-8))
    sparse = dict(decay=real(0.9, 0.99, 0.999), topk=int(random.choice([1, 4, 32])), chunk=int(random.choice([8, 32, 64])))
    return shapes, common, adam, sparse


def main():
    folder, first, n = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1, int(sys.argv[3]) if len(sys.argv) > 3 else 3
    for seed in range(first, first + n):
        random = np.random.default_rng(seed)
        shapes, common, adam, sparse = settings(seed, random)
        decoupled(f"{folder}/demo-{seed}.gguf", {"kind": "demo.run", **common, **sparse}, shapes, random)
        diloco(f"{folder}/diloco-{seed}.gguf", {"kind": "diloco.run", **common, **adam, "h": int(random.integers(1, 4)),
               "outer_lr": float(np.float32(0.7)), "outer_momentum": float(np.float32(0.9))}, shapes, random)
        for kind in ("demo", "random", "striding", "slicing", "full", "none"):
            base = str(random.choice(["sgd", "adamw"]))
            s = {"kind": "repl.run", **common, **adam, **sparse, "replicator": kind, "base": base, "sign": bool(random.integers(2)),
                 "rate": float(np.float32(random.choice([0.1, 0.3])))}
            decoupled(f"{folder}/repl-{kind}-{seed}.gguf", s, shapes, random)


main()
