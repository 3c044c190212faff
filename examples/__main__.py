"""Runs all examples, one after the other: a line for each as it goes, and a table at the end.

python examples            # in short
python examples --whole    # as each is by itself

The exit code is 1 if one failed. One whose libraries are not installed is left out, and says so.
"""

import argparse
import importlib.util
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
EXAMPLES = {  # name -> its options in short, and libraries beyond those of the extra "examples"
    "schools": (["--schools", "200"], []),
    "external_solver": (["--cells", "24", "--cases", "12"], []),
    "newton": ([], []),
    "pharmacokinetics": (["--quick"], ["nutpie"]),
    "certified_fits": (["--quick"], []),
    "words": (["--quick"], []),
    "slide": (["--quick"], []),
    "waveform": (["--quick"], []),
    "heat": (["--quick"], []),
    "regression_dask": (["--quick"], []),
    "secure_cluster": ([], []),
    "four_libraries": (["--quick"], ["jax", "torch"]),
    "posterior": (["--quick"], ["nutpie", "pymc"]),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--whole", action="store_true", help="not in short")
    is_whole = parser.parse_args().whole
    rows = []
    for name, (options, libraries) in EXAMPLES.items():
        missing = [library for library in libraries if not importlib.util.find_spec(library)]
        rows.append(run(name, [] if is_whole else options) if not missing else (name, missing, 0))
    print(f"\n{'example':18}{'seconds':>8}")
    for name, outcome, seconds in rows:
        print(f"{name:18}{seconds:8.0f}  {outcome_text(outcome)}")
    return any(outcome is False for _, outcome, _ in rows)


def run(name, options):
    """Runs one; prints the last line of what it printed, or all of it if it failed."""
    print(f"{name}: ", end="", flush=True)
    begin = time.monotonic()
    command = [sys.executable, FOLDER / f"{name}.py", *options]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    seconds = time.monotonic() - begin
    lines = ended.stdout.strip().splitlines() or [""]
    print("\n".join(lines if ended.returncode else lines[-1:]), flush=True)
    return name, ended.returncode == 0, seconds


def outcome_text(outcome):
    if isinstance(outcome, list):
        return f"left out: needs {', '.join(outcome)}"
    return "right" if outcome else "failed"


if __name__ == "__main__":
    sys.exit(main())
