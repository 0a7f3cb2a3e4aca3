# SPDX-License-Identifier: Apache-2.0
"""Exceptions and warnings of the package: what was refused, by whom, with the compiler's diagnostics."""
from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass
from typing import Any, Sequence, Type


@dataclass(frozen=True)
class Diagnostic:
    """One thing the compiler says about a model; texts are "" and node_index is -1 where they are not known."""
    severity: str  # "error", "warning" or "note"
    text: str
    file: str = ""
    graph: str = ""
    node: str = ""
    op: str = ""
    node_index: int = -1
    item: str = ""
    line: str = ""  # all of it, as the command line prints it

    def __str__(self) -> str:
        return self.line or "%s: %s" % (self.severity, self.text)


class CytocError(Exception):
    """Base of all errors of this package."""


class CompileError(CytocError):
    """A model that cannot be compiled. `diagnostics` has everything that the compiler said, `status` its status."""

    def __init__(self, message: str, status: str = "", diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.diagnostics = tuple(diagnostics)


class LoadError(CytocError):
    """A library that cannot be opened: missing, damaged, for another CPU, or of another version."""


class RunError(CytocError):
    """A run that failed, or was refused. `status` is the runtime's status in words, "shape mismatch" for one."""

    def __init__(self, message: str, status: str = "") -> None:
        super().__init__(message)
        self.status = status


class InputError(RunError, ValueError):
    """Inputs that do not fit the model: number, names, element types or shapes."""


class PipelineError(RunError):
    """An item of a pipeline that failed: its `number` from 0, the `item` itself and the `stage` by name. __cause__ is what a function
    raised, or None where a model's run failed, and `status` says how."""

    def __init__(self, message: str, number: int, item: Any, stage: str, status: str = "failure while running") -> None:
        super().__init__(message, status)
        self.number, self.item, self.stage = number, item, stage


class PipelineCancelled(RunError):
    """A pipeline that was cancelled while its results were waited for."""


class CompileWarning(UserWarning):
    """What the compiler warns of."""


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def warn(text: str, category: Type[Warning] = UserWarning) -> None:
    """A warning that points to the line that called the package, however deep in it this is."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
