"""Writes what Python's own packages write (numpy, safetensors, onnx):

python spec/expectations/releases/record.py spec/expectations/releases/python
"""
import os
import sys

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)


def at(name):
    return os.path.join(folder, name)


weight = np.arange(6, dtype=np.float32).reshape(3, 2) / 4
labels = np.array([3, -1, 2**53 + 1], dtype=np.int64)

np.save(at("columns.npy"), np.asfortranarray(weight))
np.savez_compressed(at("both.npz"), weight=weight, labels=labels)
save_file(
    {"weight": weight, "labels": labels,
     "half": weight.astype(np.float16), "brain": weight.astype(ml_dtypes.bfloat16)},
    at("both.safetensors"), metadata={"format": "np"})

nodes = [helper.make_node("MatMul", ["x", "weight"], ["product"], "first"),
         helper.make_node("Relu", ["product"], ["y"], "second")]
graph = helper.make_graph(
    nodes, "two nodes",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
    [numpy_helper.from_array(weight, "weight")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
onnx.checker.check_model(model)
onnx.save(model, at("two_nodes.onnx"))
