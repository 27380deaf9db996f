"""One timed run of one workload by a peer, in a process of its own:

    python3 spec/bench/peers.py PEER WORKLOAD THREADS SECONDS

Models, data, weights and what is printed are those of workloads.lua and
one.lua. Peers: eager (PyTorch, as a script without compilation runs it).
"""
import math
import sys
import time

import torch
from torch import nn

P = 4294967291
STEPS = 10


def hashed(n, salt):
    i = torch.arange(n, dtype=torch.int64)
    return ((i * i % P) * 48271 + i * 69621 + salt * 7919) % P


def fill(x, salt, scale):
    h = hashed(x.numel(), salt).double() / P * 2 - 1
    with torch.no_grad():
        x.copy_((h * scale).view(x.shape))


def initialise(model):
    bound = None
    for salt, (name, p) in enumerate(model.named_parameters(), 1):
        if p.dim() > 1:
            bound = 1 / math.sqrt(p.numel() // p.shape[0])
        elif not name.endswith("bias"):
            bound = None
        if bound:
            fill(p, salt, bound)


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


def sgd(params):
    return torch.optim.SGD(params, lr=0.01)


def adam(params):
    return torch.optim.Adam(params, lr=1e-3)


class Workload:
    def __init__(self, batch, row, model, optimizer, classes=None, target=None,
                 loss=nn.CrossEntropyLoss, iterations=1):
        self.batch, self.row, self.iterations = batch, row, iterations
        self.model, self.optimizer, self.loss = model, optimizer, loss
        self.classes, self.target = classes, target

    def data(self):
        rows = self.batch * self.iterations
        x = torch.empty(rows, *self.row)
        fill(x, 1001, 1)
        if self.classes:
            y = hashed(rows, 1002) % self.classes
        else:
            y = torch.empty(rows, *self.target)
            fill(y, 1002, 1)
        return list(zip(x.split(self.batch), y.split(self.batch)))


WORKLOADS = {
    "demo": Workload(192, (1, 28, 28), demo, adam, classes=10, iterations=2),
    "linreg": Workload(10, (10,), lambda: nn.Linear(10, 10), sgd,
                       target=(10,), loss=nn.MSELoss, iterations=100),
    "mlp64-sgd": Workload(64, (784,), mlp, sgd, classes=10),
    "mlp64-adam": Workload(64, (784,), mlp, adam, classes=10),
    "mlp256-sgd": Workload(256, (784,), mlp, sgd, classes=10),
    "mlp256-adam": Workload(256, (784,), mlp, adam, classes=10),
    "cnn": Workload(64, (1, 28, 28), cnn, adam, classes=10),
    "cnn-inference": Workload(64, (1, 28, 28), cnn, None, classes=10),
}


def eager(w):
    """One step of the workload: (x, y) -> loss."""
    model, loss_of = w.model(), w.loss()
    initialise(model)
    if not w.optimizer:
        model.eval()

        def infer(x, y):
            with torch.inference_mode():
                return loss_of(model(x), y)
        return infer
    optimizer = w.optimizer(model.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return step


PEERS = {"eager": eager}


def resident_mb():
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024


def main(peer, name, threads, seconds):
    torch.set_num_threads(int(threads))
    seconds = float(seconds)
    w = WORKLOADS[name]
    step, batches = PEERS[peer](w), w.data()
    clock = time.perf_counter
    losses = []
    while len(losses) < STEPS:
        for x, y in batches:
            losses.append(step(x, y).item())
    stop = clock() + seconds / 3
    while clock() < stop:
        for x, y in batches:
            step(x, y)
    times = []
    stop = clock() + seconds
    while clock() < stop or len(times) < STEPS:
        t = clock()
        for x, y in batches:
            step(x, y)
        times.append((clock() - t) / len(batches))
    for loss in losses[:STEPS]:
        print("loss %.9g" % loss)
    times.sort()
    print("ms %.9g" % (times[(len(times) - 1) // 2] * 1e3))
    print("rss %.1f" % resident_mb())
    print("library PyTorch " + torch.__version__)


main(*sys.argv[1:])
