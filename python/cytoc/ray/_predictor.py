# SPDX-License-Identifier: Apache-2.0
"""Predictor: what Dataset.map_batches() calls, in every worker.

In:  batches of columns, {name: array [n, ..]}, or arrays of objects where rows have shapes of their own. Out: the same columns and those of
the model's outputs.
"""
from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

import numpy as np

from .. import tiling
from .._errors import InputError
from .._model import Model, shape_text
from .._values import similar
from ._library import Library

Columns = Dict[str, Any]


class Predictor:
    """A model for `Dataset.map_batches(Predictor("unet.onnx"), compute=TaskPoolStrategy(size=N), num_cpus=..)`.

    model: an ONNX file, its bytes, a ModelProto, or a library that cytoc compiled. **options: of cytoc.compile(): int8, bf16, target..
    inputs: {input of the model: column}; without it inputs are columns of their names, or a model's only input is the only column
        of numbers. outputs: {output: column}, of those that are wanted; without it all outputs, under their names.
    keep: the columns that came go on, too. threads: of a run; without it as many as Ray gives CPUs (num_cpus).
    tile, overlap, mode, padding, batch, ..: rows are images larger than the network's input, [channels, spatial axes..], computed by
        cytoc.tiling.sliding_window() where the row is; for volumes whose tiles shall spread, see cytoc.ray.sliding_window().

    Rows of one shape are run together where the model's first axis is open; where it is fixed they are cut into pieces of it, the last
    padded. It may be called on the driver as well. Raises InputError for columns that do not fit, naming them.
    Made on the driver: the model is compiled there, for each kind of CPU in the cluster. Pickles; one Predictor may serve several datasets.
    """

    def __init__(self, model: Any, *, inputs: Optional[Mapping[str, str]] = None, outputs: Optional[Mapping[str, str]] = None,
                 keep: bool = True, threads: Optional[int] = None, tile: Any = None, overlap: Any = 0.25, mode: str = "constant",
                 sigma_scale: Any = 0.125, padding: str = "constant", cval: float = 0.0, batch: int = 1, align: int = 1, channels: int = 1,
                 **options: Any) -> None:
        self.library = Library(model, options)
        self.keep, self.threads = keep, threads
        local = self.library.local
        assert local is not None
        self.inputs = _named(inputs, [i.name for i in local.inputs if not i.optional], "inputs")
        self.outputs = _named(outputs, [o.name for o in local.outputs], "outputs")
        self.tile = tile
        self.tiling = {"overlap": overlap, "mode": mode, "sigma_scale": sigma_scale, "padding": padding, "cval": cval, "batch": batch,
                       "align": align, "channels": channels}
        if tile is not None and (len(local.inputs) != 1 or len(self.outputs or local.outputs) != 1):
            raise InputError("tile: expected a model with one input and one output; name the output that is wanted with outputs={..}")
        if threads is not None and threads < 1:
            raise InputError("threads: expected 1 or more, found %d" % threads)
        if tile is not None:
            self._check_tiling(local)

    def _check_tiling(self, local: Model) -> None:
        """What does not fit is an error here, not in every worker."""
        how, shape = self.tiling, local.inputs[0].shape
        rank = len(shape) - 1 - max(int(how["channels"]), 1)
        if rank < 1:
            raise InputError("tile: the model's input '%s' has no spatial axes: its shape is %s" % (local.inputs[0].name, shape_text(shape)))
        tiling.Grid((1,) * rank, self.tile, how["overlap"], align=how["align"])
        for name, known in (("mode", tiling.BLENDING), ("padding", tuple(tiling.PADDING))):
            if how[name] not in known:
                raise InputError("%s: expected one of %s, found '%s'" % (name, ", ".join(known), how[name]))
        if how["batch"] < 1:
            raise InputError("batch: expected 1 or more, found %d" % how["batch"])

    def __call__(self, columns: Mapping[str, Any]) -> Columns:
        model = self.library.open(self.threads)
        chosen = self._chosen(model, columns)
        names = list(self.outputs) if self.outputs else [o.name for o in model.outputs]
        found = self._tiled(model, chosen, names) if self.tile is not None else self._run(model, chosen, names)
        results = {(self.outputs or {}).get(name, name): column for name, column in zip(names, found)}
        return {**columns, **results} if self.keep else results

    def _chosen(self, model: Model, columns: Mapping[str, Any]) -> Columns:
        """{input: column}"""
        names = [i.name for i in model.inputs if not i.optional]
        numbers = [name for name, column in columns.items() if np.asarray(column).dtype.kind in "biufcOV"]
        if self.inputs is None and len(names) == 1 and names[0] not in columns and len(numbers) == 1:
            return {names[0]: columns[numbers[0]]}
        found = {}
        for name in names:
            column = (self.inputs or {}).get(name, name)
            if column not in columns:
                meant = similar(column, list(columns))
                raise InputError("no column '%s' for the model's input '%s'%s; the columns are %s: say with inputs={'%s': COLUMN} which" % (
                    column, name, ": did you mean '%s'?" % meant if meant else "", ", ".join("'%s'" % c for c in columns), name))
            found[name] = columns[column]
        return found

    def _tiled(self, model: Model, chosen: Columns, names: Sequence[str]) -> List[Any]:
        (name, column), = chosen.items()
        number = [o.name for o in model.outputs].index(names[0])
        dtype = np.dtype(model.inputs[0].dtype)

        def run(tiles: Any) -> Any:
            return _rows(model, {name: tiles})[number]
        return [stacked([tiling.sliding_window(np.asarray(row), run, self.tile, dtype=dtype, **self.tiling) for row in column])]

    def _run(self, model: Model, chosen: Columns, names: Sequence[str]) -> List[Any]:
        """Columns of the named outputs."""
        numbers = [[o.name for o in model.outputs].index(name) for name in names]
        columns = [np.asarray(column) for column in chosen.values()]
        if all(column.dtype != object for column in columns):
            found = _rows(model, dict(zip(chosen, columns)))
            return [found[k] for k in numbers]
        rows: List[List[Any]] = [[] for _ in names]
        for row in zip(*columns):  # shapes of their own
            found = _rows(model, {name: np.asarray(value)[None] for name, value in zip(chosen, row)})
            for k, number in enumerate(numbers):
                rows[k].append(found[number][0])
        return [stacked(column) for column in rows]


def _named(given: Optional[Mapping[str, str]], known: List[str], what: str) -> Optional[Dict[str, str]]:
    for name in given or ():
        if name not in known:
            meant = similar(name, known)
            raise InputError("%s: the model has no '%s'%s; it has %s" % (what, name, ": did you mean '%s'?" % meant if meant else "",
                                                                       ", ".join("'%s'" % k for k in known)))
    return dict(given) if given is not None else None


def stacked(rows: Sequence[Any]) -> Any:
    """A column: one array if all rows have one shape, else an array of arrays."""
    if len({row.shape for row in rows}) <= 1:
        return np.stack(rows) if rows else np.empty((0,), np.float32)
    found = np.empty(len(rows), object)
    found[:] = rows
    return found


def _rows(model: Model, feeds: Columns) -> List[Any]:
    """The outputs for rows of all inputs, in runs of as many rows as the model takes."""
    infos = {i.name: i for i in model.inputs}
    n = len(next(iter(feeds.values())))
    fixed = {infos[name].shape[0] for name in feeds if infos[name].shape and isinstance(infos[name].shape[0], int)}
    size = int(next(iter(fixed))) if fixed else n
    if len(fixed) > 1 or size < 1 and n:
        raise InputError("the model's inputs have no batch in common: %s" % ", ".join(
            "'%s' %s" % (name, shape_text(infos[name].shape)) for name in feeds))
    typed = {name: _typed(infos[name], value) for name, value in feeds.items()}
    pieces = []
    for k in range(0, n, size) if n else [0]:
        rows = min(size, n - k)
        piece = {name: _padded(value[k:k + rows], size) for name, value in typed.items()}
        pieces.append([output[:rows] for output in model.run(None, piece)])
    return [np.concatenate(outputs) for outputs in zip(*pieces)] if len(pieces) != 1 else pieces[0]


def _padded(rows: Any, size: int) -> Any:
    """So many rows: more of the last one, or of zeros where there is none."""
    if len(rows) == size:
        return rows
    more = rows[-1:] if len(rows) else np.zeros((1,) + rows.shape[1:], rows.dtype)
    return np.concatenate([rows, np.repeat(more, size - len(rows), 0)])


def _typed(info: Any, value: Any) -> Any:
    """Integers where the model takes floats are what images are made of; nothing else is changed."""
    value = np.asarray(value)
    wanted = np.dtype(info.dtype)
    if value.dtype != wanted and value.dtype.kind in "biu" and wanted.kind == "f":
        return np.ascontiguousarray(value, wanted)
    return np.ascontiguousarray(value)
