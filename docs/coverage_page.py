"""The page ``docs/coverage.md``: which functions of NumPy and SciPy are differentiated.

    python docs/coverage_page.py > docs/coverage.md

It is made of the table that the sweep goes through, so that it tells what is tested. JAX is needed
for the column that tells what its ``jax.numpy`` and ``jax.scipy`` have.
"""

import functools
import importlib
import inspect
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
import scipy.special
import scipy.stats
from autograd.tracer import trace_primitives_map

from daskgrad.autodiff.rules.declaration import without_derivative
from daskgrad.autodiff.rules.twins import TWINS
from daskgrad.autodiff.tape import trace
from daskgrad.scipy import stats

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tests" / "autodiff" / "rules"))

from functions_all import HANDED_ON, TABLE
from sweep import Function, is_array, refusal_calls

MODULES = {  # of plain functions -> autograd's functions, JAX's module
    np: (anp, "jax.numpy"),
    np.linalg: (anp.linalg, "jax.numpy.linalg"),
    np.fft: (anp.fft, "jax.numpy.fft"),
    scipy.special: (None, "jax.scipy.special"),
}


class Row(NamedTuple):
    """A differentiated function, its aliases, and its arguments by what is tested of them."""

    names: list[str]
    differentiated: list[str]
    understood: list[str]
    refused: list[str]

    def line(self, jax: Any) -> str:
        columns = [
            ", ".join([f"`{name}`" for name in self.names]),
            ", ".join(self.differentiated),
            ", ".join(self.understood),
            ", ".join(self.refused),
            "yes" if any(hasattr(jax, name) for name in self.names) else "",
        ]
        return f"| {' | '.join(columns)} |"


def functions_of(module: Any) -> dict[Callable, list[str]]:
    """The public functions of a module with their names; in ``scipy.special`` the ufuncs."""
    is_wanted = is_ufunc if module is scipy.special else is_function
    functions: dict[Callable, list[str]] = {}
    for name in dir(module):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fun = getattr(module, name)
        if not name.startswith("_") and is_wanted(fun):
            functions.setdefault(fun, []).append(name)
    return functions


def is_ufunc(thing: Any) -> bool:
    return isinstance(thing, np.ufunc)


def is_function(thing: Any) -> bool:
    return is_ufunc(thing) or inspect.isroutine(thing)


def entries_of(fun: Callable, names: Sequence[str], traced: Any) -> list[Function]:
    """The entries of the sweep for a plain function."""
    twins = [fun, *[getattr(traced, name, None) for name in names]]
    twins += [HANDED_ON.get(twin) for twin in twins]
    twins.append(trace_primitives_map.get(fun))
    return [entry for entry in TABLE if any(entry.fun is twin for twin in twins)]


def row_of(names: list[str], entries: list[Function]) -> Row:
    named = [pair for entry in entries for args in entry.inputs for pair in entry.named(args)]
    differentiated = list(dict.fromkeys([n for n, arg in named if is_array(arg)]))
    understood = [n for entry in entries for n in entry.parameters if n not in differentiated]
    known = {*differentiated, *understood}
    refused = [n for entry in entries for n in entry.refused if n not in known]
    return Row(names, differentiated, list(dict.fromkeys(understood)), list(dict.fromkeys(refused)))


def is_constant(names: Sequence[str], traced: Any) -> bool:
    twins = [getattr(traced, name, None) for name in names]
    return any(twin in without_derivative() for twin in twins)


def page() -> str:
    lines, count = [], 0
    refused: list[tuple[str, str]] = []
    for module, (traced, jax_name) in MODULES.items():
        functions = functions_of(module)
        found = {fun: entries_of(fun, names, traced) for fun, names in functions.items()}
        every = [row_of(functions[fun], entries) for fun, entries in found.items() if entries]
        rows = [row for row in every if row.differentiated]
        count += len(rows)
        refused += [
            (f"{module.__name__}.{names[0]}", told)
            for fun, names in functions.items()
            if (told := refusal_of(fun, found[fun]))
        ]
        jax = importlib.import_module(jax_name)
        lines += [f"\n## `{module.__name__}`\n", *HEAD, *[row.line(jax) for row in rows]]
        rest = [functions[fun] for fun in functions if not (found[fun] or fun in SPOKEN)]
        constant = [names[0] for names in rest if is_constant(names, traced)]
        others = {names[0] for names in rest} - {*constant, *NOTHING}
        lines += listed("Constant between their jumps, with the derivative zero", constant)
        lines += listed("Without a rule of their own", others)
    for name in OURS:
        lines += section_of(name)
    lines += section_of_distributions()
    lines += REFUSED + [f"| `{name}` | {told} |" for name, told in refused]
    return "\n".join([INTRO.format(count=count, refused=len(refused)), *lines])


OURS = tuple("linalg special integrate interpolate optimize signal sparse sparse.linalg".split())
METHODS = tuple("logpdf pdf logpmf pmf cdf sf logcdf logsf ppf".split())


def section_of(name: str) -> list[str]:
    """The functions and classes of a module of ours, with the arguments that they take."""
    ours, scipys = (
        importlib.import_module(f"{root}.{name}") for root in ("daskgrad.scipy", "scipy")
    )
    lines = [f"\n## `daskgrad.scipy.{name}`\n", *HEAD_OF_OURS]
    for each in sorted(vars(ours)):
        own, twin = getattr(ours, each), getattr(scipys, each, None)
        if callable(own) and callable(twin) and not each.startswith("_"):
            taken, theirs = arguments_of(own), arguments_of(twin)
            left_out = [argument for argument in theirs if argument not in taken]
            lines.append(f"| `{each}` | {', '.join(taken)} | {', '.join(left_out)} |")
    return lines


def arguments_of(fun: Callable) -> list[str]:
    """The names of the arguments; "..." stands for those that are passed on."""
    variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    parameters = inspect.signature(getattr(fun, "fun", fun)).parameters.values()
    return ["..." if each.kind in variadic else each.name for each in parameters]


def section_of_distributions() -> list[str]:
    lines = ["\n## `daskgrad.scipy.stats`\n", *HEAD_OF_DISTRIBUTIONS]
    for name, own in sorted(vars(stats).items()):
        theirs = getattr(scipy.stats, name, None)
        if name.startswith("_") or theirs is None:
            continue
        methods = [method for method in METHODS if hasattr(theirs, method)]
        taken = [method for method in methods if is_there(own, method)]
        others = [method for method in methods if method not in taken]
        if taken:
            lines.append(f"| `{name}` | {', '.join(taken)} | {', '.join(others)} |")
    return lines


def is_there(distribution: Any, method: str) -> bool:
    """Whether a method has an expression, of its own or by another one."""
    own: Any = getattr(distribution, "_functions", None)
    if own is None:
        return hasattr(distribution, method)
    return hasattr(distribution, method) and any(
        name in own for name in (method, method.removeprefix("log"), f"log{method}")
    )


def refusal_of(fun: Callable, entries: Sequence[Function]) -> str:
    """What a function says that has no derivative at all; nothing if it has one."""
    if fun in IN_PLACE:
        calls = [TWINS[fun]]
    elif entries and not row_of([], entries).differentiated:
        refused = [call for entry in entries for _, call in refusal_calls(entry)]
        calls = [functools.partial(trace, call, call.arrays("d")) for call in refused]
    else:
        return UNASKED.get(fun, "")
    try:
        calls[0]()
    except (NotImplementedError, TypeError) as error:
        return str(error)
    raise AssertionError(f"{fun} is not refused")


IN_PLACE = (np.put, np.place, np.putmask, np.copyto, np.put_along_axis, np.fill_diagonal)
UNASKED = {  # functions that do not ask their arguments, and refuse what is traced
    np.arange: "np.arange takes no traced values; write start + step * np.arange(count)",
}
SPOKEN = {*IN_PLACE, *UNASKED}
NOTHING = frozenset(  # functions of shapes, dtypes, integers, files and text
    """
    array2string array_repr array_str asarray asanyarray ascontiguousarray asfortranarray
    asarray_chkfinite asmatrix base_repr binary_repr bitwise_and bitwise_count bitwise_invert
    bitwise_left_shift bitwise_right_shift bitwise_or bitwise_xor bitwise_not bmat
    broadcast_shapes busday_count busday_offset can_cast common_type datetime_as_string
    datetime_data diag_indices diag_indices_from einsum_path empty eye fromfunction
    format_float_positional format_float_scientific from_dlpack frombuffer fromfile fromiter
    frompyfunc fromregex fromstring gcd genfromtxt get_include get_printoptions getbufsize geterr
    geterrcall hamming hanning bartlett blackman identity indices info invert is_busday isdtype
    isfortran isnat isrealobj issubdtype iscomplexobj isscalar iterable ix_ lcm left_shift load
    loadtxt mask_indices may_share_memory min_scalar_type mintypecode ndim nested_iters ones
    packbits printoptions promote_types ravel_multi_index require result_type right_shift save
    savetxt savez savez_compressed set_printoptions setbufsize seterr seterrcall shape
    shares_memory show_config show_runtime size tri tril_indices tril_indices_from
    triu_indices triu_indices_from typename unpackbits unravel_index zeros
    """.split()
)
HEAD = [
    "| function | differentiated in | also understood | refused | in JAX |",
    "| --- | --- | --- | --- | --- |",
]


HEAD_OF_OURS = ["| function | arguments | of SciPy's, not taken |", "| --- | --- | --- |"]
HEAD_OF_DISTRIBUTIONS = [
    "By the variable and by all parameters, `loc` and `scale` included.\n",
    "| distribution | methods | of SciPy's, refused |",
    "| --- | --- | --- |",
]

REFUSED = [
    "\n## Refused\n",
    "What has no derivative, or none that is written, and what the error says.\n",
    "| function | instead |",
    "| --- | --- |",
]

INTRO = """# Coverage

{count} functions of NumPy and SciPy are differentiated: in models in plain NumPy, in both modes,
in all orders where they are smooth; {refused} are refused. The page is made of the table that
the tests go through: each argument here is compared with differences, to nine digits, and both
modes with each other, to twelve; or its refusal is seen (`test_functions.py`). What is refused
raises an error that says what to write instead; so does an argument that is not named. Of a
function without a rule NumPy's own code runs, whose parts may have one, or an error tells that
there is none. A function of `daskgrad.scipy` honours every argument that it takes; its numbers are
differentiated, also those of functions that it is given (`tests/scipy_functions`).

## Where a derivative jumps

Both modes, compiled models and batches choose alike (`TIES` in `test_functions.py`). Second \
derivatives there are finite, or
NaN with a warning, or an error.

| functions | where | derivative |
| --- | --- | --- |
| `abs`, `fabs`, `linalg.norm` with `ord` of at least one, `hypot`, `std`, `nanstd` | at zero,\
 where they are least | zero, the smallest of the subgradients |
| `maximum`, `minimum`, `fmax`, `fmin`, `clip` | where both are equal, at a bound | a half for\
 each |
| `max`, `min`, `ptp`, `nanmax`, `nanmin`, `linalg.norm` with `ord=np.inf` | where several are\
 extreme | equal parts |
| `sort`, `partition`, `median`, `quantile` by the entries | equal entries | goes to the entry\
 that is put there; a stable sort tells which |
| `interp`, `quantile`, `percentile` by `q` | at a knot, on an entry | of the segment on the \
right; at the last one, on the left |
| `where`, `select`, `heaviside`, `sign`, `floor`, `round`, `mod` | at a jump | of the part \
that is chosen; a jump adds nothing |
| `linalg.eigvalsh`, `eigvals`, `svdvals` | equal eigenvalues | of the vectors that LAPACK \
chose; second derivatives are an error |
| `sqrt`, `log`, powers between zero and one | at zero | infinite, and NaN in composites, with\
 NumPy's warning: write `np.linalg.norm(x)`, not `np.sqrt(np.sum(x**2))` |"""


def listed(title: str, names: Iterable[str]) -> list[str]:
    return ["", f"{title}: {', '.join([f'`{name}`' for name in sorted(names)])}."] if names else []


if __name__ == "__main__":
    print(page())
