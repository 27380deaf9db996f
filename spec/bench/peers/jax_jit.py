"""JAX's side of one workload, in a process of its own (../one.lua):

    python3 spec/bench/peers/jax_jit.py WORKLOAD THREADS FILE

A step is one jitted function with donated buffers. The parameters are a flat
dictionary by the names that PyTorch's state_dict has. In low precision the
network computes in bfloat16, the loss and the optimizer in float32.
"""
import os
import sys

NAME, THREADS, FILE = sys.argv[1:]
# XLA makes as many threads as there are processors that it may use.
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(THREADS)])
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

import serve  # noqa: E402


def linear(p, name, x):
    y = x @ p[name + ".weight"].T
    return y + p[name + ".bias"] if name + ".bias" in p else y


def conv(p, name, x):
    y = lax.conv_general_dilated(x, p[name + ".weight"], (1, 1), "VALID",
                                 dimension_numbers=("NCHW", "OIHW", "NCHW"))
    return y + p[name + ".bias"][:, None, None]


def norm(p, name, x):
    x = x - x.mean(-1, keepdims=True)
    x = x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return x * p[name + ".weight"] + p[name + ".bias"]


def linreg(p, x):
    return x @ p["weight"].T + p["bias"]


def mlp(p, x):
    return linear(p, "4", jax.nn.relu(linear(p, "2", jax.nn.relu(
        linear(p, "0", x)))))


def cnn(p, x):
    x = jax.nn.relu(conv(p, "2", jax.nn.relu(conv(p, "0", x))))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2),
                          "VALID")
    x = jax.nn.relu(linear(p, "6", x.reshape(x.shape[0], -1)))
    return linear(p, "8", x)


def lstm(p, ids):
    x = p["embedding.weight"][ids]
    x = (x @ p["lstm.weight_ih_l0"].T + p["lstm.bias_ih_l0"]
         + p["lstm.bias_hh_l0"])
    hidden = p["lstm.weight_hh_l0"].T

    def cell(state, gates):
        h, c = state
        i, f, g, o = jnp.split(gates + h @ hidden, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h
    zero = jnp.zeros((ids.shape[0], hidden.shape[0]), hidden.dtype)
    _, y = lax.scan(cell, (zero, zero), x.swapaxes(0, 1))
    y = linear(p, "head", y.swapaxes(0, 1))
    return y.reshape(-1, y.shape[-1])


def gpt(heads):
    def attend(x, q, k, v):
        b, t, d = x.shape
        q, k, v = (y.reshape(b, t, heads, d // heads).swapaxes(1, 2)
                   for y in (q, k, v))
        score = q @ k.swapaxes(-2, -1) * (d // heads) ** -0.5
        seen = jnp.tril(jnp.ones((t, t), bool))
        y = jax.nn.softmax(jnp.where(seen, score, -jnp.inf), -1) @ v
        return y.swapaxes(1, 2).reshape(b, t, d)

    def forward(p, ids):
        x = p["token.weight"][ids] + p["position.weight"]
        n = 0
        while "layers.%d.qkv.weight" % n in p:
            at = "layers.%d." % n
            qkv = linear(p, at + "qkv", norm(p, at + "norm1", x))
            x = x + linear(p, at + "proj", attend(x, *jnp.split(qkv, 3, -1)))
            y = linear(p, at + "mlp.0", norm(p, at + "norm2", x))
            x = x + linear(p, at + "mlp.2", jax.nn.gelu(y, approximate=False))
            n += 1
        x = linear(p, "head", norm(p, "norm", x))
        return x.reshape(-1, x.shape[-1])
    return forward


def cross_entropy(out, labels):
    log = jax.nn.log_softmax(out, -1)
    return -jnp.take_along_axis(log, labels.reshape(-1, 1), -1).mean()


def mean_square(out, target):
    return ((out - target) ** 2).mean()


def sgd(p, state, grads):
    return jax.tree.map(lambda w, g: w - 0.01 * g, p, grads), state


def adam(decay):
    def update(p, state, grads):
        m, v, n = state
        n = n + 1
        m = jax.tree.map(lambda a, g: a + 0.1 * (g - a), m, grads)
        v = jax.tree.map(lambda a, g: 0.999 * a + 0.001 * g * g, v, grads)
        rate = 1e-3 / (1 - 0.9 ** n)
        root = jnp.sqrt(1 - 0.999 ** n)

        def one(w, a, b):
            return w * (1 - 1e-3 * decay) - rate * a / (
                jnp.sqrt(b) / root + 1e-8)
        return jax.tree.map(one, p, m, v), (m, v, n)
    return update


ADAM = adam(0.0)
# name: (rows a step, the network, the optimizer or none, the loss)
WORKLOADS = {
    "linreg": (10, linreg, sgd, mean_square),
    "mlp64-sgd": (64, mlp, sgd, cross_entropy),
    "mlp64-adam": (64, mlp, ADAM, cross_entropy),
    "mlp256-sgd": (256, mlp, sgd, cross_entropy),
    "mlp256-adam": (256, mlp, ADAM, cross_entropy),
    "cnn": (64, cnn, ADAM, cross_entropy),
    "lstm": (32, lstm, ADAM, cross_entropy),
    "gpt-s": (16, gpt(4), adam(0.01), cross_entropy),
    "gpt-l": (8, gpt(6), adam(0.01), cross_entropy),
    "cnn-inference": (64, cnn, None, cross_entropy),
}


def main():
    rows, network, optimizer, loss_of = WORKLOADS[NAME]
    arrays = {k: jnp.asarray(v) for k, v in serve.read(FILE).items()}
    x, y = arrays.pop("input"), arrays.pop("target")
    serve.forget_peak()
    zeros = jax.tree.map(jnp.zeros_like, arrays)
    state = (zeros, jax.tree.map(jnp.zeros_like, arrays), jnp.float32(0))

    def cast(v):
        low = serve.LOW and v.dtype == jnp.float32
        return v.astype(jnp.bfloat16) if low else v

    def whole(p, x, y):
        out = network(jax.tree.map(cast, p), cast(x))
        return loss_of(out.astype(jnp.float32), y)

    def update(p, state, x, y):
        loss, grads = jax.value_and_grad(whole)(p, x, y)
        return *optimizer(p, state, grads), loss

    if optimizer:
        compiled = jax.jit(update, donate_argnums=(0, 1))
        if optimizer is sgd:
            state = ()
    else:
        infer = jax.jit(whole)
    held = [arrays, state]

    def step(x, y):
        if not optimizer:
            return infer(held[0], x, y)
        *held[:], loss = compiled(*held, x, y)
        return loss
    batches = [(x[i:i + rows], y[i:i + rows]) for i in range(0, len(x), rows)]
    serve.serve(step, batches, "JAX " + jax.__version__,
                lambda loss: loss.block_until_ready())


main()
