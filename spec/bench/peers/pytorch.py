"""PyTorch's side of one workload, in a process of its own (../one.lua):

    python3 spec/bench/peers/pytorch.py WORKLOAD THREADS FILE WAY

Ways, each with what the one before it has, where it applies: eager (a plain
script); sdpa (scaled_dot_product_attention); fused (the fused optimizer);
channels_last (for convolutions); compile (torch.compile). In low precision all
under autocast in bfloat16.
"""
import os
import sys

WAYS = ("eager", "sdpa", "fused", "channels_last", "compile")
NAME, THREADS, FILE, WAY = sys.argv[1:]
LEVEL = WAYS.index(WAY)
os.environ.setdefault("TORCHINDUCTOR_FREEZING", "1")

import torch  # noqa: E402

import more  # noqa: E402
import networks  # noqa: E402
import serve  # noqa: E402


def low():
    return torch.autocast("cpu", torch.bfloat16, enabled=serve.LOW)


def trainer(phases, optimizer):
    kind, options = optimizer
    if LEVEL >= WAYS.index("fused"):
        options = {**options, "fused": True}
    phases = [(torch.compile(forward) if WAY == "compile" else forward,
               kind(learner.parameters(), **options))
              for forward, learner in phases]

    def step(*batch):
        total = 0
        for forward, optimizer in phases:
            optimizer.zero_grad()
            with low():
                loss = forward(*batch)
            loss.backward()
            optimizer.step()
            total = total + loss.detach()
        return total
    return step


def inferrer(model):
    model.eval()
    forward = torch.compile(model) if WAY == "compile" else model

    def infer(*batch):
        with torch.no_grad(), low():
            return networks.loss(forward(*batch[:-1]), batch[-1])
    return infer


def phases_of(name, model):
    """What a step does in turn: a loss, and the module that learns by it."""
    if name in more.OWN_LOSS:
        return model.phases() if hasattr(model, "phases") else [(model, model)]
    return [(lambda *batch: networks.loss(model(*batch[:-1]), batch[-1]),
             model)]


def main():
    torch.set_num_threads(int(THREADS))
    rows, make, optimizer = {**networks.WORKLOADS, **more.WORKLOADS}[NAME]
    networks.Attention.fused = LEVEL >= WAYS.index("sdpa")
    model, data = networks.load(make, serve.read(FILE))
    serve.forget_peak()
    if LEVEL >= WAYS.index("channels_last") and data[0].dim() == 4:
        model = model.to(memory_format=torch.channels_last)
        data[0] = data[0].contiguous(memory_format=torch.channels_last)
    step = (trainer(phases_of(NAME, model), optimizer) if optimizer
            else inferrer(model))
    batches = list(zip(*(t.split(rows) for t in data)))
    del data
    serve.serve(step, batches, "PyTorch " + torch.__version__)


main()
