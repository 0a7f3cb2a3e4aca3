# SPDX-License-Identifier: Apache-2.0
"""The model of a run: compiled or loaded, which input takes the image, how its axes lie, how large its tiles may be.

Layouts are a letter for each axis of the input: N, C if there are channels, and those of space or time: NCHW, NCDHW, NHWC, NCT.
"""
from __future__ import annotations

import os
from fractions import Fraction
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .. import _words, tiling
from .._compile import compile as compile_model
from .._errors import CompileError, InputError
from .._model import Model, Tensorinfo, load, shape_text
from .._native import SHAPE_MISMATCH, STATUSES
from .._values import similar

LAYOUTS = {2: "NT", 3: "NCT", 4: "NCHW", 5: "NCDHW"}
MULTIPLES = "; a network that halves its input needs sizes that are multiples: --tile of 16, 32 .., or --align 16"
LARGE_TILE = 1 << 18  # voxels of a tile, from which on one makes a batch


class Network:
    """input: what the image is given to; others: values of the other inputs, by name. layout: see above. fixed: the tile's size along
    each axis, 0 where the model leaves it open. channels: of the image, 0 where that is open. batch: rows of a run, 0: open."""

    def __init__(self, model: Model, name: Optional[str], output: Optional[str], given: Dict[str, Any], layout: Optional[str],
                 output_layout: Optional[str] = None) -> None:
        self.model = model
        self.input = _chosen_input(model, name, given)
        self.others = {info.name: _constant(info, given[info.name]) for info in model.inputs if info.name in given}
        self.output = _chosen_output(model, output)
        self.layout = _layout(self.input, layout)
        shape = [d if isinstance(d, int) else 0 for d in self.input.shape]
        self.batch = shape[self.layout.index("N")]
        self.has_channels = "C" in self.layout
        self.channels = shape[self.layout.index("C")] if self.has_channels else 1
        self.spatial = [k for k, letter in enumerate(self.layout) if letter not in "NC"]
        self.fixed = tuple(shape[k] for k in self.spatial)
        self.rank = len(self.spatial)
        self.dtype = np.dtype(self.input.dtype)
        self.output_order = _output_order(model.outputs[self.output], self.layout, output_layout)

    def feed(self, batch: Any) -> Any:
        """Tiles, [n, C, spatial..] or [C, spatial..], as the input has its axes; with the other inputs, if there are any."""
        part = self._arranged(batch)
        return {self.input.name: part, **self.others} if self.others else part

    def _arranged(self, tile: Any) -> Any:
        """[C, spatial..] to what is given to a run: without N."""
        if not self.has_channels:
            return tile[0]
        return np.ascontiguousarray(np.moveaxis(tile, 0, self.layout.index("C") - 1)) if self.layout[1] != "C" else tile

    def result(self, found: Any) -> Any:
        """What a run gave for one tile, the chosen output of it, channels first."""
        part = found[self.output] if isinstance(found, tuple) else found
        if self.output_order is not None:
            return part.transpose(self.output_order)
        if self.has_channels and self.layout[1] != "C" and part.ndim == self.rank + 1:
            part = np.moveaxis(part, self.layout.index("C") - 1, 0)
        return part

    def tile(self, wanted: Optional[Sequence[int]]) -> Tuple[int, ...]:
        """The tile's size: what is wanted, and what the model allows; 0: the whole axis."""
        if wanted is None:
            return self.fixed
        if len(wanted) not in (1, self.rank):
            raise InputError("--tile: expected %d sizes, one for each axis of %s behind N and C, found %d: %s" %
                             (self.rank, self.layout, len(wanted), "x".join(map(str, wanted))))
        sizes = tuple(wanted) * (self.rank if len(wanted) == 1 else 1)
        for size, fixed in zip(sizes, self.fixed):
            if fixed and size != fixed:
                raise InputError("--tile: the model's input '%s' has the fixed shape %s: expected %s, found %s" % (
                    self.input.name, shape_text(self.input.shape), "x".join(map(str, self.fixed)), "x".join(map(str, sizes))))
        return sizes

    def rows(self, wanted: int, tile: Sequence[int]) -> int:
        """Tiles of a run."""
        if self.batch and wanted and wanted != self.batch:
            raise InputError("--batch: the model's input '%s' has the fixed batch %d, found %d" % (self.input.name, self.batch, wanted))
        size = int(np.prod([n or 512 for n in tile]))
        return self.batch or wanted or max(1, min(16, LARGE_TILE // max(size, 1)))

    def probe(self, channels: int, tile: Sequence[int], rows: int) -> Tuple[Tuple[int, ...], Optional[Tuple[Fraction, ...]]]:
        """Runs the network once: (leading shape of a tile's result, its size by the tile's; None: it has no voxels)."""
        zeros = self._arranged(np.zeros((channels,) + tuple(tile), self.dtype))
        feeds = {self.input.name: np.repeat(zeros[None], rows, 0), **{k: np.repeat(v[None], rows, 0) for k, v in self.others.items()}}
        try:
            found = self.result(self.model.run(None, feeds)[self.output][0])
        except InputError as e:
            raise InputError("--tile: the network cannot be run on tiles of %s: %s%s" % ("x".join(map(str, tile)), e, of_sizes(e))) from None
        try:
            return tiling.zoom_of(found.shape, tile)
        except InputError:
            return tuple(found.shape), None


def of_sizes(error: Any) -> str:
    """What to do about an error of a run, where its tiles' sizes are the reason."""
    return MULTIPLES if error.status == STATUSES[SHAPE_MISMATCH] else ""


def _chosen_input(model: Model, name: Optional[str], given: Dict[str, Any]) -> Tensorinfo:
    names = [info.name for info in model.inputs]
    for wanted in ([name] if name else []) + list(given):
        if wanted not in names:
            meant = similar(wanted, names)
            raise InputError("the model has no input '%s'%s; its inputs are %s" %
                             (wanted, ": did you mean '%s'?" % meant if meant else "", ", ".join(names)))
    left = [info for info in model.inputs if info.name not in given and not info.optional and (name is None or info.name == name)]
    missing = [info.name for info in model.inputs if info.name not in given and not info.optional and info.name != name]
    if len(left) != 1 or name and missing:
        raise InputError("the model has %d inputs, %s: name the one that takes the image with --input NAME, and give the others with "
                         "--set NAME=NUMBER or --set NAME=FILE.npy" % (len(names), ", ".join("'%s'" % n for n in names)))
    return left[0]


def _constant(info: Tensorinfo, text: str) -> Any:
    """The value of another input, without the batch: a number, or an array of a file."""
    shape: Any = info.shape[1:]
    try:
        value = np.load(text) if text.endswith(".npy") else np.asarray(float(text))
    except (OSError, ValueError) as e:
        raise InputError("--set %s: expected a number or a file .npy, found '%s': %s" % (info.name, text, e)) from None
    if not info.shape or not all(isinstance(d, int) for d in shape):
        raise InputError("--set %s: expected an input with a batch and a fixed shape behind it, found %s. An input as large as the image cannot be "
                         "set: put both into one file, as channels, and let a model with one input split them (onnx.compose), or call "
                         "cytoc.tiling.sliding_window from Python with an image that has the channels of both" %
                         (info.name, shape_text(info.shape)))
    if value.shape not in ((), shape, (1,) + tuple(shape)):
        raise InputError("--set %s: expected shape %s, found %s" % (info.name, shape_text(shape), list(value.shape)))
    return np.ascontiguousarray(np.broadcast_to(value.reshape(value.shape[-len(shape):] if value.shape else ()), shape).astype(info.dtype))


def _chosen_output(model: Model, name: Optional[str]) -> int:
    names = [info.name for info in model.outputs]
    if name is None:
        return 0
    if name not in names:
        meant = similar(name, names)
        raise InputError("the model has no output '%s'%s; its outputs are %s" %
                         (name, ": did you mean '%s'?" % meant if meant else "", ", ".join(names)))
    return names.index(name)


def _output_order(info: Tensorinfo, layout: str, given: Optional[str]) -> Optional[List[int]]:
    """Which axes of a tile's result, without N, are its channels and the input's spatial axes, in their order; None: as the input's."""
    if not given:
        return None
    wanted, space = given.upper(), [letter for letter in layout if letter not in "NC"]
    if len(wanted) != len(info.shape) or wanted[:1] != "N" or sorted(wanted.replace("C", "")) != sorted(["N"] + space) or wanted.count("C") > 1:
        raise InputError("--output-layout: expected N, then %s and, if there are channels, C in the order of the %d axes of output '%s', %s; "
                         "found '%s'" % (", ".join(space), len(info.shape), info.name, shape_text(info.shape), given))
    return [wanted.index(letter) - 1 for letter in (["C"] if "C" in wanted else []) + space]


def _layout(info: Tensorinfo, given: Optional[str]) -> str:
    rank = len(info.shape)
    if info.dtype not in ("float32", "float64", "float16", "uint8", "int8", "uint16", "int16", "int32", "int64"):
        raise InputError("input '%s': expected an image's numbers, found %s" % (info.name, info.dtype))
    if given:
        layout = given.upper()
        if len(layout) != rank or not layout.startswith("N") or len(set(layout)) != rank or set(layout) <= set("NC"):
            raise InputError("--layout: expected a letter for each of the %d axes of input '%s', N first, as in %s; found '%s'" %
                             (rank, info.name, LAYOUTS.get(rank, "NCHW"), given))
        return layout
    if rank not in LAYOUTS:
        raise InputError("input '%s' has %d axes, %s: say with --layout which they are, N and C among them" %
                         (info.name, rank, shape_text(info.shape)))
    if rank == 4 and info.shape[3] in (1, 3, 4) and info.shape[1] not in (1, 2, 3, 4):
        return "NHWC"
    return LAYOUTS[rank]


def open_model(path: str, words: List[str], tile: Optional[Sequence[int]], batch: int, threads: Optional[int], progress: Any,
               open_sizes: bool) -> Model:
    """A compiled library is loaded, a model compiled: with the sizes of its tiles fixed where they are known, which is faster."""
    if path.endswith((".so", ".dll")):
        if words:
            raise InputError("'%s' is compiled: options of compiling do not change it, found %s" % (path, " ".join(words)))
        return load(path, threads=threads)
    options = tile_options(path, words, tile, batch, open_sizes)
    try:
        return compile_model(path, threads=threads, progress=progress, **options)
    except CompileError as e:
        if tile is None or options == _words.keywords(words):
            raise
        compile_model(path, **_words.keywords(words))  # where the model itself is wrong, that is the error
        raise InputError("--tile: the network cannot be run on tiles of %s: %s%s" % ("x".join(map(str, tile)), e, MULTIPLES)) from None


def tile_options(path: str, words: List[str], tile: Optional[Sequence[int]], batch: int, open_sizes: bool) -> Dict[str, Any]:
    """What cytoc.compile() is given: the options of the command line, and the tile's sizes."""
    options = _words.keywords(words)
    if tile is not None and not open_sizes and "dims" not in options and "shapes" not in options:
        from .._source import source_of
        fixed = _fixed(source_of(path), tile, batch)
        if fixed:
            options["shapes"] = fixed
    return options


def _fixed(source: Any, tile: Sequence[int], batch: int) -> Optional[Dict[str, List[Any]]]:
    """{input: shape} with the tile's sizes, if the model has one input, with channels first, whose sizes of space are open."""
    try:
        import onnx
        graph = onnx.load(str(source.path), load_external_data=False).graph
    except Exception:  # no onnx, or what the compiler will complain of
        return None
    weights = {w.name for w in graph.initializer}
    inputs = [i for i in graph.input if i.name not in weights]
    if len(inputs) != 1:
        return None
    dims = inputs[0].type.tensor_type.shape.dim
    rank = len(dims) - 2
    sizes = list(tile) * (rank if len(tile) == 1 else 1)
    if rank < 1 or len(sizes) != rank or min(sizes) < 1 or any(d.HasField("dim_value") for d in dims[2:]):
        return None
    lead: List[Any] = [d.dim_value if d.HasField("dim_value") else None for d in dims[:2]]
    lead[0] = 1 if batch == 1 else lead[0]
    return {inputs[0].name: lead + sizes} if os.path.exists(str(source.path)) else None
