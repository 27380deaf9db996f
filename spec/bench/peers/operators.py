"""PyTorch's side of single operators (../operators/ours.lua has the protocol):

    python3 spec/bench/peers/operators.py THREADS
"""
import math
import os
import sys
import time

import torch
import torch.nn.functional as F

import serve

CLOCK = (time.process_time if os.environ.get("CLOCK") == "cpu"
         else time.perf_counter)
CHUNK = 5e-4
WARM = 0.02
FORWARD = """
def run(count):
    for _ in range(count):
        result = {expression}
    return result
"""
BACKWARD = """
seed = None
def run(count):
    global seed
    for _ in range(count):
        out = {expression}
        if seed is None:
            seed = (torch.arange(out.numel()) % 7 - 3).to(out.dtype)
            seed = seed.view_as(out)
        result = torch.autograd.grad(out, wrt, seed)
    return result
"""


def read(size, path):
    t = {k: torch.from_numpy(v) for k, v in serve.read(path).items()}
    t.update(n=size, s=math.isqrt(size), channels=t["image"].shape[1],
             mask=t["x"] > 0, half=t["x"].half(), brief=t["x"].bfloat16())
    return t


def build(tensors, grads, expression):
    env = dict(tensors, torch=torch, F=F)
    if grads != "-":
        names = grads.split(",")
        for name in names:
            env[name] = tensors[name].detach().requires_grad_()
        env["wrt"] = [env[name] for name in names]
    code = FORWARD if grads == "-" else BACKWARD
    exec(code.format(expression=expression), env)
    return env["run"]


def magnitude(result):
    if isinstance(result, torch.Tensor):
        result = [result]
    return sum(t.detach().double().abs().sum().item() for t in result)


def measure(run, seconds):
    count, t, begin = 1, 0, time.perf_counter()
    while t < CHUNK or time.perf_counter() - begin < WARM:
        if 0 < t < CHUNK:
            count = min(count * 8, math.ceil(CHUNK / t * count))
        start = CLOCK()
        run(count)
        t = CLOCK() - start
    calls, start = 0, CLOCK()
    while True:
        run(count)
        calls += count
        now = CLOCK()
        if now - start >= seconds:
            return (now - start) / calls


def main():
    torch.set_num_threads(int(sys.argv[1]))
    tensors, run = None, None
    print("library PyTorch " + torch.__version__)
    print("ready", flush=True)
    for line in sys.stdin:
        word, rest = line.rstrip("\n").split(" ", 1)
        try:
            if word == "pool":
                size, path = rest.split(" ", 1)
                tensors = read(int(size), path)
                print("read", flush=True)
            elif word == "case":
                run = build(tensors, *rest.split(" ", 1))
                print("sum %.9g" % magnitude(run(1)), flush=True)
            else:
                print("ms %.9g" % (measure(run, float(rest)) * 1e3), flush=True)
        except Exception as e:
            print("failed %s" % str(e).split("\n")[0], flush=True)


main()
