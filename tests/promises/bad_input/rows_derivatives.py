"""Rows of the table of bad input: derivatives and checks; see ``test_bad_input``."""

import decimal
import fractions

import autograd.numpy as anp
import dask
import dask.array as da
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
    OBJECTS,
    PARAMETER,
    SEED,
    SPARSE,
    STRUCTURED,
    WITH_UNIT,
    Unregistered,
    V,
    X,
    debugged,
    double,
    energy,
    gradient,
    named,
    node_of,
    pulled,
    pushed,
    used_up,
)

import daskgrad as dg

ROWS = {
    # ------------------------------------------------------------------- derivatives: what of
    ("value_and_grad", "fun", "an array"): (
        lambda: dg.value_and_grad(X),
        TypeError,
        "first argument of dg.value_and_grad must be a function",
    ),
    ("value_and_grad", "fun", "a node"): (
        lambda: dg.value_and_grad(energy(X)),
        TypeError,
        "must be a function that calls models; found CallNode",
    ),
    ("value_and_grad", "fun", "a Delayed function"): (
        lambda: dg.value_and_grad(dask.delayed(np.sum))(X),
        TypeError,
        "must return a node.*found Delayed",
    ),
    ("value_and_grad", "fun", "takes no arguments"): (
        lambda: dg.value_and_grad(energy)(),
        ValueError,
        "argnums=0 of 'energy' .* it was called with 0",
    ),
    ("value_and_grad", "fun", "by keyword"): (
        lambda: dg.value_and_grad(energy)(x=X),
        ValueError,
        "numbers of positional arguments.* called with 0",
    ),
    ("value_and_grad", "argnums", "a float"): (
        lambda: dg.value_and_grad(energy, argnums=0.0),
        ValueError,
        r"argnums=0\.0 of 'energy' must be numbers",
    ),
    ("value_and_grad", "argnums", "too large"): (
        lambda: dg.value_and_grad(energy, argnums=1)(X),
        ValueError,
        "argnums=1 of 'energy'.*called with 1",
    ),
    ("value_and_grad", "out", "another shape"): (
        lambda: dg.value_and_grad(energy, out=np.zeros(2))(X),
        ValueError,
        r"out of 'energy': expected shape \(3,\), found \(2,\)",
    ),
    ("value_and_grad", "out", "the argument"): (
        lambda: dg.value_and_grad(energy, out=X)(X),
        ValueError,
        "out of 'energy' shares memory with an argument",
    ),
    ("value_and_grad", "has_aux", "no pair"): (
        lambda: dg.value_and_grad(energy, has_aux=True)(X),
        TypeError,
        "must return a pair .*has_aux=True; found CallNode",
    ),
    ("grad", "fun", "None"): (lambda: dg.grad(None), TypeError, "must be a function.*found None"),
    ("grad", "fun", "a vector"): (gradient(lambda x: x), TypeError, r"value is float64\[3\]"),
    ("grad", "fun", "complex"): (
        gradient(lambda x: 1j * anp.sum(x)),
        TypeError,
        r"value is complex128\[\]; a gradient needs one real number",
    ),
    ("grad", "fun", "a tuple of nodes"): (
        lambda: dg.grad(lambda x: (energy(x),))(X),
        TypeError,
        r"found tuple\(CallNode\): add the nodes up",
    ),
    ("grad", "argnums", "twice"): (
        lambda: dg.grad(energy, argnums=(0, 0))(X),
        ValueError,
        "names an argument twice",
    ),
    ("grad", "argument", "an integer"): (
        lambda: dg.grad(energy)(3),
        TypeError,
        PARAMETER.format("3"),
    ),
    ("grad", "argument", "a huge integer"): (
        lambda: dg.grad(energy)(10**400),
        TypeError,
        PARAMETER.format("1000.*"),
    ),
    ("grad", "argument", "a Decimal"): (
        lambda: dg.grad(energy)(decimal.Decimal("1.5")),
        TypeError,
        PARAMETER.format("Decimal"),
    ),
    ("grad", "argument", "a Fraction"): (
        lambda: dg.grad(energy)(fractions.Fraction(1, 3)),
        TypeError,
        PARAMETER.format("Fraction"),
    ),
    ("grad", "argument", "a Decimal beside numbers"): (
        lambda: dg.grad(energy)([1.0, decimal.Decimal(1)]),
        TypeError,
        HOLDS.format("x", "Decimal"),
    ),
    ("grad", "argument", "a sparse matrix"): (
        lambda: dg.grad(energy)(SPARSE),
        TypeError,
        PARAMETER.format("csr_array"),
    ),
    ("grad", "argument", "a sparse matrix beside numbers"): (
        lambda: dg.grad(energy)({"a": X, "b": SPARSE}),
        TypeError,
        HOLDS.format("x", "csr_array; expected float"),
    ),
    ("grad", "argument", "a masked array"): (
        lambda: dg.grad(energy)(MASKED),
        TypeError,
        HOLDS.format("x", r"MaskedArray float64\[3\]; convert"),
    ),
    ("grad", "argument", "with a unit"): (
        lambda: dg.grad(energy)(WITH_UNIT),
        TypeError,
        HOLDS.format("x", r"Unit float64\[3\]; convert"),
    ),
    ("grad", "argument", "objects"): (
        lambda: dg.grad(energy)([1.0, OBJECTS]),
        TypeError,
        HOLDS.format("x", r"ndarray object\[2\]; convert"),
    ),
    ("grad", "argument", "strings"): (
        lambda: dg.grad(energy)(np.array(["a"])),
        TypeError,
        PARAMETER.format(r"<U1\[1\]"),
    ),
    ("grad", "argument", "dates"): (
        lambda: dg.grad(energy)(np.zeros(3, "M8[D]")),
        TypeError,
        PARAMETER.format(r"datetime64\[D\]\[3\]"),
    ),
    ("grad", "argument", "structured"): (
        lambda: dg.grad(energy)(STRUCTURED),
        TypeError,
        PARAMETER.format(r".*\[3\]"),
    ),
    ("grad", "argument", "a Dask array"): (
        lambda: dg.grad(energy)(da.ones(3)),
        TypeError,
        r"'x' of 'energy' is a dask Array; .*x = dg.variable\(array\), dg.differentiate\(energy",
    ),
    ("grad", "argument", "a Dask array beside numbers"): (
        lambda: dg.grad(energy)([X, da.ones(3)]),
        TypeError,
        "'x' holds a Dask collection; compute it first",
    ),
    ("grad", "argument", "an unregistered dataclass"): (
        lambda: dg.grad(energy)(Unregistered(1.0)),
        TypeError,
        "Unregistered.*registered with optree",
    ),
    ("grad", "argument", "a generator"): (
        lambda: dg.grad(energy)(used_up()),
        TypeError,
        PARAMETER.format("generator"),
    ),
    ("grad", "argument", "an empty list"): (
        lambda: dg.grad(energy)([]),
        TypeError,
        PARAMETER.format(r"list\(\)"),
    ),
    ("grad", "argument", "a list that holds itself"): (
        lambda: dg.grad(energy)(ITSELF),
        RecursionError,
        NESTED,
    ),
    ("grad", "argument", "nested deep"): (lambda: dg.grad(energy)(DEEP), RecursionError, NESTED),
    ("grad", "argument", "broadcast"): (
        lambda: dg.grad(energy)(BROADCAST),
        ValueError,
        rf"'x' is float64\[1000000000000\], {MANY}",
    ),
    ("vjp", "fun", "a string"): (lambda: dg.vjp("fun", X), TypeError, "must be a function.*'fun'"),
    ("vjp", "fun", "a number comes back"): (
        lambda: dg.vjp(named(lambda x: 1.0, "fun"), X),
        TypeError,
        r"'fun' must return a node or a pytree of nodes; found 1\.0",
    ),
    ("vjp", "primals", "a node"): (
        lambda: dg.vjp(energy, V),
        TypeError,
        "depends on the variables of another derivative",
    ),
    ("vjp", "cotangent", "another shape"): (pulled(np.ones(2)), ValueError, r"found \(2,\)"),
    ("vjp", "cotangent", "broadcast"): (
        pulled(BROADCAST),
        ValueError,
        r"expected shape \(3,\).*found \(1000000000000,\)",
    ),
    ("vjp", "cotangent", "complex"): (pulled(1j * X), TypeError, "found complex128"),
    ("vjp", "cotangent", "masked"): (
        pulled(MASKED),
        TypeError,
        "whose mask would be lost; fill it",
    ),
    ("vjp", "cotangent", "masked, stacked"): (
        pulled(np.ma.masked_array(np.ones((2, 3)), [[0, 1, 0], [0, 0, 0]])),
        TypeError,
        "whose mask would be lost; fill it",
    ),
    ("vjp", "cotangent", "a string"): (pulled("1", anp.sum), TypeError, "found <U1"),
    ("vjp", "cotangent", "dates"): (pulled(np.zeros(3, "M8[D]")), TypeError, "found datetime64"),
    ("vjp", "cotangent", "structured"): (pulled(STRUCTURED), TypeError, "expected dtype float64"),
    ("vjp", "cotangent", "a Fraction"): (
        pulled(fractions.Fraction(1, 2), anp.sum),
        TypeError,
        "found object; convert it first",
    ),
    ("vjp", "cotangent", "a huge integer"): (pulled(10**400, anp.sum), TypeError, "found object"),
    ("vjp", "cotangent", "a Dask array"): (
        pulled(da.ones(3)),
        TypeError,
        r"cotangent of 'model': Array has no value yet; get it with \.compute\(\)",
    ),
    ("vjp", "cotangent", "a node"): (
        pulled(V),
        TypeError,
        r"cotangent of 'model': Variable has no value yet",
    ),
    ("differentiate", "output", "a number"): (
        lambda: dg.differentiate(3.0, V),
        TypeError,
        r"differentiate needs a node.*found 3\.0",
    ),
    ("differentiate", "output", "a Delayed"): (
        lambda: dg.differentiate(dask.delayed(1.0), V),
        TypeError,
        "differentiate needs a node.*found Delayed",
    ),
    ("differentiate", "wrt", "an array"): (
        lambda: dg.differentiate(energy(V), X),
        TypeError,
        r"wrt must be a variable.*found float64\[3\]",
    ),
    ("differentiate", "wrt", "None"): (
        lambda: dg.differentiate(energy(V), None),
        TypeError,
        "wrt must be a variable.*found None",
    ),
    ("differentiate", "cotangent", "another structure"): (
        lambda: dask.compute(dg.differentiate(double(V), V, cotangent=[X])),
        ValueError,
        "cotangent of 'double': expected the structure of the value",
    ),
    ("differentiate", "cotangent", "a node"): (
        lambda: dask.compute(dg.differentiate(double(V), V, cotangent=energy(V))),
        TypeError,
        "has no value yet",
    ),
    ("jvp", "fun", "None"): (lambda: dg.jvp(None, (X,), (X,)), TypeError, "found None"),
    ("jvp", "primals", "no tuple"): (
        lambda: dg.jvp(energy, X, (X,)),
        TypeError,
        r"takes primals as a tuple.*float64\[3\]: write \(x,\)",
    ),
    ("jvp", "primals", "a generator"): (
        lambda: dg.jvp(energy, (x for x in [X]), (X,)),
        TypeError,
        "takes primals as a tuple.*found generator",
    ),
    ("jvp", "primals", "an integer"): (
        lambda: dg.jvp(energy, (3,), (1.0,)),
        TypeError,
        "3 has no derivative; pass None for it",
    ),
    ("jvp", "tangents", "None"): (
        lambda: dg.jvp(energy, (X,), None),
        TypeError,
        "takes tangents as a tuple.*found None",
    ),
    ("jvp", "tangents", "too many"): (
        lambda: dg.jvp(energy, (X,), (X, X)),
        ValueError,
        "found 1 primals and 2 tangents",
    ),
    ("jvp", "tangents", "masked"): (pushed(MASKED), TypeError, "whose mask would be lost"),
    ("jvp", "tangents", "complex"): (pushed(1j * X), TypeError, "tangent of 'x': .*complex128"),
    ("jvp", "tangents", "broadcast"): (pushed(BROADCAST), ValueError, "found .1000000000000"),
    ("jvp", "tangents", "a Dask array"): (pushed(da.ones(3)), TypeError, "Array has no value yet"),
    ("hvp", "fun", "a vector"): (
        lambda: dg.hvp(double, (X,), (X,)),
        TypeError,
        "gradient of 'double' was asked for",
    ),
    ("hvp", "primals", "no tuple"): (
        lambda: dg.hvp(energy, X, (X,)),
        TypeError,
        "hvp of 'energy' takes primals as a tuple",
    ),
    ("hvp", "tangents", "another shape"): (
        lambda: dg.hvp(energy, (X,), (np.ones(2),)),
        ValueError,
        r"tangent of 'x': expected shape \(3,\)",
    ),
    ("gnvp", "residuals", "an array"): (
        lambda: dg.gnvp(X, energy, (X,), (X,)),
        TypeError,
        "first argument of dg.gnvp must be a function",
    ),
    ("gnvp", "loss", "a string"): (
        lambda: dg.gnvp(double, "loss", (X,), (X,)),
        TypeError,
        "second argument of dg.gnvp must be a function.*found 'loss'",
    ),
    ("gnvp", "loss", "a vector"): (
        lambda: dg.gnvp(double, double, (X,), (X,)),
        TypeError,
        "a gradient needs one real number",
    ),
    ("gnvp", "primals", "no tuple"): (
        lambda: dg.gnvp(double, energy, X, (X,)),
        TypeError,
        "gnvp of 'double' takes primals as a tuple",
    ),
    ("gnvp", "tangents", "too few"): (
        lambda: dg.gnvp(double, energy, (X,), ()),
        ValueError,
        "found 1 primals and 0 tangents",
    ),
    ("hessian", "fun", "a vector"): (
        lambda: dg.hessian(double)(X),
        TypeError,
        "a gradient needs one real number",
    ),
    ("hessian", "fun", "of complex numbers"): (
        lambda: dg.hessian(energy)(X + 0j),
        TypeError,
        "with respect to complex numbers; pass real",
    ),
    ("hessian", "argnums", "an array"): (
        lambda: dg.hessian(energy, X),
        ValueError,
        "arguments themselves go in a second call",
    ),
    ("jacobian", "fun", "a string comes back"): (
        lambda: dg.jacobian(node_of(lambda x: "a"))(X),
        TypeError,
        NO_NUMBERS.format("'a'"),
    ),
    ("jacobian", "fun", "complex of real"): (
        lambda: dg.jacobian(node_of(lambda x: 1j * x))(X),
        TypeError,
        "mixes real and complex numbers",
    ),
    ("jacobian", "argnums", "None"): (
        lambda: dg.jacobian(double, None),
        ValueError,
        "argnums=None of 'double'",
    ),
    ("jacobian", "mode", "unknown"): (
        lambda: dg.jacobian(double, mode="up"),
        ValueError,
        "mode must be one of 'auto', 'forward', 'reverse'; found 'up'",
    ),
    ("jacobian", "mode", "an array"): (
        lambda: dg.jacobian(double, mode=X),
        ValueError,
        r"mode must be one of .*found float64\[3\]",
    ),
    # -------------------------------------------------------------------------------- checks
    ("check_grads", "fun", "an array"): (
        lambda: dg.check_grads(X),
        TypeError,
        "first argument of dg.check_grads must be a function",
    ),
    ("check_grads", "fun", "nothing to check"): (
        lambda: dg.check_grads(energy)(3),
        TypeError,
        "no argument of 'energy' has a derivative to check",
    ),
    ("check_grads", "order", "three"): (
        lambda: dg.check_grads(energy, 3),
        ValueError,
        "order must be 1 .*found 3",
    ),
    ("check_grads", "modes", "unknown"): (
        lambda: dg.check_grads(energy, modes="up"),
        ValueError,
        "modes must be some of 'forward', 'reverse'; found 'up'",
    ),
    ("check_grads", "modes", "a number"): (
        lambda: dg.check_grads(energy, modes=3),
        ValueError,
        "modes must be some of .*found 3",
    ),
    ("check_grads", "modes", "none"): (
        lambda: dg.check_grads(energy, modes=[]),
        ValueError,
        "modes must be some of",
    ),
    ("check_grads", "rtol", "a string"): (
        lambda: dg.check_grads(energy, rtol="1e-3"),
        ValueError,
        "rtol must be a number, zero or more; found '1e-3'",
    ),
    ("check_grads", "rtol", "NaN"): (
        lambda: dg.check_grads(energy, rtol=np.nan),
        ValueError,
        "rtol must be a number, zero or more; found nan",
    ),
    ("check_grads", "atol", "negative"): (
        lambda: dg.check_grads(energy, atol=-1e-8),
        ValueError,
        "atol must be a number, zero or more; found -1e-08",
    ),
    ("check_grads", "seed", "a string"): (
        lambda: dg.check_grads(energy, seed="a"),
        TypeError,
        SEED.format("check_grads") + "'a'",
    ),
    ("explain", "model", "a number"): (lambda: dg.explain(3.0, X), TypeError, "a model.*3.0"),
    ("explain", "args", "too many"): (lambda: dg.explain(energy, X, X, X), TypeError, "given"),
    ("explain", "kwargs", "an unknown one"): (lambda: dg.explain(energy, X, z=X), TypeError, "'z'"),
    ("taylor_rates", "fun", "None"): (
        lambda: dg.taylor_rates(None),
        TypeError,
        "first argument of dg.taylor_rates must be a function",
    ),
    ("taylor_rates", "fun", "single precision"): (
        lambda: dg.taylor_rates(energy)(X.astype(np.float32)),
        TypeError,
        "rates need real numbers in double precision",
    ),
    ("taylor_rates", "order", "True"): (
        lambda: dg.taylor_rates(energy, order=True),
        ValueError,
        "order must be 1 .*found True",
    ),
    ("taylor_rates", "seed", "negative"): (
        lambda: dg.taylor_rates(energy, seed=-1),
        ValueError,
        SEED.format("taylor_rates") + "-1",
    ),
    ("debug_nans", "context", "a value is not finite"): (
        lambda: debugged(lambda: dg.grad(node_of(lambda x: anp.sum(x) * anp.inf))(X)),
        FloatingPointError,
        "model 'model', forward pass",
    ),
    ("debug_nans", "context", "an argument"): (
        lambda: dg.debug_nans(True),
        TypeError,
        "takes 0 positional arguments",
    ),
    # ------------------------------------------------------------------------------- to see
    ("dashboards", "client", "an address"): (
        lambda: dg.dashboards.mount("tcp://127.0.0.1:8786"),
        TypeError,
        "mount takes a distributed.Client; found 'tcp://127.0.0.1:8786'",
    ),
    ("progress", "context", "an argument"): (
        lambda: dg.progress("bar"),
        TypeError,
        "takes 0 positional arguments",
    ),
    ("record", "name", "a number"): (
        lambda: dg.record(1).__enter__(),
        TypeError,
        "the name of a run that dg.record makes must be a string; found 1",
    ),
    ("report", "path", "a number"): (
        lambda: dg.report(1).__enter__(),
        TypeError,
        "dg.report takes the path of a file; found 1",
    ),
    ("report", "path", "in no folder"): (
        lambda: dg.report("no/such/folder/run.html").__enter__(),
        FileNotFoundError,
        "cannot write no/such/folder/run.html: its folder does not exist",
    ),
    ("report", "trace", "a list"): (
        lambda: dg.report("run.html", trace=["run.json"]).__enter__(),
        TypeError,
        r"dg.report takes the path of a file; found list\(",
    ),
    ("visualize", "fun", "an array"): (
        lambda: dg.visualize(X),
        TypeError,
        "the first argument of dg.visualize must be a function",
    ),
    ("visualize", "args", "of integers"): (
        lambda: dg.visualize(node_of(anp.sum), np.arange(3)),
        TypeError,
        "which has no derivative",
    ),
    ("visualize", "argnums", "too many"): (
        lambda: dg.visualize(node_of(anp.sum), X, argnums=1),
        ValueError,
        "must be numbers of positional arguments",
    ),
    ("visualize", "filename", "without a format"): (
        lambda: dg.visualize(node_of(anp.sum), X, filename="graph"),
        ValueError,
        "filename of visualize must be a string that ends in a format",
    ),
    ("visualize", "shapes", "an array"): (
        lambda: dg.visualize(node_of(anp.sum), X, shapes=X),
        TypeError,
        "shapes of visualize must be True or False; found float64",
    ),
    ("value_and_grad", "sparse", "a number"): (
        lambda: dg.value_and_grad(energy, sparse=1),
        TypeError,
        "sparse of 'energy' must be True, False, or paths of leaves",
    ),
    ("value_and_grad", "sparse", "no argument"): (
        lambda: dg.value_and_grad(energy, sparse="y")(X),
        ValueError,
        "sparse of 'energy' names 'y', .*are 'x'",
    ),
    ("value_and_grad", "sparse", "beside out"): (
        lambda: dg.value_and_grad(energy, sparse=True, out=X),
        ValueError,
        "got both out and sparse",
    ),
    ("grad", "sparse", "a list of numbers"): (
        lambda: dg.grad(energy, sparse=[0]),
        TypeError,
        "must be True, False, or paths of leaves",
    ),
    ("per_item", "sparse", "a number"): (
        lambda: dg.per_item(energy, [1.0], sparse=2),
        TypeError,
        "must be True, False, or paths of leaves",
    ),
    ("hvp", "sparse", "no argument"): (
        lambda: dg.hvp(energy, (X,), (X,), sparse="z"),
        ValueError,
        "names 'z'",
    ),
    ("vjp", "sparse", "no argument"): (
        lambda: dg.vjp(energy, X, sparse=["x", "z"]),
        ValueError,
        "names 'z'",
    ),
    ("Rows", "indices", "too large"): (
        lambda: dg.Rows((3,), (0,), [3], [1.0]),
        ValueError,
        "indices of rows must be from 0 to 2; found 3 to 3",
    ),
    ("optim", "params", "a number"): (
        lambda: dg.optim.SGD().init([1.0]),
        TypeError,
        r"params\[0\] is the number 1.0, .* make it an array",
    ),
}
