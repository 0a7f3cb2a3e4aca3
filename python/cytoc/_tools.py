# SPDX-License-Identifier: Apache-2.0
"""The command lines, as entry points of the package."""
from __future__ import annotations

import os
import sys
from typing import NoReturn

from ._native import library_dir


def _run(name: str) -> NoReturn:
    folder = library_dir()
    for path in (os.path.join(folder, "bin", name), os.path.join(folder, name)):
        if os.path.exists(path):
            os.environ.setdefault("CYTO_PYTHON", sys.executable)  # where cyto-bench finds onnxruntime and torch
            os.execv(path, [name, *sys.argv[1:]])
    sys.exit("%s is not part of this installation: reinstall the package cytoc" % name)


def cytoc() -> NoReturn:
    if sys.argv[1:2] == ["report"]:
        from .report import main
        sys.exit(main(sys.argv[2:]))
    if sys.argv[1:2] == ["predict"]:
        from .predict import main as predict
        sys.exit(predict(sys.argv[2:]))
    _run("cytoc")


def cyto_run() -> NoReturn:
    _run("cyto-run")


def cyto_bench() -> NoReturn:
    _run("cyto-bench")


def cyto_compare() -> NoReturn:
    _run("cyto-compare")


def cyto_tune() -> NoReturn:
    _run("cyto-tune")
