"""Tables of calls and of what their errors say, as text: ``call -> message``."""

import re


def rows_of(text):
    """The calls and the messages; a row may go on in lines that are indented."""
    lines = re.sub(r"\n +", " ", text).strip().split("\n")
    return [tuple(line.split(" -> ")) for line in lines]


def pattern(message, hole="..."):
    """A regular expression for a message, in which a hole stands for anything."""
    return "(?s:" + ".*".join(map(re.escape, message.split(hole))) + ")"
