"""Models of the PyTorch backend: they get tensors, and are right wherever they run."""

import dask
import numpy as np
import pytest
from libraries import arrays_of
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg
from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.models.pullbacks import capture
from daskgrad.autodiff.models.tracing import Active

pytestmark = pytest.mark.optional

X = np.linspace(0.1, 1.0, 5)


@pytest.fixture(autouse=True, scope="module")
def library():
    """PyTorch takes long to import: tests are collected without it."""
    global torch
    torch = arrays_of("torch")


def model_of(fun, **options):
    return dg.delayed(fun, backend="torch", **options)


def close(found, expected):
    assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


def test_all_arrays_arrive_as_cpu_tensors(client):
    """Numbers and strings of Python arrive as they are."""

    def kinds(x, *others):
        arguments = [x["w"], *others]
        names = [type(each).__name__ for each in arguments]
        tensors = [each for each in arguments if isinstance(each, torch.Tensor)]
        places = [f"{each.device} {each.dtype}" for each in tensors]
        return torch.sum(x["w"]), names, places

    others = (X.astype("f4"), np.arange(3), np.float64(2.0), 3, 2.5, "text", None, np.array(["a"]))
    model = model_of(kinds)
    for _, names, places in (
        model({"w": X}, *others).compute(),
        dg.vjp(lambda x: model(x, *others), {"w": X})[0],
    ):
        assert names == [*["Tensor"] * 4, "int", "float", "str", "NoneType", "ndarray"]
        assert places == [
            "cpu torch.float64",
            "cpu torch.float32",
            "cpu torch.int64",
            "cpu torch.float64",
        ]


def test_a_module_and_its_parameters(client):
    """The parameters are an argument, in a dict, and so is their gradient."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    module = module.double()
    parameters = {name: value.detach().numpy() for name, value in module.named_parameters()}
    data = [np.linspace(-1.0, 1.0, 6).reshape(2, 3) * n for n in range(1, 5)]

    def loss(batch, parameters):
        return torch.sum(torch.func.functional_call(module, parameters, (batch,)) ** 2)

    value, gradient = dg.value_and_grad(lambda p: dg.map_sum(model_of(loss), data, p))(parameters)
    expected = sum(torch.sum(module(torch.from_numpy(batch)) ** 2) for batch in data)
    expected.backward()
    close(value, expected.item())
    for name, parameter in module.named_parameters():
        close(gradient[name], parameter.grad.numpy())


def test_threads_that_share_a_module_do_not_see_each_others_parameters():
    """``functional_call`` writes into the module while it runs."""
    module = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(20)]).double()
    names = [name for name, _ in module.named_parameters()]
    random = np.random.default_rng(0)
    each = [
        {name: random.normal(size=p.shape) for name, p in module.named_parameters()}
        for _ in range(40)
    ]

    def fun(parameters):
        return torch.sum(torch.func.functional_call(module, parameters, (torch.ones(3).double(),)))

    def total(scheduler):
        with dask.config.set(scheduler=scheduler, num_workers=8):
            return dg.value_and_grad(lambda ps: dg.sum([model_of(fun)(p) for p in ps]))(each)

    value, gradient = total("sync")
    other, found = total("threads")
    assert value == other
    for ours, theirs in zip(gradient, found, strict=True):
        for name in names:
            assert_array_equal(ours[name], theirs[name])


def test_a_modules_own_parameters_are_constants(synchronous):
    module = torch.nn.Linear(5, 1).double()
    model = model_of(lambda x: torch.sum(module(x)))
    weight = module.weight.detach().numpy()
    close(model(X).compute(), module(torch.from_numpy(X)).item())
    close(dg.grad(lambda x: model(x))(X), weight[0])
    assert module.weight.grad is None


def test_a_model_may_compute_in_another_precision(synchronous):
    """Values are of the model's dtype, gradients of the argument's."""
    model = model_of(lambda x: torch.sum(x.float() ** 2))
    value, gradient = dg.value_and_grad(lambda x: model(x))(X)
    assert value.dtype == np.float32
    assert gradient.dtype == np.float64
    assert_allclose(gradient, 2.0 * X, rtol=1e-6)


def test_tensors_as_constants(client):
    own, passed = torch.full((5,), 2.0, dtype=torch.float64), torch.ones(5, dtype=torch.float64)
    model = model_of(lambda x, c: torch.sum(x * c * own), name="m")
    close(dg.grad(lambda x: model(x, passed * 3.0))(X), 6.0)


def test_views_of_tensors_come_back_as_arrays_in_c_order(synchronous):
    x = np.arange(6.0).reshape(2, 3)
    value, pullback = dg.vjp(lambda x: model_of(lambda x: (x.T, x[:, ::2], x[0].flip(0)))(x), x)
    assert all(each.flags.c_contiguous for each in value)
    close(value[0], x.T)
    close(pullback((x.T, x[:, ::2], x[0, ::-1]))[0], x + [[1, 0, 1]] * x + [[1], [0]] * x)


def test_conjugate_views_come_back(synchronous):
    z = X + 1j * X[::-1]
    value, pullback = dg.vjp(lambda z: model_of(lambda z: z.conj() * 2.0)(z), z)
    close(value, 2.0 * z.conj())
    close(pullback(z)[0], 2.0 * z.conj())


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_the_callers_modes_do_not_matter(mode, synchronous):
    def fun(x):
        with torch.enable_grad():
            y = x.detach().clone().requires_grad_()
            (inner,) = torch.autograd.grad(torch.sum(y**2), y)
        return torch.sum(x * x * inner.detach())

    model = model_of(fun)
    with getattr(torch, mode)():
        close(dg.grad(lambda x: model(x))(X), 4.0 * X * X)
        close(model(X).compute(), 2.0 * np.sum(X**3))


def test_inner_derivatives(synchronous):
    def fun(x):
        return torch.sum(torch.func.grad(lambda y: torch.sum(y**3))(x))

    close(dg.grad(lambda x: model_of(fun)(x))(X), 6.0 * X)


def test_the_real_size_of_what_is_kept_is_told():
    """Saved tensors, each once, without the argument, which the worker has anyway."""
    x = np.ones(100_000)
    node = model_of(lambda x: torch.exp(torch.sin(x)) * x)(dg.variable(x))
    captured = capture(node.model, node.call, (Active(0, watched=False),), [x])
    held = captured.pullback.tape.held_arrays()
    assert sum(each is x for each in held) == 1
    assert captured.pullback.__sizeof__() == pytest.approx(x.nbytes, rel=0.01)  # exp(sin(x))


# ----------------------------------------------------------------------------------------- errors


def test_a_model_that_writes_into_its_argument_is_an_error(synchronous):
    """The memory of a tensor is that of the array, which other tasks read."""

    def fun(x, data):
        data += 1.0
        return torch.sum(x * data)

    model = model_of(fun, name="writes")
    for compute in (lambda: dg.grad(lambda x: model(x, X))(X), lambda: model(X, X).compute()):
        with pytest.raises(RuntimeError, match=r"written into one of its arguments.*x\.clone\(\)"):
            compute()


def test_a_model_that_writes_into_what_is_differentiated_is_an_error(synchronous):
    def fun(x):
        x += 1.0
        return torch.sum(x)

    with pytest.raises(RuntimeError, match="in-place operation"):
        dg.grad(lambda x: model_of(fun)(x))(X)


MISTAKES = {
    "numpy": lambda x: torch.sum(torch.as_tensor(np.sin(x))),
    "method": lambda x: x.numpy().sum(),
    "mixed": lambda x: torch.sum(x @ np.ones(5)),
    "argument": lambda x: torch.dot(x, np.ones(5)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_model_that_is_not_written_for_torch_gets_a_hint(mistake, synchronous):
    model = model_of(MISTAKES[mistake], name="mistaken")
    with pytest.raises((RuntimeError, TypeError)) as caught:
        dg.grad(lambda x: model(x))(X)
    notes = "".join(caught.value.__notes__)
    assert "forward pass of model 'mistaken', called with (float64[5])" in notes
    assert "use torch's functions instead of NumPy's" in notes


def test_a_saved_tensor_of_a_directional_derivative_is_found():
    """Wrapped tensors of an inner derivative do not disturb the search."""
    backend = registry.load("torch")

    def fun(x, v):
        return backend.linearize(lambda x: [torch.sum(torch.sin(x))], [x])[1]([v])

    _, tape = backend.trace(fun, [X, X])
    assert sum(each.nbytes for each in tape.held_arrays()) >= X.nbytes
