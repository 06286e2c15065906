"""PyTorch twins of our models, for the benchmarks: GPT-2 and ViT as the publications have them,
eager, fp32, with PyTorch's own fused attention and fused AdamW."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads, mlp, causal, gelu, eps):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.ln1 = nn.LayerNorm(width, eps=eps)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width, eps=eps)
        self.up = nn.Linear(width, mlp)
        self.down = nn.Linear(mlp, width)
        self.gelu = nn.GELU(approximate=gelu)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(self.gelu(self.up(self.ln2(x))))


class Gpt(nn.Module):
    def __init__(self, layers, width, heads, vocab, context):
        super().__init__()
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, 4 * width, True, "tanh", 1e-5) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        init_gpt(self, layers)

    def forward(self, ids, labels):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


def init_gpt(model, layers):
    for name, p in model.named_parameters():
        if p.dim() >= 2:
            scale = 0.02 / (2 * layers) ** 0.5 if name.endswith(("out.weight", "down.weight")) else 0.02
            nn.init.normal_(p, std=scale)
        elif name.endswith("bias"):
            nn.init.zeros_(p)


class Vit(nn.Module):
    def __init__(self, layers, width, heads, image, patch, channels, classes, mlp=None, pooling="cls"):
        super().__init__()
        n = (image // patch) ** 2
        self.patch = nn.Conv2d(channels, width, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, width)) if pooling == "cls" else None
        self.positions = nn.Parameter(torch.zeros(1, n + (self.cls is not None), width))
        self.blocks = nn.ModuleList(Block(width, heads, mlp or 4 * width, False, "none", 1e-6) for _ in range(layers))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)
        for p in self.parameters():
            if p.dim() >= 2:
                nn.init.trunc_normal_(p, std=0.02)

    def forward(self, images, labels=None, smoothing=0.0):
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = x if self.cls is None else torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1)
        x = x + self.positions
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        logits = self.head(x.mean(1) if self.cls is None else x[:, 0])
        return logits if labels is None else F.cross_entropy(logits, labels, label_smoothing=smoothing)


def adamw(model, lr, decay=0.1, betas=(0.9, 0.95)):
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": decay},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=True)


class Muon(torch.optim.Optimizer):
    """Our rule `muon`: matrices move by the orthogonal part of the momentum (Newton-Schulz, five steps), scaled
    to AdamW's reach; everything else by its sign. Queries, keys and values are matrices of their own."""

    def __init__(self, model, lr, decay=0.1, momentum=0.9):
        tables = ("cls", "positions")
        groups = []
        for name, p in model.named_parameters():
            parts = 3 if name.endswith("qkv.weight") else 1
            kind = 0 if p.dim() < 2 else -1 if name in tables else parts
            groups.append({"params": [p], "parts": kind, "weight_decay": decay if p.dim() >= 2 else 0.0})
        super().__init__(groups, dict(lr=lr, momentum=momentum))

    @staticmethod
    def orthogonal(x):
        x = x / (x.norm() + 1e-20)
        tall = x.shape[0] > x.shape[1]
        x = x.T if tall else x
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
        return x.T if tall else x

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            p, beta = group["params"][0], group["momentum"]
            m = self.state[p].setdefault("m", torch.zeros_like(p))
            m.mul_(beta).add_(p.grad)
            u = p.grad + beta * m
            if group["parts"] <= 0:
                u = u.sign()
            else:
                parts = u.flatten(1).chunk(group["parts"])
                u = torch.cat([0.2 * max(x.shape) ** 0.5 * self.orthogonal(x) for x in parts]).view_as(p)
            p.mul_(1 - group["lr"] * group["weight_decay"]).add_(u, alpha=-group["lr"])
