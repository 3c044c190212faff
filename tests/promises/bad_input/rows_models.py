"""Rows of the table of bad input: models and rules of your own; see ``test_bad_input``."""

import autograd.numpy as anp
import dask
import dask.array as da
import dask.bag as db
import numpy as np
from inputs import (
    BROADCAST,
    DEEP,
    HOLDS,
    ITSELF,
    MANY,
    MASKED,
    NESTED,
    NO_NUMBERS,
    ONCE,
    SPARSE,
    Unregistered,
    V,
    X,
    energy,
    gradient,
    identity,
    named,
    node_of,
    root,
    ruled,
    used_up,
    waiting,
    with_constant,
    yielding,
)

import daskgrad as dg


def under(policy):
    with dask.config.set({"daskgrad.pullbacks": policy}):
        return dg.grad(energy)(X)


ROWS = {
    # ------------------------------------------------------------------------------ policies
    ("PullbackPolicy", "itself", "a word in the configuration"): (
        lambda: under("ship"),
        TypeError,
        "'daskgrad.pullbacks' must be a dg.PullbackPolicy; found 'ship'",
    ),
    ("PullbackPolicy", "itself", "the class in the configuration"): (
        lambda: under(dg.PullbackPolicy),
        TypeError,
        "must be a dg.PullbackPolicy; found <class",
    ),
    # -------------------------------------------------------------------------------- models
    ("delayed", "gradient", "with compile=True"): (
        lambda: dg.delayed(np.sum, gradient=True, compile=True),
        ValueError,
        "returns its own gradient.*found compile=True: leave one of them out",
    ),
    ("delayed", "gradient", "a function that returns a number"): (
        lambda: dg.grad(dg.delayed(np.sum, gradient=True))(X),
        TypeError,
        r"model 'sum' brings its own gradient .*pair \(value, gradient\); found",
    ),
    ("delayed", "fun", "a number"): (lambda: dg.delayed(3), TypeError, "model of a function; .* 3"),
    ("delayed", "fun", "a Delayed"): (
        lambda: dg.delayed(dask.delayed(len)),
        TypeError,
        "makes a model of a function; found Delayed",
    ),
    ("delayed", "fun", "async"): (lambda: dg.delayed(waiting), TypeError, "'waiting' is async"),
    ("delayed", "fun", "a generator function"): (
        lambda: dg.delayed(yielding),
        TypeError,
        "'yielding' is async or yields: wrap it",
    ),
    ("delayed", "fun", "too few arguments"): (
        gradient(lambda x, y: x),
        TypeError,
        r"missing 1 required.*pass of model 'model', called with \(float64\[3\]\)",
    ),
    ("delayed", "fun", "too many arguments"): (
        gradient(lambda: 1.0),
        TypeError,
        "takes 0 positional arguments.*pass of model 'model'",
    ),
    ("delayed", "fun", "an unknown keyword"): (
        lambda: dg.grad(lambda x: node_of(lambda x: x)(x, y=1))(X),
        TypeError,
        r"unexpected keyword.*model 'model', called with \(float64\[3\], y=1\)",
    ),
    ("delayed", "fun", "a class"): (
        gradient(Unregistered),
        TypeError,
        NO_NUMBERS.format("Unregistered"),
    ),
    ("delayed", "name", "bytes"): (
        lambda: dg.delayed(len, name=b"a"),
        TypeError,
        "name of a model must be a string; found bytes",
    ),
    ("delayed", "compile", "of another backend"): (
        lambda: dg.delayed(energy, backend="mine", compile=True),
        ValueError,
        "compile=True is for models of backend 'autograd'; found 'mine'",
    ),
    ("delayed", "backend", "unknown"): (
        lambda: dg.delayed(len, backend="tensorflow"),
        ValueError,
        "unknown backend 'tensorflow'; choose one of autograd, jax, torch",
    ),
    ("delayed", "backend", "a list"): (
        lambda: dg.delayed(len, backend=["jax"]),
        ValueError,
        "unknown backend",
    ),
    ("delayed", "keep", "unknown"): (
        lambda: dg.delayed(len, keep="all"),
        ValueError,
        "keep must be one of 'auto', 'gradient'.*found 'all'",
    ),
    ("delayed", "keep", "a gradient of a vector"): (
        lambda: dg.grad(lambda x: energy(node_of(identity, keep="gradient")(x)))(X),
        ValueError,
        r"keep='gradient' needs .*'model' returned float64\[3\]",
    ),
    ("delayed", "returns", "None"): (gradient(lambda x: None), TypeError, NO_NUMBERS.format(None)),
    ("delayed", "returns", "an object"): (
        gradient(lambda x: object()),
        TypeError,
        NO_NUMBERS.format("object"),
    ),
    ("delayed", "returns", "a generator"): (
        gradient(lambda x: (v for v in x)),
        TypeError,
        NO_NUMBERS.format("generator"),
    ),
    ("delayed", "returns", "a sparse matrix"): (
        gradient(lambda x: SPARSE),
        TypeError,
        NO_NUMBERS.format("csr_array"),
    ),
    ("delayed", "returns", "a masked array"): (
        lambda: dg.vjp(node_of(lambda x: MASKED), X),
        TypeError,
        r"'model' returned a masked array, float64\[3\], whose mask",
    ),
    ("delayed", "returns", "a Dask array"): (
        gradient(lambda x: da.ones(3)),
        TypeError,
        "'model' returned Array.*call the plain function",
    ),
    ("delayed", "returns", "a list that holds itself"): (
        gradient(lambda x: ITSELF),
        RecursionError,
        NESTED + ".*model 'model'",
    ),
    ("delayed", "returns", "broadcast"): (
        lambda: node_of(lambda x: BROADCAST)(X).compute(),
        ValueError,
        MANY + ".*model 'model'",
    ),
    ("delayed", "returns", "other numbers in each run"): (
        gradient(lambda x: anp.sum(x) * np.random.random(), keep="recompute"),
        dg.NondeterministicModelError,
        "'model' is not deterministic",
    ),
    ("delayed", "argument", "a generator"): (
        with_constant(used_up()),
        TypeError,
        f"an argument of model 'model' is generator, which {ONCE}",
    ),
    ("delayed", "argument", "an iterator in a dict"): (
        with_constant({"a": iter([1.0])}),
        TypeError,
        f"is list_iterator, which {ONCE}",
    ),
    ("delayed", "argument", "shards"): (
        with_constant(dg.place([1.0])),
        TypeError,
        "an argument of model 'model' is Shards, .*; sum over it with dg.map_sum",
    ),
    ("delayed", "argument", "a zip of ours"): (
        with_constant(dg.zip([1.0], [2.0])),
        TypeError,
        "an argument of model 'model' is Zip, .*; sum over it with dg.map_sum",
    ),
    ("delayed", "argument", "Python's zip"): (
        with_constant(zip([1.0], [2.0], strict=True)),
        TypeError,
        f"is zip, which {ONCE}",
    ),
    ("delayed", "argument", "broadcast"): (
        with_constant(BROADCAST),
        ValueError,
        rf"an argument of a model is float64\[1000000000000\], {MANY}",
    ),
    ("delayed", "argument", "a list that holds itself"): (
        with_constant(ITSELF),
        RecursionError,
        NESTED,
    ),
    ("delayed", "argument", "nested deep"): (with_constant(DEEP), RecursionError, NESTED),
    ("delayed", "argument", "a node as a key"): (
        lambda: dg.grad(lambda x: node_of(lambda d: 1.0)([{"a": {x: 1.0}}]))(X),
        TypeError,
        "a dict with a node for a key, and keys are constants",
    ),
    ("delayed", "argument", "a node in a set"): (
        lambda: dg.grad(lambda x: node_of(lambda d: 1.0)({x}))(X),
        TypeError,
        "is set that holds <Variable x>; pass nodes as arguments",
    ),
    ("delayed", "argument", "a masked array on the right"): (
        with_constant(MASKED, lambda x, m: anp.sum(x * m)),
        TypeError,
        "MaskedArray.*forward pass of model 'model'",
    ),
    ("delayed", "argument", "written into"): (
        with_constant(X.copy(), lambda x, c: anp.sum(x) + c.fill(1.0)),
        ValueError,
        "model 'model' may have written into .*copy the array first",
    ),
    **{
        ("PullbackPolicy", name, str(found)): (
            lambda name=name, found=found: dg.PullbackPolicy(**{name: found}),
            kind,
            f"{name} of a dg.PullbackPolicy must be .*number.*; found {found!r}",
        )
        for name, found, kind in (
            ("pack_seconds", "quick", TypeError),
            ("step_seconds", -1.0, ValueError),
            ("network_rate", 0, ValueError),
            ("disk_rate", float("nan"), ValueError),
            ("unseen_bytes", None, TypeError),
        )
    },
    ("register_backend", "name", "a number"): (
        lambda: dg.register_backend(3, object()),
        TypeError,
        "name of a backend must be a string; found 3",
    ),
    ("register_backend", "name", "our own"): (
        lambda: dg.register_backend("jax", object()),
        ValueError,
        "'jax' is daskgrad's own; choose another",
    ),
    ("register_backend", "backend", "lacks functions"): (
        lambda: dg.register_backend("mine", object()),
        TypeError,
        "'mine' lacks dumps, loads, run, trace, linearize",
    ),
    ("variable", "value", "a node"): (
        lambda: dg.variable(energy(X)),
        TypeError,
        "depends on the variables of another derivative",
    ),
    ("variable", "value", "a Dask bag"): (
        lambda: dg.variable(db.from_sequence([1.0])),
        TypeError,
        "'variable' holds a Dask collection",
    ),
    ("variable", "value", "a set"): (
        lambda: dg.variable({1.0}),
        TypeError,
        HOLDS.format("variable", "set; expected float"),
    ),
    ("variable", "value", "masked"): (
        lambda: dg.variable([MASKED]),
        TypeError,
        HOLDS.format("variable", "MaskedArray"),
    ),
    ("variable", "value", "a dask Array of integers"): (
        lambda: dg.variable(da.ones((2,), dtype=int)),
        TypeError,
        r"'variable' is a dask Array of int64, which has no derivative; .*x.astype\(float\)",
    ),
    ("variable", "value", "a dask Array of unknown chunks"): (
        lambda: dg.variable(da.ones((2,))[da.ones((2,)) > 0.4]),
        ValueError,
        "must be known: call its compute_chunk_sizes",
    ),
    ("variable", "value", "a dask Array, given to a model"): (
        lambda: energy(dg.variable(da.ones((2,)), "field")).compute(),
        TypeError,
        r"'field' is a dask Array, of which models get the chunks; use dg.array\(x\)",
    ),
    ("variable", "value", "broadcast"): (lambda: dg.variable(BROADCAST), ValueError, MANY),
    ("variable", "name", "a number"): (
        lambda: dg.variable(X, name=3),
        TypeError,
        "name of a variable must be a string; found 3",
    ),
    ("value", "x", "a node"): (
        lambda: dg.value(V),
        TypeError,
        "dg.value needs the value of <Variable v>, which is not computed yet",
    ),
    ("stop_gradient", "x", "a list that holds itself"): (
        lambda: dg.stop_gradient(ITSELF),
        RecursionError,
        NESTED,
    ),
    # ----------------------------------------------------------------------- rules of your own
    ("custom_vjp", "fun", "a string"): (
        lambda: dg.custom_vjp("fun"),
        TypeError,
        "argument of dg.custom_vjp must be a function; found 'fun'",
    ),
    ("custom_vjp", "fun", "a model"): (
        lambda: dg.custom_vjp(energy),
        TypeError,
        "must be a plain function; found <model energy>; apply dg.delayed to",
    ),
    ("custom_vjp", "fun", "without rules"): (
        lambda: dg.grad(dg.delayed(dg.custom_vjp(named(lambda x: x, "ruleless"))))(X),
        NotImplementedError,
        "'ruleless' has no rule for",
    ),
    ("custom_vjp", "defvjp", "a string"): (
        lambda: dg.custom_vjp(named(identity, "ruled")).defvjp("a", identity),
        TypeError,
        "defvjp of 'ruled' must be functions; found 'a'",
    ),
    ("custom_vjp", "defjvp", "None"): (
        lambda: dg.custom_vjp(named(identity, "ruled")).defjvp(None),
        TypeError,
        "defjvp of 'ruled' must be functions; found None",
    ),
    ("custom_vjp", "forward", "no pair"): (
        ruled(forward=lambda x: 1.0),
        TypeError,
        r"forward function of 'ruled' must return a pair .*found 1\.0",
    ),
    ("custom_vjp", "forward", "a masked array"): (
        ruled(forward=lambda x: (MASKED, None)),
        TypeError,
        "'ruled' returned a MaskedArray, which cannot be differentiated",
    ),
    ("custom_vjp", "backward", "no tuple"): (
        ruled(backward=lambda r, c: np.ones(3)),
        TypeError,
        "backward function of 'ruled' must return a tuple",
    ),
    ("custom_vjp", "backward", "too many"): (
        ruled(backward=lambda r, c: (X, X)),
        ValueError,
        "returned 2 cotangents for 1 positional arguments",
    ),
    ("custom_vjp", "backward", "another shape"): (
        ruled(backward=lambda r, c: (np.ones(2),)),
        ValueError,
        r"cotangent of 'x' of 'ruled': expected shape \(3,\)",
    ),
    ("custom_vjp", "backward", "complex"): (
        ruled(backward=lambda r, c: (1j * X,)),
        TypeError,
        "with .real if it is complex",
    ),
    ("custom_vjp", "backward", "masked"): (
        ruled(backward=lambda r, c: (MASKED,)),
        TypeError,
        "cotangent of 'x' of 'ruled': found a masked array, whose mask would be lost",
    ),
    ("implicit", "solver", "a string"): (
        lambda: dg.implicit("a", identity),
        TypeError,
        "argument of dg.implicit must be a function; found 'a'",
    ),
    ("implicit", "solver", "an iterator comes back"): (
        root(solver=lambda a: iter([1.0])),
        TypeError,
        NO_NUMBERS.format(".*|.*one real number|.*list_iterator"),
    ),
    ("implicit", "residual", "a number"): (
        lambda: dg.implicit(named(identity, "solver"), 3),
        TypeError,
        "residual of 'solver' must be a function; found 3",
    ),
    ("implicit", "residual", "too few numbers"): (
        root(residual=lambda x, a: anp.sum(x - a)),
        ValueError,
        "must return as many numbers.* found 1 for 3",
    ),
    ("implicit", "residual", "singular"): (
        root(residual=lambda x, a: np.zeros(3)),
        np.linalg.LinAlgError,
        "is singular or not finite",
    ),
    ("implicit", "linear_solver", "a number"): (
        lambda: dg.implicit(named(identity, "solver"), identity, 3),
        TypeError,
        "linear_solver of 'solver' must be a function",
    ),
    ("implicit", "linear_solver", "a pair comes back"): (
        root(linear_solver=lambda product, rhs: (rhs, 0)),
        TypeError,
        r"vector of real numbers of shape \(3,\); found tuple\(float64\[3\], 0\): take the",
    ),
    ("implicit", "linear_solver", "None comes back"): (
        root(linear_solver=lambda product, rhs: None),
        ValueError,
        "linear_solver of 'solver' must return .*found None",
    ),
    ("implicit", "linear_solver", "complex"): (
        root(linear_solver=lambda product, rhs: 1j * rhs),
        ValueError,
        r"vector of real numbers.* found complex128\[3\]",
    ),
    ("finite_difference", "fun", "a string"): (
        lambda: dg.finite_difference("a"),
        TypeError,
        "argument of dg.finite_difference must be a function; found 'a'",
    ),
    ("finite_difference", "fun", "None comes back"): (
        lambda: dg.grad(dg.finite_difference(named(lambda x: None, "model")))(X),
        TypeError,
        NO_NUMBERS.format(None),
    ),
    ("finite_difference", "fun", "a masked array comes back"): (
        lambda: dg.vjp(dg.finite_difference(named(lambda x: MASKED, "model")), X),
        TypeError,
        "'model' returned a masked array",
    ),
    ("finite_difference", "fun", "another size in each run"): (
        lambda: dg.vjp(dg.finite_difference(named(lambda x: x[x > 0.3], "model")), X),
        ValueError,
        "3 real numbers at displaced arguments, and 2 elsewhere",
    ),
    ("finite_difference", "method", "unknown"): (
        lambda: dg.finite_difference(len, method="forward"),
        ValueError,
        "method must be one of 'central', 'complex-step'; found 'forward'",
    ),
    ("finite_difference", "method", "an array"): (
        lambda: dg.finite_difference(len, method=X),
        ValueError,
        r"method must be one of .*found float64\[3\]",
    ),
    ("finite_difference", "method", "complex steps of a real function"): (
        lambda: dg.grad(
            dg.finite_difference(
                named(lambda x: float(np.sum(np.real(x))), "real"), method="complex-step"
            )
        )(X),
        TypeError,
        "'real' cannot take a complex step.*use method='central'",
    ),
    ("finite_difference", "name", "a number"): (
        lambda: dg.finite_difference(len, name=3),
        TypeError,
        "the name of a model must be a string; found 3",
    ),
    ("finite_difference", "step", "zero"): (
        lambda: dg.finite_difference(len, step=0),
        ValueError,
        "step must be a positive number.*found 0",
    ),
    ("finite_difference", "step", "True"): (
        lambda: dg.finite_difference(len, step=True),
        ValueError,
        "step must be a positive number.*found True",
    ),
    ("finite_difference", "step", "NaN"): (
        lambda: dg.finite_difference(len, step=np.nan),
        ValueError,
        "step must be a positive number.*found nan",
    ),
}
