"""The workloads of ../workloads.lua and the networks of ../networks.lua, with the
same names of parameters, in PyTorch."""
import torch
import torch.nn.functional as F
from torch import nn


def mlp():
    return nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, 10))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(),
        nn.Linear(128, 10))


def demo():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))


class Residual(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.short = nn.Identity()
        if stride > 1 or before != after:
            self.short = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False),
                nn.BatchNorm2d(after))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.short(x), inplace=True)


def resnet18():
    layers = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64),
              nn.ReLU(inplace=True)]
    before = 64
    for stage, after in enumerate((64, 128, 256, 512)):
        layers += [Residual(before, after, 2 if stage else 1),
                   Residual(after, after, 1)]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(512, 10))


class Reader(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        return self.head(self.lstm(self.embedding(ids))[0]).flatten(0, 1)


class Attention(nn.Module):
    """Multi-head attention; with `fused` through PyTorch's own operator, else
    step by step, as models wrote it before that existed."""
    fused = False

    def attend(self, q, k, v, causal):
        b, t, d = q.shape
        q, k, v = (x.view(b, t, self.heads, d // self.heads).transpose(1, 2)
                   for x in (q, k, v))
        if Attention.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        else:
            score = q @ k.transpose(-2, -1) * (d // self.heads) ** -0.5
            if causal:
                score = score.masked_fill(self.mask[:t, :t], float("-inf"))
            y = F.softmax(score, -1) @ v
        return y.transpose(1, 2).reshape(b, t, d)


class Layer(Attention):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).split(x.shape[-1], -1)
        x = x + self.proj(self.attend(q, k, v, True))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, layers, width, heads, length, vocabulary):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            Layer(width, heads, length) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.token(ids) + self.position(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)).flatten(0, 1)


class Encoder(Attention):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.proj = nn.Linear(width, width), nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=1e-12)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                 nn.Linear(4 * width, width))
        self.norm2 = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x):
        y = self.attend(self.query(x), self.key(x), self.value(x), False)
        x = self.norm1(x + self.proj(y))
        return self.norm2(x + self.mlp(x))


class BERT(nn.Module):
    def __init__(self, layers, width, heads, length, vocabulary, labels):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)
        self.kind = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Encoder(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, labels)

    def forward(self, ids):
        x = (self.token(ids) + self.position(torch.arange(ids.shape[1]))
             + self.kind(torch.zeros_like(ids)))
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x).flatten(0, 1)


def load(make, arrays):
    """A network with the weights and buffers of that name, and what it is called
    with: inputs, then the target if there is one."""
    model = make()
    with torch.no_grad():
        for name, t in [*model.named_parameters(), *model.named_buffers()]:
            if name in arrays:
                t.copy_(torch.from_numpy(arrays[name]))
    names = ["input", *("input%d" % i for i in range(2, 10)), "target"]
    return model, [torch.from_numpy(arrays[n]) for n in names if n in arrays]


def loss(y, target):
    if target.is_floating_point():
        return F.mse_loss(y, target)
    places = target if target.dim() == y.dim() - 1 else target.flatten()
    return F.cross_entropy(y, places)


# name: (rows a step, the network, the optimizer and its arguments)
SGD, ADAM = (torch.optim.SGD, {"lr": 0.01}), (torch.optim.Adam, {"lr": 1e-3})
MOMENTUM = (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9})
ADAMW = (torch.optim.AdamW, {"lr": 1e-3})
WORKLOADS = {
    "demo": (192, demo, ADAM),
    "linreg": (10, lambda: nn.Linear(10, 10), SGD),
    "mlp64-sgd": (64, mlp, SGD),
    "mlp64-adam": (64, mlp, ADAM),
    "mlp256-sgd": (256, mlp, SGD),
    "mlp256-adam": (256, mlp, ADAM),
    "cnn": (64, cnn, ADAM),
    "resnet18": (32, resnet18, MOMENTUM),
    "lstm": (32, lambda: Reader(65, 256), ADAM),
    "gpt-s": (16, lambda: GPT(4, 128, 4, 128, 65), ADAMW),
    "gpt-l": (8, lambda: GPT(6, 384, 6, 256, 65), ADAMW),
    "bert-base": (1, lambda: BERT(12, 768, 12, 512, 30522, 9), None),
    "cnn-inference": (64, cnn, None),
}
