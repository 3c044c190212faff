"""Evaluates a peer's program when lines of JSON ask: ``serving.py FOLDER/WORK.py``."""

import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path

import data
import numpy as np


def flat(gradient):
    """Arrays in tuples and lists as one list of numbers."""
    if isinstance(gradient, tuple | list):
        return [number for each in gradient for number in flat(each)]
    return np.asarray(gradient, dtype=float).ravel().tolist()


def measured(fun, points):
    began = time.perf_counter(), time.process_time()
    for x in points:
        value, gradient = fun(x)
        value = float(value)  # some libraries wait until they are asked
    seconds, processor = time.perf_counter() - began[0], time.process_time() - began[1]
    answer = {"seconds": seconds, "processor": processor}
    return {**answer, "value": value, "gradient": flat(gradient)}


def serve(path, sizes):
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print
    sys.path.insert(0, str(path.parent))
    given, point = getattr(data, path.stem[:2])(*sizes)
    programs = importlib.import_module(path.stem).set_up(*given)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    ready = {"names": list(programs), "processor": sum(os.times()[:4]), "peak of ended": ended}
    print(json.dumps(ready), file=answers)
    random = np.random.default_rng(5)
    for line in sys.stdin:
        name, calls = json.loads(line)
        points = [point * (1 + 1e-4 * random.normal(size=point.size)) for _ in range(calls)]
        print(json.dumps(measured(programs[name], points or [point])), file=answers)


if __name__ == "__main__":
    program = Path(sys.argv[1])
    serve(program, data.QUICK[program.stem[:2]] if "--quick" in sys.argv else ())
