"""Random models whose references change between calls: each call has the bits of the tape.

A model refers to a few things of random kinds, which refer to further ones. At random times one
of them is bound to another object, gets another attribute or other code, or changes in place.
"""

import collections
import dataclasses
import functools
import re
import types
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import dask
import numpy as np
from captured_calls import is_same

import daskgrad as dg


class Kind(NamedTuple):
    """How something is defined, the expressions that refer to it, and what changes it.

    NAME is its own name, NUMBER another number at each place, and INNER refers to something else.
    """

    text: str
    uses: Sequence[str]
    changes: Sequence[str] = ()


KINDS = {
    "a global": Kind("NAME = NUMBER", ["NAME"], ["NAME = NUMBER"]),
    "a builtin": Kind("", ["abs(1.5)"], ["abs = lambda y: y * NUMBER", "globals().pop('abs', 0)"]),
    "an array": Kind(
        "NAME = np.array([NUMBER, NUMBER])",
        ["NAME[0]"],
        ["NAME[0] = NUMBER", "NAME = np.array([NUMBER, 1.0])"],
    ),
    "a view": Kind(
        "base_NAME = np.full(4, NUMBER)\nNAME = np.broadcast_to(base_NAME, (2, 4))",
        ["NAME[0, 1]"],
        ["base_NAME[1] = NUMBER"],
    ),
    "a wide array": Kind(
        "NAME = np.full(3000, NUMBER)",
        ["NAME[7]", "np.sum(NAME)", "(2.0 if NAME[7] > 1.5 else 3.0)"],
        ["NAME[7] = NUMBER", "NAME = np.full(3000, NUMBER)", "NAME = np.full(4000, NUMBER)"],
    ),
    "wide arrays": Kind(
        "NAME = types.SimpleNamespace(k=[np.full(3000, NUMBER), dict(a=(np.full(3000, NUMBER),))])",
        ["NAME.k[0][3] * NAME.k[1]['a'][0][4]", "(NAME.k[0] + NAME.k[1]['a'][0])[5]"],
        [
            "NAME.k[0][3] = NUMBER",
            "NAME.k[1]['a'][0][4] = NUMBER",
            "NAME.k[0] = np.full(3000, NUMBER)",
            "NAME.k[1]['a'] = (np.full(3000, NUMBER),)",
            "NAME.k[1] = dict(a=(np.full(3000, NUMBER),))",
        ],
    ),
    "no axes": Kind("NAME = np.array(NUMBER)", ["NAME"], ["NAME[()] = NUMBER"]),
    "a row": Kind("NAME = np.ones(1, [('a', float)])[0]", ["NAME['a']"], ["NAME['a'] = NUMBER"]),
    "a ufunc": Kind("NAME = np.sin", ["NAME(1.1)"], ["NAME = np.exp", "NAME = np.cos"]),
    "a slice": Kind("NAME = slice(2)", ["sum([1.0, 2.0][NAME])"], ["NAME = slice(1)"]),
    "a tuple": Kind(
        "NAME = np.array([NUMBER]), (np.array([NUMBER]), 2.0)",
        ["NAME[1][0][0] * NAME[0][0]"],
        ["NAME[1][0][0] = NUMBER", "NAME[0][0] = NUMBER"],
    ),
    "a dict": Kind(
        "NAME = dict(a=NUMBER, b=[NUMBER, (2.0, [NUMBER])])",
        ["NAME['a'] * NAME['b'][0] * NAME['b'][1][1][0]"],
        ["NAME['a'] = NUMBER", "NAME['b'][0] = NUMBER", "NAME['b'][1][1][0] = NUMBER"],
    ),
    "a deque": Kind("NAME = collections.deque([NUMBER])", ["NAME[-1]"], ["NAME.append(NUMBER)"]),
    "a set": Kind("NAME = {NUMBER}", ["len(NAME)", "sum(NAME)"], ["NAME.add(NUMBER)"]),
    "a function": Kind(
        "def NAME(y): return y * INNER",
        ["NAME(1.25)"],
        ["def NAME(y): return y * NUMBER", "NAME.__code__ = (lambda y: y * NUMBER).__code__"],
    ),
    "a default": Kind(
        "def NAME(y, k=np.full(2, NUMBER)): return y * k[1] * INNER",
        ["NAME(1.25)"],
        ["NAME.__defaults__ = ([1.0, NUMBER],)", "NAME.__defaults__[0][1] = NUMBER"],
    ),
    "a default of a keyword": Kind(
        "def NAME(y, *, k=[NUMBER]): return y * k[0] * INNER",
        ["NAME(1.25)"],
        [
            "NAME.__kwdefaults__['k'] = [NUMBER]",
            "NAME.__kwdefaults__['k'][0] = NUMBER",
            "NAME.__kwdefaults__ = dict(k=[NUMBER])",
        ],
    ),
    "an attribute of a function": Kind(
        "def NAME(y): return y * NAME.k * INNER\nNAME.k = NUMBER",
        ["NAME(2.0)"],
        ["NAME.k = NUMBER"],
    ),
    "a partial": Kind(
        "fun_NAME = lambda y, k: y * k * INNER\nNAME = functools.partial(fun_NAME, k=NUMBER)",
        ["NAME(1.25)"],
        ["NAME.keywords['k'] = NUMBER", "NAME = functools.partial(fun_NAME, k=NUMBER)"],
    ),
    "a closure": Kind(
        """
def make_NAME(k):
    def get(y): return y * k * INNER
    def put(number):
        nonlocal k
        k = number
    return get, put
NAME, put_NAME = make_NAME(NUMBER)
""",
        ["NAME(1.25)"],
        ["put_NAME(NUMBER)", "NAME, put_NAME = make_NAME(NUMBER)"],
    ),
    "a function of a function": Kind(
        "NAME = (lambda f: lambda y: f(y) * INNER)(lambda y: y + NUMBER)",
        ["NAME(1.5)"],
        ["NAME = (lambda f: lambda y: f(y))(lambda y: y + NUMBER)"],
    ),
    "the name of a library's": Kind(
        "@functools.wraps(np.sum)\ndef NAME(y): return y * INNER", ["NAME(1.25)"]
    ),
    "kept results": Kind(
        "@functools.lru_cache\ndef NAME(y): return y * NUMBER", ["NAME(2.0)", "NAME(1.0)"]
    ),
    "a module": Kind(
        """
NAME, NAME.sub = types.ModuleType('NAME'), types.ModuleType('sub')
NAME.k = NAME.sub.k = NUMBER
exec('def fun(y): return y * k', vars(NAME.sub))
""",
        ["NAME.k", "NAME.sub.k", "NAME.sub.fun(1.5)"],
        ["NAME.k = NUMBER", "NAME.sub.k = NUMBER"],
    ),
    "a named tuple": Kind(
        """
class type_NAME(collections.namedtuple('type_NAME', 'a b')):
    def method(self, y): return self.a * y * INNER
    def __mul__(self, y): return self.b * y * INNER
    def __gt__(self, y): return self.b * INNER > y
NAME = type_NAME(NUMBER, NUMBER)
""",
        ["NAME.method(1.5)", "(NAME * 1.5)", "NAME.a", "(2.0 if NAME > 1.5 else 0.5)"],
        [
            "NAME = NAME._replace(a=NUMBER)",
            "NAME = NAME._replace(b=NUMBER)",
            "type_NAME.method = lambda self, y: self.a * y * NUMBER",
        ],
    ),
    "an object": Kind(
        """
class type_NAME:
    shared = NUMBER
    __slots__ = 'slot', '__dict__'
    def __init__(self):
        self.own, self.slot, self.inner = [NUMBER], 1.0, types.SimpleNamespace(k=NUMBER)
    def method(self, y): return self.own[0] * y * self.shared * self.slot * INNER
    @property
    def product(self): return self.own[0] * self.shared
    @functools.cached_property
    def kept(self): return self.own[0]
    def __call__(self, y): return self.method(y)
class child_NAME(type_NAME):
    def method(self, y): return super().method(y) * self.inner.k
NAME = child_NAME()
""",
        ["NAME.method(1.5)", "NAME.product", "NAME.kept", "NAME(2.0)", "NAME.inner.k"],
        [
            "NAME.inner.k = NUMBER",
            "NAME.__dict__['method'] = lambda y: y * NUMBER",
            "vars(NAME).pop('method', 0)",
            "NAME.own[0] = NUMBER",
            "NAME.own = [NUMBER]",
            "NAME.slot = NUMBER",
            "NAME.shared = NUMBER",
            "type_NAME.shared = NUMBER",
        ],
    ),
    "a class between": Kind(
        """
class base_NAME:
    def method(self, y): return y * INNER
class other_NAME(base_NAME): pass
class middle_NAME(base_NAME):
    def idle(self): return 5.0
class child_NAME(middle_NAME): pass
NAME = child_NAME()
""",
        ["NAME.method(1.5)"],
        [
            "vars(middle_NAME).get('idle') and delattr(middle_NAME, 'idle')\n"
            "middle_NAME.method = lambda self, y: y * NUMBER",
            "other_NAME.method = lambda self, y: NUMBER\nchild_NAME.__bases__ = (other_NAME,)",
            "other_NAME.method = lambda self, y: NUMBER\nmiddle_NAME.__bases__ = (other_NAME,)",
            "other_NAME.method = lambda self, y: NUMBER\nNAME.__class__ = other_NAME",
            "base_NAME.method = property(lambda self: lambda y: NUMBER)",
        ],
    ),
    "what Python calls": Kind(
        """
class type_NAME:
    def __str__(self): return f'{key_NAME}'
    def __repr__(self): return f'{key_NAME}'
    def __format__(self, spec): return f'{key_NAME}'
    def __hash__(self): return hash(int(key_NAME))
    def __eq__(self, other): return other == int(key_NAME)
    def __len__(self): return int(2.0 * key_NAME)
    @classmethod
    def make(cls): return cls()
    def __new__(cls): return key_NAME
NAME, key_NAME = object.__new__(type_NAME), NUMBER
table_NAME = {0: 0.5, 1: 1.5, 2: 2.5, 3: 3.5}
""",
        [
            "float(str(NAME))",
            "float(f'{NAME}')",
            "float(f'{NAME!r}')",
            "float('%s' % NAME)",
            "float(str([NAME])[1:-1])",
            "table_NAME[NAME]",
            "(2.0 if NAME in [1] else 3.0)",
            "len(NAME)",
            "NAME.make()",
        ],
        ["key_NAME = NUMBER", "key_NAME = 1.0 + NUMBER % 2.0"],
    ),
    "what dataclass makes": Kind(
        """
@dataclasses.dataclass(order=True, unsafe_hash=True)
class NAME:
    k: object
a_NAME, b_NAME, c_NAME = NAME(NAME(1.0)), NAME(NAME(1.0)), types.SimpleNamespace(k=1.0)
table_NAME = {NAME(1.0): 0.5, NAME(2.0): 1.5}
""",
        [
            "(2.0 if a_NAME == b_NAME else 3.0)",
            "(2.0 if a_NAME < b_NAME else 3.0)",
            "(2.0 if a_NAME in [b_NAME] else 3.0)",
            "(2.0 if c_NAME == types.SimpleNamespace(k=1.0) else 3.0)",
            "table_NAME[b_NAME.k]",
            "len(f'{b_NAME}')",
        ],
        ["b_NAME.k.k = c_NAME.k = 3.0 - b_NAME.k.k", "b_NAME.k = NAME(2.0)\nc_NAME.d = 2.0"],
    ),
    "a property": Kind(
        """
class type_NAME:
    def __init__(self): self._own = NUMBER
    @property
    def product(self): return self._own * INNER
NAME = type_NAME()
""",
        ["NAME.product"],
        ["NAME._own = NUMBER"],
    ),
    "a class": Kind(
        """
class NAME:
    k = NUMBER
    @classmethod
    def of_class(cls, y): return y * cls.k * INNER
    @staticmethod
    def of_none(y): return y * NAME.k
class child_NAME(NAME): pass
""",
        ["NAME.of_class(2.0)", "child_NAME.of_class(2.0)", "child_NAME.of_none(2.0)"],
        ["NAME.k = NUMBER", "child_NAME.k = NUMBER"],
    ),
}
SIMPLE = [name for name, kind in KINDS.items() if "INNER" not in kind.text]
MODELS = [
    "def model(item, x): return item * np.sum(np.sin(x) * PRODUCT)",
    """
def make(fun):
    def model(item, x): return np.sum(x**2) * item * fun()
    return model
model = make(lambda: PRODUCT)
""",
    """
def model(item, x):
    total = 0.0
    for each in x:
        total = total + each * item * PRODUCT
    return total
""",
]
EVALUATIONS = {
    "alone": lambda model: dg.value_and_grad(model, 1),
    "a node": lambda model: dg.value_and_grad(lambda item, x: 2.0 * model(item, x), 1),
    "a sum": lambda model: dg.value_and_grad(lambda n, x: dg.map_sum(model, [n, -n], x), 1),
}
DEEPEST = 3
CALLS = 70
CHANGED = 0.08  # the share of calls before which something changes
X = np.array([0.5, 1.5, -0.7])


class Names:
    """The globals of a model: things of random kinds that refer to each other."""

    def __init__(self, random):
        self._random = random
        self._changes = []
        modules = (np, collections, dataclasses, functools, types)
        named = {module.__name__: module for module in modules}
        self.globals = {**named, "np": np, "__name__": "names"}

    def execute(self, text):
        number = self._random.uniform
        exec(re.sub("NUMBER", lambda _: f"{number(0.5, 3.0):.3f}", text), self.globals)

    def define(self, kind, name, inner):
        """Makes something of a kind; the expressions that refer to it, and what changes it."""
        self.execute(kind.text.replace("NAME", name).replace("INNER", inner))
        return ([text.replace("NAME", name) for text in texts] for texts in kind[1:])

    def reference(self, depth=0):
        """An expression that refers to something new."""
        name = f"name{len(self._changes)}"
        kind = KINDS[self._random.choice(SIMPLE if depth == DEEPEST else list(KINDS))]
        self._changes.append([])
        at = len(self._changes) - 1
        inner = self.reference(depth + 1) if "INNER" in kind.text else ""
        uses, self._changes[at] = self.define(kind, name, inner)
        return self._random.choice(uses)

    def change(self):
        """Changes one of the things, if there is something to change."""
        changes = self._changes[self._random.integers(len(self._changes))]
        if changes:
            self.execute(self._random.choice(changes))


def differences(seed, counts):
    random = np.random.default_rng(seed)
    names = Names(random)
    product = " * ".join([names.reference() for _ in range(random.integers(1, 4))])
    names.execute(random.choice(MODELS).replace("PRODUCT", product))
    how, choice = random.choice(list(EVALUATIONS)), bool(random.integers(2)) or "auto"
    compiled, plain = (
        EVALUATIONS[how](dg.delayed(names.globals["model"], compile=each))
        for each in (choice, False)
    )
    with warnings.catch_warnings(), dask.config.set({"daskgrad.inline.seconds": 60}):
        warnings.simplefilter("ignore")
        for n in range(CALLS):
            if random.random() < CHANGED:
                names.change()
                counts["changes"] += 1
            expected = plain(1.0, X + n)
            try:
                found = compiled(1.0, X + n)
            except dg.NondeterministicModelError:
                return [f"call {n}, {how}, compile={choice}: an error; the model has {product}"]
            counts["calls"] += 1
            if not is_same(found, expected):
                return [f"call {n}, {how}, compile={choice}: differs; the model has {product}"]
    return []
