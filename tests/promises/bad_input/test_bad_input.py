"""Bad input, as tables: what was asked, which error it is, and what that must say.

The tables are in ``rows``. A section is of a public name and a parameter of it: ``[sum: nodes]``.
A row is ``call -> Error: message``, where indented lines go on. The message is looked for in that
of the error and its notes; ``...`` stands for anything. Other subjects of bad input have files of
their own: ``test_hidden_nodes``, ``test_plain_numpy``, ``test_model_errors``,
``test_arguments``, ``test_writes``. What looks odd and is right is in ``test_odd_input``.
"""

import builtins
import collections
import decimal
import fractions
import inspect
import pathlib
import re

import autograd.numpy as anp
import dask.array
import dask.bag
import inputs
import numpy as np
import pytest
import subjects
from inputs import X, energy, notes
from subjects import node_of, term
from tables import pattern, rows_of

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

NAMES = {**vars(inputs), **vars(subjects), "da": dask.array, "collections": collections}
NAMES |= {"decimal": decimal, "fractions": fractions}
ERRORS = {**vars(builtins), **vars(np.linalg)}
ERRORS["NondeterministicModelError"] = dg.NondeterministicModelError


def rows():
    """The sections (name, parameter), and their rows: a call, the errors' names, a message."""
    for path in sorted(pathlib.Path(__file__).with_name("rows").glob("*.txt")):
        for section in path.read_text().split("\n\n"):
            head, text = section.split("\n", 1)
            for call, error in rows_of(text):
                kinds, message = error.split(": ", 1)
                yield tuple(head[1:-1].split(": ")), (call, kinds.split(" or "), message)


ROWS = list(rows())


@pytest.mark.parametrize(
    ("call", "kinds", "message"),
    [row for _, row in ROWS],
    ids=[" ".join(section) for section, _ in ROWS],
)
def test_an_error_says_what_was_found_and_what_to_do(call, kinds, message):
    with pytest.raises(tuple([ERRORS[kind] for kind in kinds])) as caught:
        eval(call, dict(NAMES))
    assert re.search(pattern(message), f"{caught.value} {notes(caught.value)}")


def test_every_public_name_has_rows():
    others = {"scipy"}  # whose functions have tests of their own
    assert {name for (name, _), _ in ROWS} == set(dg.__all__) - others


@pytest.mark.parametrize("name", dg.__all__)
def test_every_parameter_has_a_row(name):
    """Of functions; those of a class's ``__init__`` are not public."""
    public = getattr(dg, name)
    if inspect.isfunction(public):
        sections = {parameter for (other, parameter), _ in ROWS if other == name}
        assert set(inspect.signature(public).parameters) <= sections


# ------------------------------------------------------------------------------- other libraries


PARAMETER = "argument 'x' of 'energy' is {}, which has no derivative.*np.asarray converts"
HOLDS = r"'{}' holds {}"
ITEMS = r"must be a list, a tuple.*found "
NO_NUMBERS = r"'model' returned {}; expected numbers or arrays"

PANDAS = {
    "a Series": lambda pandas: pandas.Series(X),
    "a DataFrame": lambda pandas: pandas.DataFrame({"a": X}),
    "a Categorical": lambda pandas: pandas.Categorical(["a"]),
    "an Index": lambda pandas: pandas.Index(X),
}


@pytest.mark.parametrize("kind", PANDAS)
def test_objects_of_pandas_are_no_parameters_and_no_items(kind):
    """Labels and categories would be lost."""
    value = PANDAS[kind](pytest.importorskip("pandas"))
    class_name = type(value).__name__
    with pytest.raises(TypeError, match=PARAMETER.format(class_name)):
        dg.grad(energy)(value)
    with pytest.raises(TypeError, match=HOLDS.format("x", class_name)):
        dg.grad(energy)([X, value])
    for add_up in (dg.map_sum, dg.reduce_sum, dg.per_item):
        with pytest.raises(TypeError, match=ITEMS + class_name):
            add_up(term, value)
    with pytest.raises(TypeError, match=f"must be a list.*found {class_name}"):
        dg.place(value)
    with pytest.raises(TypeError, match=NO_NUMBERS.format(class_name)):
        dg.grad(node_of(lambda x: value))(X)
    with pytest.raises(TypeError, match=f"numbers; found {class_name}"):
        dg.map_sum(lambda item: value, [1, 2]).compute()


def foreign(library, device=None):
    if library == "jax":
        return pytest.importorskip("jax").numpy.ones(3)
    torch = pytest.importorskip("torch")
    return torch.ones(3, dtype=torch.float64, device=device)


LIBRARIES = {"jax": ("jax",), "torch": ("torch",), "meta": ("torch", "meta")}


@pytest.mark.optional
@pytest.mark.parametrize("kind", LIBRARIES)
def test_arrays_of_other_libraries_are_no_parameters_and_no_items(kind):
    value = foreign(*LIBRARIES[kind])
    class_name = type(value).__name__
    model = node_of(lambda x: x.sum(), backend=LIBRARIES[kind][0])
    for ask in (dg.grad(energy), dg.grad(lambda x: dg.map_sum(term, [1.0], x)), dg.grad(model)):
        with pytest.raises(TypeError, match=f"argument 'x' of .* is {class_name}, .*np.asarray"):
            ask(value)
    with pytest.raises(TypeError, match=f"argument 'x' of 'term' is {class_name}"):
        dg.per_item(term, [1.0])(value)
    with pytest.raises(TypeError, match=HOLDS.format("variable", class_name)):
        dg.variable([X, value])
    for add_up in (dg.map_sum, dg.reduce_sum, dg.per_item):
        with pytest.raises(TypeError, match=ITEMS + class_name):
            add_up(term, value)
    with pytest.raises(TypeError, match=NO_NUMBERS.format(class_name)):
        dg.grad(node_of(lambda x: value))(X)


@pytest.mark.optional
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("kind", ["torch", "meta"])
def test_a_model_that_fails_on_tensors_is_told_what_they_are(kind):
    value = foreign(*LIBRARIES[kind])
    message = "argument 'c': arrays of other libraries are passed on unchanged; pass NumPy arrays"
    for ask in (
        lambda: dg.grad(lambda x: node_of(lambda x, c: anp.sum(x * c))(x, value))(X),
        lambda: dg.grad(lambda x: dg.map_sum(lambda c, x: anp.sum(x * c), [value], x))(X),
    ):
        with pytest.raises((AttributeError, TypeError)) as caught:
            ask()
        assert message in notes(caught.value)
