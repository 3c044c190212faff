"""Functions that the text of a list calls: sums in NumPy's order, dot products, and the processor's
floating-point flags."""

from collections.abc import Callable

from daskgrad.autodiff.native.writer import FAILED, TextWriter

LANES = "<4 x double>"
KEEP = """  %mark = select i1 %is, i64 FAILED, i64 0
  %old = load i64, ptr %marks
  %new = or i64 %old, %mark
  store i64 %new, ptr %marks
  ret void
}
"""
X86 = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define internal void @keep_flags(ptr %marks) noinline {
  %at = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %at)
  %state = load i32, ptr %at
  %raised = and i32 %state, 13
  %is = icmp ne i32 %raised, 0
KEEPdefine internal void @clear_flags() noinline {
  %at = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %at)
  %state = load i32, ptr %at
  %clear = and i32 %state, -64
  store i32 %clear, ptr %at
  call void @llvm.x86.sse.ldmxcsr(ptr %at)
  ret void
}
"""
OTHERS = """
declare i32 @fetestexcept(i32)
declare i32 @feclearexcept(i32)
define internal void @keep_flags(ptr %marks) noinline {
  %raised = call i32 @fetestexcept(i32 7)
  %is = icmp ne i32 %raised, 0
KEEPdefine internal void @clear_flags() noinline {
  %done = call i32 @feclearexcept(i32 31)
  ret void
}
"""  # of ARM: division by zero, overflow and invalid operation are 7


def flags(is_x86: bool) -> str:
    return (X86 if is_x86 else OTHERS).replace("KEEP", KEEP).replace("FAILED", str(FAILED))


def lanes(w: TextWriter, at: str, step: str, is_one: bool) -> str:
    """Four entries from an address on."""
    if is_one:
        return w.put(f"load {LANES}, ptr {at}, align 8")
    value = "poison"
    for n in range(4):
        entry = w.put(f"load double, ptr {w.moved(at, w.times(n, step), 'double')}")
        value = w.put(f"insertelement {LANES} {value}, double {entry}, i32 {n}")
    return value


def added_up(w: TextWriter, slots: list[str]) -> str:
    """The sum of lanes, neighbours first."""
    values = [w.put(f"load {LANES}, ptr {slot}") for slot in slots]
    parts = [w.put(f"extractelement {LANES} {x}, i32 {n}") for x in values for n in range(4)]
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [w.put(f"fadd double {x}, {y}") for x, y in pairs]
    return parts[0]


def accumulated(w: TextWriter, operands: str, count: int, one: bool, of: Callable) -> str:
    """The sum over entries ``of(entries of the operands, kind)`` with so many lanes, and then over
    the remaining ones, in order."""
    slots = [w.slot(LANES) for _ in range(count // 4)]
    for slot in slots:
        w.do(f"store {LANES} splat (double -0.0), ptr {slot}")

    def at(name: str, place: str) -> str:
        return w.moved(f"%{name}", w.times(place, f"%s{name}") if not one else place, "double")

    with w.loop(w.put(f"sdiv i64 %n, {count}")) as i:
        for k, slot in enumerate(slots):
            place = str(w.plus(w.times(i, count), 4 * k))
            parts = [lanes(w, at(name, place), f"%s{name}", one) for name in operands]
            old = w.put(f"load {LANES}, ptr {slot}")
            new = w.put(f"fadd {LANES} {old}, {of(w, parts, LANES)}")
            w.do(f"store {LANES} {new}, ptr {slot}")
    rest = w.slot("double")
    w.do(f"store double {added_up(w, slots)}, ptr {rest}")
    done = w.put(f"sub i64 %n, {w.put(f'srem i64 %n, {count}')}")
    with w.loop(w.put(f"srem i64 %n, {count}")) as i:
        place = str(w.plus(i, done))
        parts = [w.put(f"load double, ptr {at(name, place)}") for name in operands]
        old = w.put(f"load double, ptr {rest}")
        new = w.put(f"fadd double {old}, {of(w, parts, 'double')}")
        w.do(f"store double {new}, ptr {rest}")
    return w.put(f"load double, ptr {rest}")


def entries_alone(w: TextWriter, parts: list[str], kind: str) -> str:
    return parts[0]


def products(w: TextWriter, parts: list[str], kind: str) -> str:
    return w.put(f"fmul {kind} {parts[0]}, {parts[1]}")


def helper(name: str, operands: str, count: int, of: Callable) -> str:
    """A function of operands and their steps; a branch of it is for entries side by side."""
    texts = []
    for one in (True, False):
        w = TextWriter()
        result = accumulated(w, operands, count, one, of)
        params = ", ".join([f"ptr %{x}, i64 %s{x}" for x in operands])
        body = [*w.entry, *w.lines, f"  ret double {result}", "}"]
        inline = "alwaysinline" if one else "noinline"
        full_name = f"{name}_{'near' if one else 'far'}"
        head = f"define internal double @{full_name}({params}, i64 %n) {inline} {{"
        texts.append("\n".join([head, "entry:", *body]))
    tests = [f"  %is{x} = icmp eq i64 %s{x}, 1" for x in operands]
    both = "%isa" if len(operands) == 1 else "%both"
    if len(operands) == 2:
        tests.append("  %both = and i1 %isa, %isb")
    args = ", ".join([f"ptr %{x}, i64 %s{x}" for x in operands])
    texts.append(
        f"define internal double @{name}({args}, i64 %n) {{\n"
        + "\n".join(tests)
        + f"""
  br i1 {both}, label %near, label %far
near:
  %one = call double @{name}_near({args}, i64 %n)
  ret double %one
far:
  %other = call double @{name}_far({args}, i64 %n)
  ret double %other
}}"""
    )
    return "\n".join(texts)


# NumPy adds up to 128 entries in eight sums, and halves more of them
SUMS = (
    helper("few", "a", 8, entries_alone)
    + """
define internal double @sum(ptr %a, i64 %s, i64 %n) {
  %is = icmp sle i64 %n, 128
  br i1 %is, label %few, label %many
few:
  %one = call double @few(ptr %a, i64 %s, i64 %n)
  ret double %one
many:
  %half = lshr i64 %n, 1
  %first = and i64 %half, -8
  %x = call double @sum(ptr %a, i64 %s, i64 %first)
  %offset = mul i64 %first, %s
  %b = getelementptr double, ptr %a, i64 %offset
  %rest = sub i64 %n, %first
  %y = call double @sum(ptr %b, i64 %s, i64 %rest)
  %total = fadd double %x, %y
  ret double %total
}
"""
)
HELPERS = SUMS + helper("dot", "ab", 16, products)
