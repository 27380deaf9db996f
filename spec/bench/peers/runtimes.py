"""Inference by ONNX Runtime or OpenVINO, in a process of its own (../one.lua):

    python3 spec/bench/peers/runtimes.py WORKLOAD THREADS FILE WAY

PyTorch writes the network as an ONNX file beside FILE, without which the process
then runs. WAY: onnxruntime, openvino; both in float32.
"""
import os
import subprocess
import sys

NAME, THREADS, FILE, WAY = sys.argv[1:5]
MODEL = FILE + ".onnx"


def export():
    import torch

    import more
    import networks
    import serve
    _, make, _ = {**networks.WORKLOADS, **more.WORKLOADS}[NAME]
    networks.Attention.fused = True
    model, data = networks.load(make, serve.read(FILE))
    torch.onnx.export(model.eval(), tuple(data[:-1]), MODEL, dynamo=True,
                      optimize=True, external_data=False)


def onnxruntime():
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(THREADS)
    session = ort.InferenceSession(MODEL, options,
                                   providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    return (lambda *inputs: session.run(None, dict(zip(names, inputs)))[0],
            "ONNX Runtime " + ort.__version__)


def openvino():
    import openvino as ov
    compiled = ov.compile_model(MODEL, "CPU", {
        "INFERENCE_NUM_THREADS": int(THREADS), "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32"})
    return (lambda *inputs: next(iter(compiled(list(inputs)).values())),
            "OpenVINO " + ov.__version__.split("-")[0])


def cross_entropy(y, target):
    import numpy as np
    target = target.flatten()
    y = y - y.max(-1, keepdims=True)
    logs = np.log(np.exp(y).sum(-1)) - y[np.arange(len(y)), target]
    return logs.mean()


def main():
    if len(sys.argv) > 5:
        return export()
    subprocess.run([sys.executable, *sys.argv, "export"], check=True,
                   stdout=subprocess.DEVNULL)
    import serve
    arrays = serve.read(FILE)
    inputs = [a for n, a in arrays.items() if n.startswith("input")]
    target = arrays["target"]
    del arrays
    run, library = onnxruntime() if WAY == "onnxruntime" else openvino()
    os.remove(MODEL)
    serve.forget_peak()
    serve.serve(lambda: cross_entropy(run(*inputs), target), [()], library)


main()
