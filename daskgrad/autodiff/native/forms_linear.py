"""Forms of linear algebra, by LAPACK's functions, and of logarithms of sums."""

from typing import Any

import numpy as np
import scipy.linalg
import scipy.special
from autograd.scipy import special, stats

from daskgrad.autodiff.native.forms_arrays import axes_of
from daskgrad.autodiff.native.forms_entries import density, entry
from daskgrad.autodiff.native.writer import FAILED, TextWriter, Unwritable, Value, form
from daskgrad.autodiff.programs import density_calls, kernels, special_calls
from daskgrad.autodiff.programs.calls import NumpyCall, value_of

entry(stats.norm.logpdf.fun, density_calls.logpdf, is_exact=False)(density)


def require_matrix(call: NumpyCall) -> None:
    kinds = [np.asarray(value_of(arg)) for arg in call.args]
    are_real = all([x.dtype == np.float64 and x.size for x in kinds])
    if not are_real or kinds[0].ndim != 2 or kinds[-1].ndim > 2 or call.kwargs:
        raise Unwritable("linear algebra of other arrays than a matrix of real numbers")
    if kinds[0].shape[0] != kinds[0].shape[1]:
        raise Unwritable("linear algebra of a matrix that is not square")


def columns_of(w: TextWriter, x: Value) -> Value:
    """A copy of a vector or matrix, column by column, as LAPACK has it."""
    steps = x.strides if len(x.shape) == 1 else x.strides[::-1]
    rows = x.shape if len(x.shape) == 1 else x.shape[::-1]
    return w.copied(Value(x.type, rows, x.at, steps))


def as_matrix(columns: Value) -> Value:
    """The vector or matrix of such a copy."""
    return Value(
        columns.type, columns.shape[::-1], columns.at, columns.strides[::-1], None, columns.root
    )


def whole_of(w: TextWriter, n: Any) -> str:
    if not isinstance(n, int):
        raise Unwritable("linear algebra of any length")
    return w.whole(n)


@form(kernels.solved, kernels.inverted, np.linalg.solve, np.linalg.inv)
def solved(w: TextWriter, call: NumpyCall) -> Value:
    require_matrix(call)
    matrix = columns_of(w, w.array(call.args[0]))
    n = matrix.shape[0]
    order, pivots = whole_of(w, n), w.slot("i32", int(n))
    if call.fun in (kernels.inverted, np.linalg.inv):
        columns = w.room("double", (n, n))
        with w.loops((n, n)) as (i, j):
            w.write(columns, (i, j), w.as_type(w.put(f"icmp eq i64 {i}, {j}"), "i1", "double"))
    else:
        columns = columns_of(w, w.array(call.args[1]))
    count = w.whole(int(columns.shape[0]) if len(columns.shape) == 2 else 1)
    w.lapack("dgesv", order, count, matrix.at, order, pivots, columns.at, order)
    return as_matrix(columns)


@form(kernels.factor, np.linalg.cholesky)
def factor(w: TextWriter, call: NumpyCall) -> Value:
    require_matrix(call)
    x, out = w.array(call.args[0]), w.made(call)
    n = x.shape[0]
    order = whole_of(w, n)
    w.copy(x, out)
    w.lapack("dpotrf", w.letter("U"), order, out.at, order)  # of the transposed matrix
    with w.loops((n, n)) as (i, j):
        is_above = w.put(f"icmp slt i64 {i}, {j}")
        w.write(
            out, (i, j), w.put(f"select i1 {is_above}, double 0.0, double {w.read(out, (i, j))}")
        )
    return out


@form(scipy.linalg.solve_triangular)
def solved_by_triangle(w: TextWriter, call: NumpyCall) -> Value:
    names = ("a", "b", "trans", "lower", "unit_diagonal")
    options = dict(zip(names, call.args, strict=False)) | call.kwargs
    a, b, trans = options.pop("a"), options.pop("b"), options.pop("trans", 0)
    is_lower, is_unit = options.pop("lower", False), options.pop("unit_diagonal", False)
    if options.keys() - {"check_finite", "overwrite_b"} or trans not in (0, 1, "N", "T"):
        raise Unwritable("solve_triangular with options")
    require_matrix(NumpyCall(call.fun, (a, b), {}, call.value))
    matrix, columns = columns_of(w, w.array(a)), columns_of(w, w.array(b))
    order = whole_of(w, matrix.shape[0])
    count = w.whole(int(columns.shape[0]) if len(columns.shape) == 2 else 1)
    letters = "L" if is_lower else "U", "N" if trans in (0, "N") else "T", "U" if is_unit else "N"
    w.lapack("dtrtrs", *map(w.letter, letters), order, count, matrix.at, order, columns.at, order)
    return as_matrix(columns)


@form(np.linalg.det, np.linalg.slogdet)
def determinant(w: TextWriter, call: NumpyCall) -> Any:
    require_matrix(call)
    matrix = columns_of(w, w.array(call.args[0]))
    n = matrix.shape[0]
    order, pivots = whole_of(w, n), w.slot("i32", int(n))
    w.lapack("dgetrf", order, order, matrix.at, order, pivots)
    is_log = call.fun is np.linalg.slogdet
    sign, total = w.slot("double"), w.slot("double")
    w.do(f"store double 1.0, ptr {sign}")
    w.do(f"store double 0.0, ptr {total}")
    with w.loop(n) as i:
        entry, old = w.read(matrix, (i, i)), w.put(f"load double, ptr {sign}")
        row = w.put(f"load i32, ptr {w.moved(pivots, i, 'i32')}")
        is_moved = w.put(f"icmp ne i32 {row}, {w.put(f'trunc i64 {w.plus(i, 1)} to i32')}")
        old = w.put(f"select i1 {is_moved}, double {w.put(f'fneg double {old}')}, double {old}")
        if is_log:
            size = w.call("log", w.call("llvm.fabs.f64", entry))
            so_far = w.put(f"load double, ptr {total}")
            w.do(f"store double {w.put(f'fadd double {so_far}, {size}')}, ptr {total}")
            is_low = w.put(f"fcmp olt double {entry}, 0.0")
            new = w.put(f"select i1 {is_low}, double {w.put(f'fneg double {old}')}, double {old}")
        else:
            new = w.put(f"fmul double {old}, {entry}")
        w.do(f"store double {new}, ptr {sign}")
    numbers = [w.in_register("double", w.put(f"load double, ptr {at}")) for at in (sign, total)]
    return tuple(numbers) if is_log else numbers[0]


@form(special_calls.logsumexp, special.logsumexp.fun)
def log_of_sum(w: TextWriter, call: NumpyCall) -> Value:
    """By the formula of programs: one of the largest terms counts as one, so that small sums of all
    others are kept."""
    x, axes, shape = w.array(call.args[0]), axes_of(call), w.shape_of(call)
    kept = [n for n in range(len(x.shape)) if n not in axes]
    out = w.made(call) if shape else w.room("double", ())
    most, count, rest = w.slot("double"), w.slot("double"), w.slot("double")

    def entry_at(index: Any, inner: Any) -> str:
        place = dict(zip([*kept, *axes], [*index, *inner], strict=True))
        return w.entry_as(x, "double", [place[n] for n in range(len(x.shape))])

    def add(slot: str, number: str) -> None:
        old = w.put(f"load double, ptr {slot}")
        w.do(f"store double {w.put(f'fadd double {old}, {number}')}, ptr {slot}")

    with w.loops([x.shape[n] for n in kept]) as index:
        w.do(f"store double 0xFFF0000000000000, ptr {most}")
        for slot in (count, rest):
            w.do(f"store double 0.0, ptr {slot}")
        with w.loops([x.shape[n] for n in axes]) as inner:
            number, old = entry_at(index, inner), w.put(f"load double, ptr {most}")
            is_more = w.put(f"fcmp ule double {old}, {number}")
            larger = w.put(f"select i1 {is_more}, double {number}, double {old}")
            w.do(f"store double {larger}, ptr {most}")
        top = w.put(f"load double, ptr {most}")
        is_finite = w.put(f"fcmp one double {w.call('llvm.fabs.f64', top)}, 0x7FF0000000000000")
        w.mark(FAILED, w.put(f"xor i1 {is_finite}, true"))
        with w.loops([x.shape[n] for n in axes]) as inner:
            number = entry_at(index, inner)
            is_top = w.put(f"fcmp oeq double {number}, {top}")
            part = w.call("exp", w.put(f"fsub double {number}, {top}"))
            add(count, w.as_type(is_top, "i1", "double"))
            add(rest, w.put(f"select i1 {is_top}, double 0.0, double {part}"))
        times = w.put(f"load double, ptr {count}")
        share = w.put(f"fdiv double {w.put(f'load double, ptr {rest}')}, {times}")
        log = w.put(f"fadd double {w.call('log1p', share)}, {w.call('log', times)}")
        full = [index[kept.index(n)] if n in kept else 0 for n in range(len(x.shape))]
        w.write(
            out, full if len(shape) == len(x.shape) else index, w.put(f"fadd double {log}, {top}")
        )
    return w.loaded(out)
