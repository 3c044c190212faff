"""Arguments: Python expressions that check the arguments of a call, and take them apart."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.programs.signatures import NUMBERS, STATIC
from daskgrad.autodiff.tape.traced_call import Layout
from daskgrad.autodiff.values.cotangents import is_differentiable
from daskgrad.autodiff.values.memory import OWN_DTYPES
from daskgrad.autodiff.values.trees import LEAF, flatten, unflatten

MOST_LEAVES = 64
MOST_PAIRS = 32  # of an array that is written into, and one with which it must share nothing
DEEPEST = 8  # containers in containers


class Unusual(Exception):
    """An argument of which there is no quick check."""


class Arguments:
    """Arguments of one kind, in a function whose parameters are ``a0``, ``a1`` ...

    ``condition`` is an expression that is true of them alone, and uses ``names``; ``leaves`` has an
    expression for each leaf that is differentiated, and the leaf itself; ``outs`` one for each
    array that a gradient is written into, in the same order, if there are such.

    Raises
    ------
    Unusual
        unless all leaves are plain numbers, constants, and arrays in C or Fortran order, in lists,
        tuples, and dicts whose keys are strings.
    """

    def __init__(self, args: tuple, numbers: Sequence[int]):
        if max(numbers) >= len(args):
            raise Unusual
        self.names: dict[str, Any] = {}
        self.parameters = ", ".join([f"a{number}" for number in range(len(args))])
        self.leaves: list[tuple[str, Any]] = []
        self._numbers = numbers
        self._conditions: list[str] = []
        self._leaves: list[tuple[str, Any, int | None]] = []
        self.outs: list[str] = []
        texts = [self._read(arg, f"a{number}", 0) for number, arg in enumerate(args)]
        leaves, structure = flatten((args, {}))
        if len(leaves) > MOST_LEAVES:
            raise Unusual
        pairs = zip(args, texts, strict=True)
        self._gradients = [self._put(*pair, number in numbers) for number, pair in enumerate(pairs)]
        _, given, places = zip(*self._leaves, strict=True)
        self.layout = Layout(given, structure, places)

    @property
    def condition(self) -> str:
        return " and ".join(self._conditions) or "True"

    def write_into(self, out: Any, is_bare: bool) -> None:
        """Adds the parameter ``out``, arrays that the gradients are written into."""
        self.parameters += ", out"
        texts, structure = flatten(self._read(out, "out", 0))
        gradients = [self._gradients[number] for number in self._numbers]
        names, expected = flatten(gradients[0] if is_bare else tuple(gradients))
        arrays = [text for text, leaf, _ in self._leaves if isinstance(leaf, np.ndarray)]
        count = len(self.leaves)
        if structure != expected or count * (count + len(arrays)) > MOST_PAIRS:
            raise Unusual
        found = dict(zip(names, texts, strict=True))
        self.outs = [found[f"d{number}"] for number in range(count)]
        self._conditions += [
            f"{text} is None" for name, text in zip(names, texts, strict=True) if name == "None"
        ]
        for number, (text, (_, leaf)) in enumerate(zip(self.outs, self.leaves, strict=True)):
            self.names["_may_share"] = np.may_share_memory
            self._conditions.append(f"type({text}) is {self._name(np.ndarray)}")
            self._conditions.append(f"{text}.shape == {np.shape(leaf)}")
            self._conditions.append(f"{text}.dtype is {self._name(leaf.dtype)}")
            self._conditions.append(f"{text}.flags.carray")
            for other in [*arrays, *self.outs[:number]]:
                self._conditions.append(f"not _may_share({text}, {other})")

    def _put(self, arg: Any, texts: Any, is_active: bool) -> Any:
        """Enters the leaves of an argument; returns names of their gradients in its structure."""
        gradients = []
        leaves, structure = flatten(arg)
        for leaf, text in zip(leaves, flatten(texts)[0], strict=True):
            self._check(leaf, text)
            if not (is_active and is_differentiable(leaf)):
                self._leaves.append((text, leaf, None))
                gradients.append("None")
                continue
            if type(leaf) in (float, complex):  # as a variable has it
                leaf = np.asarray(leaf)[()]
                text = f"{self._name(type(leaf))}({text})"
            number = len(self.leaves)
            self._leaves.append((text, leaf, number))
            self.leaves.append((text, leaf))
            gradients.append(f"d{number}")
        return unflatten(structure, gradients)

    @property
    def active(self) -> list[list[int]]:
        """For each argument that is differentiated the numbers of its leaves' gradients."""
        names = [flatten(self._gradients[number])[0] for number in self._numbers]
        return [[int(name[1:]) for name in each if name != "None"] for each in names]

    def spell_inputs(self, places: Sequence[int]) -> list[str]:
        """The inputs of a program that are the leaves at these places."""
        return [self._leaves[place][0] for place in places]

    def spell_result(self, is_bare: bool) -> str:
        """The gradients ``d0``, ``d1`` ... of the leaves, in the structure of the arguments."""
        if self.outs:
            return "out"
        spelled = [spell(self._gradients[number]) for number in self._numbers]
        return spelled[0] if is_bare else f"({', '.join(spelled)},)"

    def _name(self, thing: Any) -> str:
        name = f"_{thing.__name__}" if isinstance(thing, type) else f"_dtype_{thing.num}"
        self.names[name] = thing
        return name

    def _read(self, arg: Any, text: str, depth: int) -> Any:
        """The expressions of the leaves, in the structure of an argument."""
        kind = type(arg)
        if kind not in (dict, list, tuple):
            if flatten(arg)[1] != LEAF:  # a container of another kind
                raise Unusual
            return text
        if len(arg) > MOST_LEAVES or depth > DEEPEST:
            raise Unusual
        if kind is not dict:
            self._conditions.append(f"type({text}) is {kind.__name__}")
            self._conditions.append(f"len({text}) == {len(arg)}")
            return kind([self._read(x, f"{text}[{n}]", depth + 1) for n, x in enumerate(arg)])
        if not all(type(key) is str for key in arg):
            raise Unusual
        self._conditions.append(f"type({text}) is dict and tuple({text}) == {tuple(arg)!r}")
        return {key: self._read(x, f"{text}[{key!r}]", depth + 1) for key, x in arg.items()}

    def _check(self, leaf: Any, text: str) -> None:
        """Adds the condition of a leaf."""
        kind = type(leaf)
        if kind is np.ndarray:
            if not is_plain(leaf):
                raise Unusual
            like = f"{text}.shape == {leaf.shape} and {text}.dtype is {self._name(leaf.dtype)}"
            self._conditions.append(f"type({text}) is {self._name(kind)} and {like}")
            order = "c_contiguous" if leaf.flags.c_contiguous else "fnc"
            self._conditions.append(f"(flags := {text}.flags).{order} and flags.aligned")
        elif leaf is None:
            self._conditions.append(f"{text} is None")
        elif kind in STATIC:
            self._conditions.append(f"type({text}) is {kind.__name__} and {text} == {leaf!r}")
        elif kind in (float, complex) or (issubclass(kind, NUMBERS) and kind.__module__ == "numpy"):
            self._conditions.append(f"type({text}) is {self._name(kind)}")
        else:
            raise Unusual


def is_plain(array: np.ndarray) -> bool:
    """Whether an array is one of numbers, as NumPy makes them."""
    dtype, flags = array.dtype, array.flags
    is_own = dtype.kind in "fcbiu" and dtype is OWN_DTYPES.get(dtype.char)
    return is_own and flags.forc and flags.aligned


def spell(tree: Any) -> str:
    """A pytree of expressions as an expression."""
    if isinstance(tree, dict):
        return "{" + ", ".join([f"{key!r}: {spell(each)}" for key, each in tree.items()]) + "}"
    if isinstance(tree, list):
        return f"[{', '.join(map(spell, tree))}]"
    if isinstance(tree, tuple):
        return f"({''.join([f'{spell(each)}, ' for each in tree])})"
    return tree
