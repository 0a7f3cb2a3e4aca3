# SPDX-License-Identifier: Apache-2.0
"""`cytoc report model.onnx -o report.html`: one page that shows everything about a model. docs/report.md tells how to read it.

In:  the command line. Out: a self-contained HTML file; exit code 0, or 1 after a line on stderr.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Dict, List, Optional, Sequence

from .._errors import CytocError
from .._words import split
from ._advice import advise
from ._collect import ReportError, collect
from ._page import page

__all__ = ["main", "report"]


def report(model: str, output: str, options: Sequence[str] = (), *, threads: int = 1, inputs: Optional[str] = None, against: str = "",
           tries: bool = True) -> Dict[str, Any]:
    """Writes the page, and returns what is in it."""
    data = collect(model, options, threads, inputs, against, tries)
    data["advice"] = advise(data)
    _write(output, page(data))
    return data


def _write(path: str, text: str) -> None:
    """A file as a whole or not at all; what is there and is no file (a pipe, a device) is written to."""
    beside = path if os.path.exists(path) and not os.path.isfile(path) else "%s.%d.tmp" % (path, os.getpid())
    try:
        with open(beside, "w", encoding="utf-8") as f:
            f.write(text)
        if beside != path:
            os.replace(beside, path)
    except OSError as e:
        if beside != path and os.path.exists(beside):
            os.remove(beside)
        raise OSError(e.errno, e.strerror, path) from e


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="cytoc report", allow_abbrev=False, description="Compiles a model with recording, runs it, and writes one HTML page: "
                                "overview, graph, table of layers, roofline, timeline, memory, advice.",
                                epilog="All other options are those of compiling: cytoc --help.")
    p.add_argument("model", help="an ONNX file")
    p.add_argument("-o", dest="output", metavar="FILE.html", help="the page (default: beside where you are, NAME.html)")
    p.add_argument("--inputs", metavar="DIR", help="files in_K_NAME.npy; without it inputs are random")
    p.add_argument("--against", choices=("ort",), default="", help="compare with ONNX Runtime")
    p.add_argument("--threads", type=int, default=1, help="of the runs (default: 1)")
    p.add_argument("--quick", action="store_true", help="do not measure what the advice compares with: other threads, sizes, integers")
    p.add_argument("--json", metavar="FILE", help="also write what is on the page as JSON")
    return p


def main(argv: Optional[List[str]] = None) -> int:
    args, options = _parser().parse_known_args(argv)
    joined, other = split(options)
    if other is not None:
        print("cytoc report: error: one model at a time: unexpected '%s'" % other, file=sys.stderr)
        return 1
    output = args.output or os.path.splitext(os.path.basename(args.model))[0] + ".html"
    try:
        data = report(args.model, output, joined, threads=args.threads, inputs=args.inputs, against=args.against, tries=not args.quick)
        if args.json:
            _write(args.json, json.dumps(data))
    except (ReportError, CytocError) as e:
        print("\n".join(str(e).splitlines()[-20:]), file=sys.stderr)
        return 1
    except OSError as e:
        print("cytoc report: error: cannot write '%s': %s" % (e.filename or output, e.strerror), file=sys.stderr)
        return 1
    print("%s: %d kB" % (output, os.path.getsize(output) // 1000))
    if "not_run" in data:
        print("without times: %s" % data["not_run"])
    for a in data["advice"]:
        print("- " + a["text"])
    return 0
