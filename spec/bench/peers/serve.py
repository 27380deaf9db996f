"""What every peer does: reads the weights, trains some steps, then obeys bench.lua
(../one.lua has the protocol)."""
import json
import os
import sys
import time

import numpy as np

# half or bf16: the peer's low precision is bfloat16 for both, which is its best.
LOW = os.environ.get("PRECISION", "") != ""
STEPS = 50 if LOW else 10
# With CLOCK=cpu, the processor's time of all threads.
CLOCK = (time.process_time if os.environ.get("CLOCK") == "cpu"
         else time.perf_counter)
TYPES = {"F32": "<f4", "I64": "<i8", "I32": "<i4"}


def read(path):
    """The arrays of a safetensors file by name: copies, not views of the file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        start, out = file.tell(), {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            first, last = entry["data_offsets"]
            file.seek(start + first)
            dtype = np.dtype(TYPES[entry["dtype"]])
            flat = np.fromfile(file, dtype, (last - first) // dtype.itemsize)
            out[name] = flat.reshape(entry["shape"])
    return out


def forget_peak():
    """The largest resident memory counts from here on."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as refs:
            refs.write("5")
    except OSError:
        pass


def peak_mb():
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024


def measure(call, seconds):
    """The median time of a call."""
    call()  # wakes threads and caches
    times, stop = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < stop:
        t = CLOCK()
        call()
        times.append(CLOCK() - t)
    times.sort()
    return times[(len(times) - 1) // 2]


def serve(step, batches, library, wait=lambda x: x):
    """step(*batch) returns the loss; wait() returns when that is computed."""
    def call():
        for batch in batches:
            loss = step(*batch)
        wait(loss)

    losses, t, first = [], CLOCK(), None
    while len(losses) < STEPS:
        for batch in batches:
            losses.append(float(step(*batch)))
            first = first or CLOCK() - t
    for loss in losses[:STEPS]:
        print("loss %.9g" % loss)
    print("first %.9g" % (first * 1e3))
    print("library " + library)
    print("ready", flush=True)
    for line in sys.stdin:
        seconds = float(line.split()[1])
        print("ms %.9g" % (measure(call, seconds) * 1e3 / len(batches)),
              flush=True)
    print("rss %.1f" % peak_mb())
