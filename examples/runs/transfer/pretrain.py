"""Writes pretrained.safetensors, with PyTorch: a small CNN that tells six kinds of clothes
apart. transfer.lua reads the file; it is in the tree, so that this has to be run by nobody."""
import gzip
import sys

import torch
from safetensors.torch import save_file
from torch import nn

CLOTHES = [0, 1, 2, 3, 4, 6]  # T-shirt, trouser, pullover, dress, coat, shirt


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        layers, width = [], 1
        for to in (8, 16, 32):
            layers += [nn.Conv2d(width, to, 3, padding=1, bias=False), nn.BatchNorm2d(to),
                       nn.ReLU(), nn.MaxPool2d(2)]
            width = to
        self.features = nn.Sequential(*layers)
        self.fc = nn.Linear(width * 9, classes)

    def forward(self, x):
        return self.fc(self.features(x).flatten(1))


def read(folder, part):
    with gzip.open(f"{folder}/{part}-images-idx3-ubyte.gz") as f:
        x = torch.frombuffer(bytearray(f.read()[16:]), dtype=torch.uint8)
    with gzip.open(f"{folder}/{part}-labels-idx1-ubyte.gz") as f:
        y = torch.frombuffer(bytearray(f.read()[8:]), dtype=torch.uint8).long()
    x = (x.reshape(-1, 1, 28, 28).float() / 255 - 0.286) / 0.353
    place = torch.full((10,), -1)
    place[torch.tensor(CLOTHES)] = torch.arange(len(CLOTHES))
    return x[place[y] >= 0], place[y][place[y] >= 0]


def main(folder):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    net = Net(len(CLOTHES))
    x, y = read(folder, "train")
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for epoch in range(2):
        net.train()
        for rows in torch.randperm(len(x)).split(100):
            loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    net.eval()
    x, y = read(folder, "t10k")
    with torch.no_grad():
        print("accuracy", (net(x).argmax(1) == y).float().mean().item())
    save_file(net.state_dict(), "pretrained.safetensors")


main(sys.argv[1])
