"""Reasons against one program for the evaluation that runs, so that nobody tries to make it."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

MOST_STEPS = 4000  # of an evaluation, in models with programs: one for all saves little more


class Reasons:
    """The ``texts`` of reasons, and the ``steps`` that programs of models have run."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.steps = 0


_reasons: ContextVar[Reasons | None] = ContextVar("against a program", default=None)


def refuse(reason: str) -> None:
    """Says that the evaluation that runs cannot be one program."""
    reasons = _reasons.get()
    if reasons is not None:
        reasons.texts.append(reason)


def note_steps(count: int) -> None:
    """Notes the steps of a model's program that has run; twice too many are a reason, since steps
    are no exact number of calls."""
    reasons = _reasons.get()
    if reasons is not None:
        before, reasons.steps = reasons.steps, reasons.steps + count
        if before <= 2 * MOST_STEPS < reasons.steps:
            reasons.texts.append(TOO_LONG)


TOO_LONG = f"its models have programs of their own, of more than {2 * MOST_STEPS:,} steps"


def with_reasons(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """The result of a call, and the reasons against a program that it gives."""
    reasons = Reasons()
    token = _reasons.set(reasons)
    try:
        return call(), reasons.texts
    finally:
        _reasons.reset(token)
