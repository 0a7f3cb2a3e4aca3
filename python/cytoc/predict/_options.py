# SPDX-License-Identifier: Apache-2.0
"""The command line of `cytoc predict`, and what its words mean."""
from __future__ import annotations

import argparse
import math
import os
import re
from typing import Any, List, NoReturn, Optional, Sequence, Tuple

from .. import _words, formats, tiling
from .._errors import InputError
from .._values import similar
from ._numbers import ACTIVATIONS, NORMALIZING

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
MOST_ALIGN = 1 << 12
MOST_THREADS = 256  # CYTO_MAX_THREADS: of a stage, and of a run
DTYPES = ("uint8", "uint16", "int16", "int32", "float16", "float32")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:  # exit code 1: 2 says that items were skipped
        raise InputError(message)


def size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", text.strip(), re.I)
    if not match:
        raise argparse.ArgumentTypeError("expected a size such as 500M or 8G, found '%s'" % text)
    return int(float(match[1]) * _UNITS[match[2].upper()])


def sizes(text: str) -> Tuple[int, ...]:
    if not re.fullmatch(r"\d+(x\d+)*", text):
        raise argparse.ArgumentTypeError("expected sizes such as 64x256x256, found '%s'" % text)
    return tuple(map(int, text.split("x")))


def numbers(text: str) -> Tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError("expected numbers with commas between them, found '%s'" % text) from None


def indices(text: str) -> Tuple[int, ...]:
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise argparse.ArgumentTypeError("expected channels such as 0,2, counting from 0, found '%s'" % text)
    return tuple(map(int, text.split(",")))


def box(text: str) -> Tuple[Tuple[int, int], ...]:
    if not re.fullmatch(r"\d+:\d+(,\d+:\d+)*", text):
        raise argparse.ArgumentTypeError("expected a range for each axis such as 0:64,100:300,100:300, found '%s'" % text)
    return tuple((int(a), int(b)) for a, b in (side.split(":") for side in text.split(",")))


def scales(text: str) -> Tuple[Any, ...]:
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*(,[1-9]\d*(x[1-9]\d*)*)*", text):
        raise argparse.ArgumentTypeError("expected scales such as 1,2 or 1,1x2x2, found '%s'" % text)
    return tuple(int(word) if word.isdigit() else sizes(word) for word in text.split(","))


def _add_tiling(p: argparse.ArgumentParser) -> None:
    g = p.add_argument_group("tiles")
    g.add_argument("--tile", type=sizes, metavar="ZxYxX", help="of the network's input (0: the whole axis; default: what the model fixes, else 0)")
    g.add_argument("--overlap", type=numbers, default=(0.25,), metavar="PART", help="of a tile and the next one, for all axes or each (0.25)")
    g.add_argument("--blend", choices=tiling.BLENDING, default="gaussian", help="weights where tiles overlap (gaussian)")
    g.add_argument("--sigma", type=float, default=0.125, help="of the Gaussian, as a part of the tile (0.125)")
    g.add_argument("--padding", choices=tuple(tiling.PADDING), default="constant", help="of images smaller than a tile (constant)")
    g.add_argument("--cval", type=float, default=0.0, help="value of constant padding (0)")
    g.add_argument("--align", type=int, default=1, metavar="N", help="sizes are padded to multiples of N, for networks that divide them (1)")
    g.add_argument("--box", type=box, action="append", default=[], metavar="Z:Z,Y:Y,X:X", help="only tiles that touch it; several: any of them")
    g.add_argument("--mask", metavar="FILE", help="only tiles that touch what is not 0 in it; {name} and {stem} stand for the item's")
    g.add_argument("--scales", type=scales, default=(1,), metavar="1,2,..", help="at several scales of the image, merged (1)")
    g.add_argument("--merge", choices=tiling.MERGING, default="mean", help="of scales (mean)")


def _add_numbers(p: argparse.ArgumentParser) -> None:
    g = p.add_argument_group("numbers")
    g.add_argument("--axes", metavar="TCZYX", help="what the axes of the files are, where these do not say it")
    g.add_argument("--channels", type=indices, metavar="0,2", help="of the files, for the network")
    g.add_argument("--layout", metavar="NCHW", help="of the network's input (N first; C and the spatial or temporal axes)")
    g.add_argument("--normalize", choices=NORMALIZING, default="none", help="unit: by the type's largest number; others: by the item's (none)")
    g.add_argument("--mean", type=numbers, default=(), metavar="M,..", help="is subtracted, after --normalize; one, or one for each channel")
    g.add_argument("--std", type=numbers, default=(), metavar="S,..", help=".. and divided by")
    g.add_argument("--activation", choices=ACTIVATIONS, default="none", help="of the blended result (none)")
    g.add_argument("--argmax", action="store_true", help="the channel with the highest value")
    g.add_argument("--threshold", type=float, metavar="V", help="1 above it, else 0")
    g.add_argument("--dtype", choices=DTYPES, help="of the result (uint8 of --argmax and --threshold, else float32)")


def _add_machine(p: argparse.ArgumentParser) -> None:
    g = p.add_argument_group("machine")
    g.add_argument("--batch", type=int, default=0, metavar="N", help="tiles of a run (default: by the tile's size)")
    g.add_argument("--workers", type=int, metavar="N", help="runs of the network at once (default: by the CPUs)")
    g.add_argument("--threads", type=int, metavar="N", help="of a run")
    g.add_argument("--readers", type=int, default=1, metavar="N", help="files that are read at once (1)")
    g.add_argument("--memory", type=size, metavar="SIZE", help="of the process, such as 2G (default: half of what is free)")
    g.add_argument("--cache", metavar="DIR", help="keep images there as the network sees them, for the next run")
    g.add_argument("--cache-size", type=size, default=16 << 30, metavar="SIZE", help="what was not used for longest goes (16G)")
    g.add_argument("--checkpoint", type=float, default=10.0, metavar="SECONDS", help="how often rows of an unfinished result are made safe (10)")
    g.add_argument("--reuse", type=float, metavar="D", help="frames: the result of the last one, where the mean difference to it is below D")
    g.add_argument("--first", metavar="MODEL", help="a cheap model, whose results are taken where it is sure")
    g.add_argument("--confident", type=float, default=0.9, help="its highest value from which on it is (0.9)")
    g.add_argument("--ray", metavar="ADDRESS", help="run the network on the machines of a Ray cluster: auto, HOST:PORT, or local (one that is "
                   "started on this machine); --workers: runs under way at once, --threads: CPUs of each")


def parser() -> argparse.ArgumentParser:
    p = _Parser(prog="cytoc predict", allow_abbrev=False, usage="cytoc predict MODEL INPUT.. -o FOLDER [OPTION..]",
                description="Runs a model over files: images, volumes, recordings, videos, larger than the network's input or than memory.",
                epilog="All other options are those of compiling: cytoc --help. Exit code 0: all is done; 2: items were skipped, which "
                "are named; 1: it did not run, or could not go on; 130: interrupted. docs/predict.md has the rest.")
    p.add_argument("words", nargs="*", metavar="MODEL INPUT", help="an ONNX file or a compiled library; files, folders, patterns")
    p.add_argument("-o", dest="output", metavar="FOLDER", help="where results go, and the journal")
    p.add_argument("--format", choices=[f.name for f in formats.FORMATS], help="of the results (default: the input's, if it holds them)")
    p.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="files that are left out")
    p.add_argument("--resume", action="store_true", help="go on where a run was killed; what is done stays")
    p.add_argument("--input", metavar="NAME", help="the input that takes the image, of several")
    p.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of another input: a number, or a file .npy")
    p.add_argument("--output-layout", metavar="NHWC", help="of the output, where its axes lie otherwise than the input's")
    p.add_argument("--output", dest="result", metavar="NAME", help="which of several outputs (the first)")
    p.add_argument("--json", metavar="FILE", help="write the summary as JSON (-: to stdout)")
    p.add_argument("--quiet", action="store_true", help="no table at the end")
    _add_tiling(p)
    _add_numbers(p)
    _add_machine(p)
    return p


def parse(argv: Sequence[str]) -> Tuple[argparse.Namespace, List[str]]:
    """(options, those of compiling). InputError: for what cannot be."""
    p = parser()
    own = [s for action in p._actions for s in action.option_strings]
    args, others = p.parse_known_intermixed_args(_words.joined(argv))
    for word in others:
        name = word.partition("=")[0]
        meant = similar(name, [s for s in own if s.startswith("--")])
        if meant and meant[2:5] == name[2:5] and meant != name and not _is_compiling(name):
            raise InputError("unknown option '%s'; did you mean '%s'?" % (name, meant))
    if not args.words:
        raise InputError("no model given: cytoc predict MODEL INPUT.. -o FOLDER")
    if len(args.words) < 2:
        raise InputError("no input given: files, folders or patterns behind the model '%s'" % args.words[0])
    if not args.output:
        raise InputError("no output folder given: -o FOLDER")
    _check_numbers(args)
    if args.axes and (not set(args.axes.upper()) <= set(formats.ORDER) or len(set(args.axes.upper())) < len(args.axes)):
        raise InputError("--axes: expected different letters of %s, found '%s'" % (formats.ORDER, args.axes))
    for o in args.overlap:
        if not 0 <= o < 1:
            raise InputError("--overlap: expected a part of the tile, from 0 to less than 1, found %g%s" %
                             (o, "; did you mean %g?" % (o / 100) if 2 <= o < 100 else ""))
    if args.argmax and args.threshold is not None:
        raise InputError("--argmax and --threshold are two ways to make labels: choose one")
    if args.json not in (None, "-") and (os.path.isdir(args.json) or not os.path.isdir(os.path.dirname(args.json) or ".")):
        raise InputError("--json: expected a file in a folder that is there, found '%s'" % args.json)
    return args, others


def _check_numbers(args: argparse.Namespace) -> None:
    """Those that argparse takes and that make no sense."""
    for name, least in (("workers", 1), ("threads", 1), ("readers", 1), ("align", 1), ("batch", 0), ("memory", 1)):
        value: Optional[int] = getattr(args, name)
        if value is not None and value < least:
            raise InputError("--%s: expected %d or more, found %d" % (name, least, value))
        if value is not None and name in ("workers", "threads", "readers") and value > MOST_THREADS:
            raise InputError("--%s: expected %d or less, found %d" % (name, MOST_THREADS, value))
    if args.align > MOST_ALIGN:
        raise InputError("--align: expected what sizes are multiples of, such as 16 for a network that halves them four times, up to %d; found %d" %
                         (MOST_ALIGN, args.align))
    if not 0 < args.sigma < math.inf:
        raise InputError("--sigma: expected a part of the tile, more than 0, found %g" % args.sigma)
    if not 0 <= args.checkpoint < math.inf:
        raise InputError("--checkpoint: expected seconds, 0 or more, found %g" % args.checkpoint)
    if not all(map(math.isfinite, args.mean)) or not all(s and math.isfinite(s) for s in args.std):
        raise InputError("--mean, --std: expected finite numbers, and no --std of 0; found %s" % ", ".join(
            "%g" % v for v in args.mean + args.std))
    for box in args.box:
        if any(a >= b for a, b in box):
            raise InputError("--box: expected start < stop in each range, found %s" % ",".join("%d:%d" % side for side in box))


def _is_compiling(name: str) -> bool:
    """Is it an option of the compiler?"""
    import subprocess
    from .._native import library_dir
    for place in (os.path.join(library_dir(), "bin", "cytoc"), os.path.join(library_dir(), "cytoc")):
        if os.path.exists(place):
            found = subprocess.run([place, "--help"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            return re.search(r"(?<!\S)%s(?![\w-])" % re.escape(name), found.stdout) is not None
    return False
