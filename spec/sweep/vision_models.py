"""Compares lupine's torchvision.models with torchvision's, by random weights.

    python spec/sweep/vision_models.py [--facts FILE] [NAME ...]

needs torch, torchvision and safetensors, and lupine built (LUPINE, default
build/lupine). For each case it makes the model with torchvision, gives it random
weights and statistics, writes them with an input to a safetensors file, and has
spec/sweep/vision_models.lua build the same model with `weights = FILE`: keys and
shapes must be equal, results (and, where asked, the gradients of a training step)
near. --facts writes what spec/torchvision/models_spec.lua knows of each model.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import torch
import torchvision
from safetensors.torch import save_file

SIZE = {"vit_h_14": 70, "inception": 96}
VARIANTS = [
    ("resnet18", {"num_classes": 7, "zero_init_residual": True}),
    ("resnet50", {"replace_stride_with_dilation": [False, True, True]}),
    ("resnet50", {"groups": 2, "width_per_group": 32}),
    ("vgg11_bn", {"num_classes": 3, "dropout": 0.1}),
    ("mobilenet_v2", {"width_mult": 0.35, "num_classes": 5}),
    ("mobilenet_v2", {"width_mult": 1.4, "round_nearest": 4}),
    ("mobilenet_v3_small", {"width_mult": 0.75, "reduced_tail": True}),
    ("mobilenet_v3_large", {"dilated": True, "num_classes": 9}),
    ("mobilenet_v3_large", {"reduced_tail": True, "width_mult": 1.25}),
    ("efficientnet_b0", {"num_classes": 3, "stochastic_depth_prob": 0.0}),
    ("convnext_tiny", {"num_classes": 4, "layer_scale": 0.5}),
    ("vit_b_32", {"num_classes": 4, "representation_size": 24}),
]
# Compared in float64: a step of training, and what is so deep that float32 says little.
TRAINED = {"resnet18", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0"}
DEEP = {"efficientnet_v2_l"}


def randomise(model):
    generator = torch.Generator().manual_seed(1)
    for name, t in model.state_dict().items():
        if t.dtype != torch.float32:
            continue
        noise = torch.randn(t.shape, generator=generator)
        if name.endswith("running_var"):
            t.copy_(1 + 0.3 * noise.abs())
        elif "layer_scale" in name:
            t.copy_(0.5 + 0.1 * noise)
        elif t.dim() >= 2:
            t.copy_(noise * (1.6 / (t.numel() / t.shape[0])) ** 0.5)
        else:
            t.copy_(0.1 * noise + (1.0 if name.endswith("weight") else 0.0))


def build(name, kwargs):
    size = SIZE.get(name, 64)
    if name.startswith("vit"):
        kwargs = dict(kwargs, image_size=size)
    return torchvision.models.get_model(name, weights=None, **kwargs), size, kwargs


def check(name, kwargs, folder):
    model, size, kwargs = build(name, kwargs)
    with torch.no_grad():
        randomise(model)
    model.eval()
    path = os.path.join(folder, "weights.safetensors")
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, path)
    double = name in DEEP or name in TRAINED and not kwargs
    x = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(2))
    if double:
        model, x = model.double(), x.double()
    facts = {"x": x}
    with torch.no_grad():
        facts["y"] = model(x)
    if name in TRAINED and not kwargs:
        for m in model.modules():
            if isinstance(m, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
                m.p = 0.0
        model.train()
        loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([1, 2]))
        loss.backward()
        facts["loss"] = loss.detach()
        for key, p in model.named_parameters():
            facts["grad." + key] = p.grad
        for key, b in model.named_buffers():
            facts["buffer." + key] = b
    save_file({k: v.contiguous() for k, v in facts.items()}, os.path.join(folder, "facts.safetensors"))
    with open(os.path.join(folder, "case.json"), "w") as f:
        json.dump({"name": name, "kwargs": kwargs, "double": double, "keys": list(model.state_dict())}, f)
    lupine = os.environ.get("LUPINE", "build/lupine")
    return subprocess.run([lupine, "spec/sweep/vision_models.lua", folder]).returncode == 0


def fnv(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return "%016x" % h


def facts(names):
    out = {}
    for name in names:
        with torch.device("meta"):
            model = torchvision.models.get_model(name, weights=None)
        lines = ["%s %s\n" % (k, "x".join(map(str, v.shape))) for k, v in model.state_dict().items()]
        out[name] = {
            "entries": len(lines),
            "parameters": sum(p.numel() for p in model.parameters()),
            "hash": fnv("".join(lines)),
        }
    return out


FAMILIES = ("resnet", "resnext", "wide_resnet", "vgg", "mobilenet", "efficientnet", "convnext", "vit_")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--facts")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    every = [n for n in torchvision.models.list_models(module=torchvision.models) if n.startswith(FAMILIES)]
    if args.facts:
        with open(args.facts, "w") as f:
            rows = ",\n".join("%s: %s" % (json.dumps(k), json.dumps(v)) for k, v in facts(every).items())
            f.write("{\n" + rows + "\n}\n")
        return 0
    cases = [(n, {}) for n in every] + VARIANTS
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, kwargs in cases:
            if not args.names or name in args.names:
                failed += not check(name, kwargs, folder)
    print("%d failed" % failed)
    return 1 if failed else 0


sys.exit(main())
