"""Purity: whether the code of a model says that it is a function of its arguments alone.

A model that nobody vouched for is compiled only if its references can be watched (``watch``), and
its code neither changes them nor asks a clock, a file or the like. All of the code counts, or what
ran of it (``paths``). Some things are known to be harmless, and all others are refused.
"""

import abc
import builtins
import dis
import sys
import types
import typing
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain, pairwise, takewhile
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np

from daskgrad.autodiff.tape.operands import is_open
from daskgrad.autodiff.tape.questions import PREFIX
from daskgrad.autodiff.values.trees import codes_in

LIBRARIES = {*("numpy scipy autograd daskgrad builtins collections _operator enum".split())}
STANDARD = frozenset("math cmath operator itertools functools _functools".split())
STANDARD |= frozenset("collections typing numbers".split())
FUNCTIONS = (types.BuiltinFunctionType, type(np.sum))  # of libraries, beside Python's
BUILTINS = {
    *("abs all any bool bytes complex dict divmod enumerate filter float frozenset int".split()),
    *("isinstance issubclass iter len list map max min next object pow range reversed".split()),
    *("round set slice sorted str sum super tuple zip NotImplemented Ellipsis".split()),
}
# names in libraries that change, that change something, or that reach any attribute
CHANGING = {
    *("random default_rng load loadtxt genfromtxt fromfile fromregex memmap open_memmap".split()),
    *("DataSource datasets io seterr seterrcall setbufsize set_printoptions ctypeslib".split()),
    *("attrgetter methodcaller cache lru_cache cached_property save savez savetxt tofile".split()),
    *("geterr geterrcall getbufsize get_printoptions array_str array_repr array2string".split()),
    *("datetime64 frompyfunc is_ is_not".split()),
}
# methods that draw random numbers, or reach attributes
REFUSED = set("rvs format format_map tofile dump mro cache_info cache_clear".split())
OF_ZONES = set("today now utcnow timestamp astimezone strftime".split())  # methods of dates
HARMLESS = {"__name__", "__len__", "__doc__"}
MISSED = ("AttributeError", "Exception", "BaseException")  # nobody watches for missing attributes
EQUALITY = {"__eq__", "__ne__"}
COMPARISONS = {*EQUALITY, "__lt__", "__le__", "__gt__", "__ge__"}
TEXT = {"__str__", "__repr__", "__format__"}
OF_ITSELF = {*TEXT, "__hash__"}  # methods that may ask an object for its class and identity
ASKED = {"__class__", "__qualname__", "hash", "id", "type"}
CHANGES = {"STORE_GLOBAL", "DELETE_GLOBAL", "DELETE_ATTR", "LOAD_BUILD_CLASS"}
MAKERS = {"__init__", "__post_init__"}  # they get a new object, if nobody calls them by name
ELEMENTS = ("STORE_SUBSCR", "DELETE_SUBSCR")
STORES = ("STORE_DEREF", "DELETE_DEREF")
GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
OUTER = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
OPERATORS = ("BINARY_OP", "COMPARE_OP")
BINARY = (*OPERATORS, "BINARY_SUBSCR")
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM")
BY_TEXT = "FORMAT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC CONVERT_VALUE".split()
BY_TEXT += "str repr % %= mod str_".split()
BY_EQUALITY = "== != CONTAINS_OP index count remove eq ne".split()
BY_ORDER = "< <= > >= sorted min max sort lt le gt ge".split()
BY_HASH = (
    "CONTAINS_OP BUILD_SET BUILD_MAP SET_ADD MAP_ADD STORE_SUBSCR BINARY_SUBSCR [] set".split()
)
BY_HASH += "frozenset dict get pop setdefault add discard remove update getitem contains".split()
COMPARED = ("IS_OP", "COMPARE_OP", "CONTAINS_OP")
QUESTIONS, CALLS = {"hasattr", "getattr", "isinstance"}, ("PRECALL", "CALL")
GENERATORS, SEEDED = ("default_rng", "RandomState"), ("<seeded>",)
ONLY_ONE = {bool, type(None), type(...), type(NotImplemented)}  # which ``is`` tells
WITH_CONSTANTS = ("LOAD_CONST", "BUILD_SLICE")  # as second operands, nothing of the user's
COUNTS = ("+=", "-=")
OF_ATTRIBUTE = ("LOAD_FAST", "COPY", "LOAD_ATTR", None, "BINARY_OP", "SWAP", "STORE_ATTR")
OF_GLOBAL = ("LOAD_GLOBAL", None, "BINARY_OP", "STORE_GLOBAL")
CONSTANTS = ("LOAD_CONST", "LOAD_SMALL_INT")
DYNAMIC = ("__getattr__", "__getattribute__", "__del__")
OF_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)

Paths = dict[str, set[tuple[str, ...]]]
Ran = dict[types.CodeType, set[int] | None]  # the offsets of instructions; None for all of them


class Code(NamedTuple):
    """The names in the code of a function, and of functions within it: attributes; globals and
    variables of enclosing functions, with the paths of attributes that are taken out at once.

    ``impurity``: why calls may differ though their arguments are the same; ``imports``: whether
    modules come from elsewhere; ``counters``: attributes and globals that it counts up; ``asked``:
    attributes that ``hasattr`` asks for; ``classes``: globals that are asked alone whether
    something is an instance; ``identities``: names and paths of things with which ``is`` compares;
    ``set``: attributes that it sets; ``others``: the ones that do not belong to an object that is
    being made.
    """

    attributes: frozenset[str]
    globals: Paths
    outer: Paths
    impurity: str | None
    imports: bool
    counters: tuple[set[str], set[str]]
    asked: frozenset[str]
    classes: frozenset[str]
    identities: frozenset[tuple[str, ...]]
    set: frozenset[str]
    others: frozenset[str]


def read(code: types.CodeType, ran: Ran | None = None) -> Code:
    """Reads the instructions that ran; of code that did not, all of them."""
    if ran is None or ran.get(code) is None:
        return read_text(code)
    return code_of(code, [instructions_in(*part) for part in parts_that_ran(code, ran)])


@lru_cache(1024)
def read_text(code: types.CodeType) -> Code:
    return code_of(code, [instructions_in(part) for part in codes_in(code)])


def parts_that_ran(
    code: types.CodeType, ran: Ran | None
) -> Iterator[tuple[types.CodeType, set[int] | None]]:
    """The code of a function, and of functions that it has made, with what ran of it."""
    offsets = None if ran is None else ran.get(code)
    if offsets is None:
        yield from [(part, None) for part in codes_in(code)]
        return
    yield code, offsets
    for op in instructions_in(code, offsets):
        if isinstance(op.argval, types.CodeType):
            yield from parts_that_ran(op.argval, ran)


def instructions_in(code: types.CodeType, offsets: set[int] | None = None) -> list[dis.Instruction]:
    """The instructions at offsets; a long argument is in those before an instruction."""
    instructions, has_begun = [], False
    for op in dis.get_instructions(code):
        has_begun = has_begun or offsets is None or op.offset in offsets
        if has_begun:
            instructions.append(op)
        has_begun = has_begun and op.opname == "EXTENDED_ARG"
    return instructions


def handlers_in(code: types.CodeType, offsets: set[int]) -> set[int]:
    """The offsets of handlers of errors that did not run, but for the errors' classes."""
    handlers: list[dis.Instruction] = []
    is_handler = False
    for op in dis.get_instructions(code):
        is_handler = op.offset not in offsets and (is_handler or op.opname == "PUSH_EXC_INFO")
        if is_handler:
            handlers.append(op)
        if is_handler and op.opname == "CHECK_EXC_MATCH":
            handlers.pop()
            while handlers and handlers[-1].opname in (*ATTRIBUTES, *GLOBALS):
                handlers.pop()
    return {op.offset for op in handlers}


def merge(ran: Ran, more: Ran) -> Ran:
    """Adds the instructions that ran in another call."""
    for code, offsets in more.items():
        known = ran.get(code, offsets)
        ran[code] = None if known is None or offsets is None else known | offsets
    return ran


def code_of(code: types.CodeType, bodies: Sequence[Sequence[dis.Instruction]]) -> Code:
    bodies, counters = without_counters(code, bodies)
    every = [*chain.from_iterable(bodies)]
    outer = paths_in(bodies, OUTER)
    attributes = [op.argval for op in every if op.opname in ATTRIBUTES]
    made = owner_of(code, bodies[0]) if code.co_name in MAKERS else None
    impurity = partial(impurity_of_body, code, made)
    stores = [
        (op.argval, made is not None and names_of(target_of(body, number))[-1] == made)
        for body in bodies
        for number, op in enumerate(body)
        if op.opname == "STORE_ATTR"
    ]
    if "__setattr__" in attributes:  # of a new object, with a name in the code
        stores += [(op.argval, True) for op in every if op.opname == "LOAD_CONST"]
    others = frozenset([name for name, is_of_new in stores if not is_of_new])
    return Code(
        frozenset(attributes).union(*map(implicit, bodies)),
        paths_in(bodies, (*GLOBALS, "STORE_GLOBAL")),
        {name: paths for name, paths in outer.items() if name in code.co_freevars},
        next(filter(None, map(impurity, bodies)), None),
        any([op.opname == "IMPORT_NAME" for op in every]),
        counters,
        *questions_in(bodies),
        frozenset([path for body in bodies for path in identities_in(body, code)]),
        frozenset([name for name, _ in stores if isinstance(name, str)]),
        others,
    )


def questions_in(
    bodies: Sequence[Sequence[dis.Instruction]],
) -> tuple[frozenset[str], frozenset[str]]:
    """The attributes that ``hasattr`` asks for, and the globals that are asked alone whether
    something is an instance."""
    attributes, classes, others = set[str](), set[str](), set[str]()
    for body in bodies:
        asked = set()  # places of classes
        for number, op in enumerate(body):
            if op.opname in GLOBALS and op.argval.removeprefix(PREFIX) in QUESTIONS:
                place = second_argument(body, number)
                if place is not None and op.argval == "isinstance":
                    asked.add(place)
                elif place is not None and body[place].opname == "LOAD_CONST":
                    attributes.add(body[place].argval)
                elif op.argval != "isinstance":
                    return frozenset(), frozenset()
            elif op.opname == "CHECK_EXC_MATCH":
                asked.add(number - 1)
        for number, op in enumerate(body):
            if op.opname in GLOBALS:
                (classes if number in asked else others).add(op.argval)
    return frozenset(attributes), frozenset(classes - others)


def call_at(body: Sequence[dis.Instruction], number: int) -> tuple[list[int], int] | None:
    """The places where the arguments of a function begin, and the place of its call; the function,
    or the thing that it is a method of, is loaded at a place. None if an argument has branches, or
    is named."""
    depth, starts = 0, dict[int, int]()  # of the stack
    for place in range(number, len(body)):
        op, count = body[place], body[place].arg or 0
        if op.opname in CALLS and body[place - 1].opname != "PRECALL" and depth - count == 2:
            return [starts[2 + n] for n in range(count)], place
        if "JUMP" in op.opname or op.opname == "KW_NAMES" or depth < min(max(starts, default=0), 2):
            return None  # it was called otherwise
        starts[depth] = place
        depth += dis.stack_effect(op.opcode, op.arg, jump=False)
    return None


def second_argument(body: Sequence[dis.Instruction], number: int) -> int | None:
    """The place of the second argument of the function at a place, if one instruction loads it."""
    starts, end = call_at(body, number) or ([], 0)
    if len(starts) < 2 or (len(starts) > 2 and body[number].argval != "getattr"):
        return None
    stop = [*starts, end][2]
    return starts[1] if starts[1] + 1 == stop else None


def without_counters(
    code: types.CodeType, bodies: Sequence[Sequence[dis.Instruction]]
) -> tuple[list[list[dis.Instruction]], tuple[set[str], set[str]]]:
    """The code of a function, and of functions within, without what counts: attributes of its first
    argument, and globals; and the names of both."""
    counters: tuple[set[str], set[str]] = set(), set()
    others = []
    for number, body in enumerate(bodies):
        owner = None if number else owner_of(code, body)
        others.append(list(rest_of(body, owner, counters)))
    return others, counters


def owner_of(code: types.CodeType, body: Sequence[dis.Instruction]) -> str | None:
    """The first argument of a function that sets no other value in its place."""
    name = code.co_varnames[0] if code.co_argcount else None
    is_set = any([op.opname.startswith("STORE") and name in names_of(op) for op in body])
    return None if is_set or name in code.co_cellvars else name


def names_of(op: dis.Instruction) -> Sequence[Any]:
    return op.argval, *op.argrepr.split(", ")


def target_of(body: Sequence[dis.Instruction], number: int) -> dis.Instruction:
    """The instruction that loads an object whose attribute another one sets, or that holds this
    object."""
    place, name = number - 1, body[number].argval
    if body[place].opname == "SWAP":  # ``a.b += c``
        while place > 0 and (body[place].opname != "COPY" or body[place + 1].argval != name):
            place -= 1
        place -= 1
    while body[place].opname in ATTRIBUTES:
        place -= 1
    return body[place]


def rest_of(
    body: Sequence[dis.Instruction], owner: str | None, counters: tuple[set[str], set[str]]
) -> Iterator[dis.Instruction]:
    """The instructions that do not count; adds the names of counters."""
    place = 0
    while place < len(body):
        for pattern, names in zip((OF_ATTRIBUTE, OF_GLOBAL), counters, strict=True):
            part = body[place : place + len(pattern)]
            if counts(part, pattern) and (pattern is OF_GLOBAL or part[0].argval == owner):
                names.add(part[-1].argval)
                place += len(pattern)
                break
        else:
            yield body[place]
            place += 1


def counts(part: Sequence[dis.Instruction], pattern: Sequence[str | None]) -> bool:
    """Whether instructions add a whole number to one attribute, or global, and store it."""
    if len(part) < len(pattern):
        return False
    for op, name in zip(part, pattern, strict=True):
        if name is None:
            is_right = op.opname in CONSTANTS and type(op.argval) is int
        else:
            is_right = op.opname.startswith(name) and (name != "BINARY_OP" or op.argrepr in COUNTS)
        if not is_right:
            return False
    (loaded,) = [op for op in part if op.opname in ("LOAD_ATTR", "LOAD_GLOBAL")]
    return loaded.argval == part[-1].argval


def paths_in(bodies: Sequence[Sequence[dis.Instruction]], names: Sequence[str]) -> Paths:
    paths: Paths = {}
    for body in bodies:
        for number, op in enumerate(body):
            if op.opname in names and not asks_for_type(body, number):
                taken = takewhile(lambda other: other.opname in ATTRIBUTES, body[number + 1 :])
                name = op.argval.removeprefix(PREFIX)  # of a builtin that is asked elsewhere
                path = tuple([other.argval for other in taken])
                if (name, *path)[-1] in GENERATORS and has_seed(body, number):
                    path += SEEDED
                paths.setdefault(name, set()).add(path)
    return paths


def has_seed(body: Sequence[dis.Instruction], number: int) -> bool:
    """Whether the function that is loaded at a place is called with a whole number alone."""
    starts, end = call_at(body, number) or ([], 0)
    is_constant = [body[start].opname in CONSTANTS for start in starts] == [True]
    return is_constant and starts[0] + 1 == end and type(body[starts[0]].argval) is int


def asks_for_type(body: Sequence[dis.Instruction], number: int) -> bool:
    """Whether the type of a thing is asked for, and compared, or an attribute of it taken."""
    if body[number].argval != f"{PREFIX}type":
        return False
    starts, end = call_at(body, number) or ([], len(body))
    depth = 1  # of the stack, with the type below
    after = end + (1 if body[end:] and body[end].opname == "CALL" else 2)
    for place, op in enumerate(body[after:]):
        if op.opname in COMPARED or (op.opname in ATTRIBUTES and place == 0):
            return depth <= 2 and len(starts) == 1
        if not op.opname.startswith(("LOAD_", "BUILD_")):
            return False
        depth += dis.stack_effect(op.opcode, op.arg, jump=False)
    return False


def identities_in(
    body: Sequence[dis.Instruction], code: types.CodeType
) -> Iterator[tuple[str, ...]]:
    """The things, as a global or a variable of an enclosing function and attributes, with which
    ``is`` compares; a path of no name for any other."""
    for number, op in enumerate(() if is_of_dataclass(code) else body):
        is_of_one = number and is_only_one(body[number - 1]) and not op.is_jump_target
        if op.opname == "IS_OP" and not is_of_one:
            path = []
            while body[number - 1].opname in ATTRIBUTES:
                number -= 1
                path.append(body[number].argval)
            start = body[number - 1]
            is_named = start.opname in GLOBALS or (
                start.opname in OUTER and start.argval in code.co_freevars
            )
            yield (start.argval, *path[::-1]) if is_named and not op.is_jump_target else ()


def implicit(body: Sequence[dis.Instruction]) -> set[str]:
    """The methods that Python may call for the instructions, globals and attributes of code."""
    used = {op.argval for op in body if op.opname in (*GLOBALS, *ATTRIBUTES)}
    for before, op in pairwise(body):
        word = op.argrepr if op.opname in OPERATORS else op.opname
        if word in ("%", "%=") or op.opname not in BINARY or before.opname not in WITH_CONSTANTS:
            used.add(word)
    return {
        *(TEXT if not used.isdisjoint(BY_TEXT) else ()),
        *(EQUALITY if not used.isdisjoint(BY_EQUALITY) else ()),
        *(COMPARISONS if not used.isdisjoint(BY_ORDER) else ()),
        *(["__hash__"] if not used.isdisjoint(BY_HASH) else ()),
    }


def makes_object(method: types.FunctionType) -> bool:
    """Whether a class method may call its class: it does more than to take attributes of it."""
    code, body = method.__code__, [*dis.get_instructions(method)]
    name = code.co_varnames[0] if code.co_varnames else None
    uses = [
        op.opname not in ATTRIBUTES
        for before, op in pairwise(body)
        if before.opname.startswith("LOAD_FAST") and name in names_of(before)
    ]
    return name in code.co_cellvars or any(uses)


def impurity_of_body(
    code: types.CodeType, made: str | None, body: Sequence[dis.Instruction]
) -> str | None:
    """Why code may be impure: it changes something that is not its own, or compares identities.

    ``made``: the variable of an object that is being made.
    """
    if is_of_dataclass(code):
        return None
    outer = code.co_freevars
    harmless = HARMLESS | ASKED if code.co_name in OF_ITSELF else HARMLESS
    for number, op in enumerate(body):
        name = op.argval
        container = body[number - 2] if number > 1 else None
        if op.opname in ELEMENTS and container is not None:
            held, opname = container.argval, container.opname
            if opname in GLOBALS or (opname in OUTER and held in outer):
                return f"it assigns or deletes an element of {held!r}"
        is_change = op.opname in CHANGES or (op.opname in STORES and name in outer)
        if op.opname == "STORE_ATTR":  # the names are watched
            target = target_of(body, number)
            is_variable = "LOAD_FAST" in target.opname or target.opname in OUTER
            is_change = not is_variable or target.argval in outer
        if is_change:
            return f"it assigns or deletes {name!r}, which is not a variable of its own"
        if [other.opname for other in body[number : number + 2]] == ["PUSH_EXC_INFO", "POP_TOP"]:
            return "it catches any exception"  # of attributes, too, that nobody watches for
        if op.opname == "MATCH_CLASS":
            return "it matches a pattern of a class"
        if op.opname == "IMPORT_NAME":
            impurity = impurity_of_path(name) if is_lasting(name) else f"it imports {name!r}"
            if impurity:
                return impurity
        if op.opname in ATTRIBUTES and (name in MAKERS or name == "__setattr__"):
            if not is_of_base(body, number, made):
                return f"it calls {name!r} of an object"
        elif op.opname in ATTRIBUTES and name not in harmless:
            is_dunder = name.startswith("__") and name.endswith("__")
            if name in REFUSED or is_dunder or (name in OF_ZONES and is_method(op)):
                return f"it uses {name!r}"
    return None


def is_of_base(body: Sequence[dis.Instruction], number: int, made: str | None) -> bool:
    """Whether an object that is being made is passed to the method of a base class; to
    ``__setattr__`` with a name in the code."""
    is_super = "super" in [op.argval for op in body[max(number - 3, 0) : number]]
    is_passed = number + 1 < len(body) and names_of(body[number + 1])[-2:][0] == made
    if body[number].argval == "__setattr__":
        is_constant = body[number + 1].argval == made and body[number + 2].opname == "LOAD_CONST"
        return made is not None and body[number - 1].argval == "object" and is_constant
    return made is not None and (
        body[number].opname == "LOAD_SUPER_ATTR"
        or (is_super and body[number - 1].opname in CALLS)
        or (body[number - 1].opname in (*GLOBALS, *ATTRIBUTES) and is_passed)
    )


def is_method(op: dis.Instruction) -> bool:
    """Whether an instruction takes an attribute that is called at once."""
    has_flag = "LOAD_METHOD" not in dis.opmap  # since Python 3.12
    return op.opname == "LOAD_METHOD" or (has_flag and bool((op.arg or 0) & 1))


def is_of_dataclass(code: types.CodeType) -> bool:
    """Whether ``dataclass`` made a function."""
    return code.co_qualname.startswith("__create_fn__.")


def is_only_one(op: dis.Instruction) -> bool:
    """Whether an instruction gives a constant that has no equals but itself."""
    return op.opname == "LOAD_CONST" and type(op.argval) in ONLY_ONE


def impurity_of_path(path: str) -> str | None:
    """Whether a thing of a library changes, by its real name."""
    return None if CHANGING.isdisjoint(path.split(".")) else f"it uses {path}"


def path_of(thing: Any) -> str:
    """The module and the name of a function or class, or of an object's class."""
    named = thing if hasattr(thing, "__name__") else type(thing)
    return f"{named.__module__}.{named.__name__}"


def impurity_of_library(thing: Any, name: str) -> str | None:
    """Why a thing that is not the user's is no lasting function or class of a known library."""
    kind = type(thing)
    if isinstance(thing, type) and thing.__module__ == "builtins":
        if thing.__name__ in BUILTINS or issubclass(thing, BaseException):
            return None
        return f"it refers to the class {thing.__name__!r}"
    owner = getattr(thing, "__self__", None)
    is_free = owner is None or isinstance(owner, types.ModuleType)
    is_known = (isinstance(thing, type) or kind in FUNCTIONS) and is_free
    is_known = is_known and is_lasting(getattr(thing, "__module__", None))
    if is_known and thing.__module__ == "builtins":
        is_known = thing.__name__ in BUILTINS
    if is_known or kind.__module__.startswith("daskgrad.scipy."):  # distributions
        return impurity_of_path(path_of(thing))
    return f"it refers to {name!r}, an object of type {kind.__qualname__}"


def impurity_of_builtin(name: str, caller: str) -> str | None:
    thing = getattr(builtins, name, None)
    is_exception = isinstance(thing, type) and issubclass(thing, BaseException)
    is_known = name in BUILTINS or (is_exception and name not in MISSED)
    is_known |= caller in OF_ITSELF and name in ASKED
    return None if is_known else f"it calls {name!r}"


@lru_cache(1024)
def is_plain_class(kind: Any) -> bool:
    """Whether a class is the user's and written in Python, and its objects are their attributes."""
    bases = [base for base in kind.__mro__ if base not in (object, abc.ABC, typing.Generic)]
    members = [member for base in bases for member in vars(base).items()]
    return kind is types.SimpleNamespace or (
        type(kind) in (type, abc.ABCMeta)
        and bool(bases)
        and not any([is_lasting(base.__module__) for base in bases])
        and not any([isinstance(value, OF_C) or name in DYNAMIC for name, value in members])
        and not any([is_of_python(base) and "__slots__" in vars(base) for base in bases])
    )


def is_of_python(kind: type) -> bool:
    """Whether a class is of Python's own library, as UUIDs and paths are."""
    return kind.__module__.split(".")[0] in sys.stdlib_module_names


def is_of_library(module: Any) -> bool:
    return isinstance(module, str) and module.split(".")[0] in LIBRARIES


def is_lasting(module: Any) -> bool:
    """Whether a module is of a library that does not change, or of Python's own of that kind."""
    return is_of_library(module) or (isinstance(module, str) and module.split(".")[0] in STANDARD)


def is_primitive(fun: types.FunctionType) -> bool:
    """Whether autograd records calls of this function: the programs call it, too."""
    return fun.__code__ in (anp.sin.__code__, anp.shape.__code__)  # of autograd's wrappers


def is_read_only(array: Any) -> bool:
    """Whether nobody can write into an array or its bases."""
    while isinstance(array, np.ndarray):
        if is_open(array):
            return False
        array = array.base
    return array is None or isinstance(array, bytes)
