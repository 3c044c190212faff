"""Random programs, each with a seed of its own, against what they must equal.

    python tests/fuzz [--programs N] [--seed S] [name ...]

runs the fuzzers that are named, or all: `programs`, `derivatives`, `sizes` and `items` compare
compiled models with their tape, `loops` does so where turns become `for` statements, `batches`
compares the rows of many items with the program of one, `objectives` whole graphs with their tapes,
`references` compares while what models refer to changes, `graphs` and `sums` compare places and
grains. It ends with 1 if anything is wrong; `--seed S --programs 1` replays the program of the seed
that is printed.
"""

import argparse
import datetime
import functools
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
for other in ("support", "programs"):
    sys.path.append(str(FOLDER.parent / other))


def main():
    from fuzzers import FUZZERS, run

    parser = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(FUZZERS)}")
    parser.add_argument("--programs", type=int, default=200, help="for each fuzzer; default: 200")
    parser.add_argument("--seed", type=int, help="of the first program; default: today's date")
    args = parser.parse_args()
    if unknown := set(args.names) - set(FUZZERS):
        parser.error(f"no fuzzer is called {', '.join(sorted(unknown))}")
    seed = int(f"{datetime.date.today():%Y%m%d}") if args.seed is None else args.seed
    tell, runs = functools.partial(print, flush=True), []
    for name in args.names or FUZZERS:
        runs.append(run(name, seed, args.programs, tell))
        tell(f"{name}: {args.programs} programs, {runs[-1].seconds:.1f} s")
    tell(f"\n{'fuzzer':12} {'programs':>8} {'seconds':>8} {'wrong':>6}  seed {seed}")
    for name, programs, seconds, wrong, counts in runs:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        tell(f"{name:12} {programs:8} {seconds:8.1f} {len(wrong):6}  {kinds}")
        for each in wrong:
            tell(f"{'':12} python tests/fuzz --seed {each} --programs 1 {name}")
    return any(wrong for _, _, _, wrong, _ in runs)


if __name__ == "__main__":
    sys.exit(main())
