"""PyTorch's side of one workload, in a process of its own (../one.lua):

    python3 spec/bench/peers/pytorch.py WORKLOAD THREADS FILE WAY

Ways, each with what the one before it has, where it applies: eager (a plain
script); sdpa (scaled_dot_product_attention); fused (the fused optimizer);
channels_last (for convolutions); compile (torch.compile).
"""
import os
import sys

WAYS = ("eager", "sdpa", "fused", "channels_last", "compile")
NAME, THREADS, FILE, WAY = sys.argv[1:]
LEVEL = WAYS.index(WAY)
os.environ.setdefault("TORCHINDUCTOR_FREEZING", "1")

import torch  # noqa: E402
from torch import nn  # noqa: E402

import networks  # noqa: E402
import serve  # noqa: E402


def load(make):
    arrays = serve.read(FILE)
    model = make()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(arrays[name]))
    return model, *(torch.from_numpy(arrays[k]) for k in ("input", "target"))


def trainer(model, loss_of, optimizer):
    kind, options = optimizer
    if LEVEL >= WAYS.index("fused"):
        options = {**options, "fused": True}
    optimizer = kind(model.parameters(), **options)

    def forward(x, y):
        return loss_of(model(x), y)
    if WAY == "compile":
        forward = torch.compile(forward)

    def step(x, y):
        optimizer.zero_grad()
        loss = forward(x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


def inferrer(model, loss_of):
    model.eval()
    forward = torch.compile(model) if WAY == "compile" else model

    def infer(x, y):
        with torch.no_grad():
            return loss_of(forward(x), y)
    return infer


def main():
    torch.set_num_threads(int(THREADS))
    rows, make, optimizer = networks.WORKLOADS[NAME]
    networks.Attention.fused = LEVEL >= WAYS.index("sdpa")
    model, x, y = load(make)
    serve.forget_peak()
    if LEVEL >= WAYS.index("channels_last") and x.dim() == 4:
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    if y.is_floating_point():
        loss_of = nn.MSELoss()
    else:
        cross_entropy = nn.CrossEntropyLoss()

        def loss_of(out, labels):
            return cross_entropy(out, labels.flatten())
    step = (trainer(model, loss_of, optimizer) if optimizer
            else inferrer(model, loss_of))
    batches = list(zip(x.split(rows), y.split(rows)))
    del x, y
    serve.serve(step, batches, "PyTorch " + torch.__version__)


main()
