# SPDX-License-Identifier: Apache-2.0
"""Options of compiling as the command line has them, for commands of the package that pass them through."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

_WITH_VALUE = ("--dim", "--shape", "--target", "--calibrate", "--int8-skip", "--weights", "-O")


def joined(words: Sequence[str]) -> List[str]:
    """`--dim NAME=N` made one word."""
    found: List[str] = []
    for word in words:
        if found and found[-1] in _WITH_VALUE:
            found[-1] += "=" + word if found[-1].startswith("--") else word
        else:
            found.append(word)
    return found


def split(words: Sequence[str]) -> Tuple[List[str], Optional[str]]:
    """(options, each one word; the first word that is none, or None)."""
    found = joined(words)
    return found, next((word for word in found if not word.startswith("-")), None)


def keywords(words: Sequence[str]) -> Dict[str, Any]:
    """What cytoc.compile() takes for these options."""
    found: Dict[str, Any] = {}
    for word in words:
        name, has_value, value = word.lstrip("-").partition("=")
        if not word.startswith("--") and len(name) > 1:  # -O2
            name, has_value, value = name[0], "=", name[1:]
        name = name.replace("-", "_")
        if name == "dim":
            symbol, _, size = value.partition("=")
            found.setdefault("dims", {})[symbol] = int(size) if size.isdigit() else 0
        elif name == "shape":
            port, _, sizes = value.partition("=")
            found.setdefault("shapes", {})[port] = [None if s == "?" else int(s) for s in sizes.split("x")]
        else:
            found[name] = value if has_value else True
    return found
