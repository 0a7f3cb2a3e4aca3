# SPDX-License-Identifier: Apache-2.0
"""`cytoc predict model.onnx 'plates/*.ome.tif' -o out/`: a model over a folder of files. docs/predict.md tells about it.

In:  the command line. Out: a file for each input, a journal, a summary; exit code 0: all is done, 2: some items were skipped, 1: it did
not run or could not go on (a line on stderr says why), 130: interrupted.
"""
from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import sys
import warnings
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .. import tiling
from .._errors import CytocError, InputError
from ._cache import Cache
from ._items import find, keep_inputs
from ._job import Job, Plan
from ._journal import Journal, digest_of
from ._network import Network, open_model, tile_options
from ._numbers import After, Before
from ._options import parse
from ._output import leftovers, remove
from ._progress import table
from ._run import Full, Machine, Predict

__all__ = ["main", "predict"]

LEAST = 16 << 20      # bytes that rows under work get at least
MOST_WAITING = 4      # batches of tiles
_OWN = ("words", "output", "resume", "json", "quiet", "workers", "threads", "readers", "ray", "memory", "cache", "cache_size", "batch", "exclude",
        "checkpoint")


def predict(argv: Sequence[str]) -> Dict[str, Any]:
    """Does it; the summary. CytocError, OSError or KeyboardInterrupt for what main() makes exit codes of."""
    args, words = parse(argv)
    items = find(args.words[1:], args.exclude, args.output)
    result_type = After(args.activation, args.argmax, args.threshold, args.dtype).result_type()
    keep_inputs(items, args.output, args.format, result_type.kind == "f")
    if os.path.exists(args.output) and not os.path.isdir(args.output):
        raise InputError("-o: expected a folder, found the file '%s'" % args.output)
    os.makedirs(args.output, exist_ok=True)
    model = args.words[0]
    if not os.path.exists(model):
        raise InputError("no such model: '%s'" % model)
    given = dict(_pair(word) for word in args.set)
    opened = open_model(model, words, args.tile, args.batch, args.threads, _compiling(), len(args.scales) > 1)
    network = Network(opened, args.input, args.result, given, args.layout, args.output_layout)
    tile = network.tile(args.tile)
    rows = network.rows(args.batch, tile)
    plan = _plan(args, network, tile)
    first = open_model(args.first, words, args.tile, args.batch, args.threads, None, False) if args.first else None
    if args.reuse is not None and first is not None:
        raise InputError("--reuse and --first cannot be had together")
    cluster = _cluster(args, model, opened, words) if args.ray else None
    memory, queue = _memory(args, plan, rows, items)
    plan = plan._replace(memory=memory)
    settings = {"model": digest_of(model), "compiling": words, **{k: v for k, v in sorted(vars(args).items()) if k not in _OWN}}
    journal = Journal(args.output, json.loads(json.dumps(settings)), args.resume)
    try:
        if not args.resume:
            for path in leftovers(args.output):
                remove(path)
        machine = Machine(rows, args.workers, args.threads, args.readers, queue, args.reuse, first, args.confident, args.checkpoint, cluster)
        run = Predict(plan, machine, items, journal)
        run.run()
        journal.close(True)
        return run.summary()
    finally:
        journal.close(False)


def _cluster(args: argparse.Namespace, model: str, opened: Any, words: List[str]) -> Any:
    """Where the network runs: a cytoc.ray.Remote."""
    if args.first or args.reuse is not None:
        raise InputError("--ray cannot be had together with --first or --reuse: tiles are computed by themselves, on any machine")
    try:
        import ray

        from ..ray import Remote
        from ..ray._library import Library
    except ImportError as e:
        raise InputError("--ray: %s" % e) from None
    if not ray.is_initialized():
        try:
            _reach(args.ray)
            ray.init(None if args.ray == "local" else args.ray, logging_level="error", log_to_driver=False)
        except (OSError, ValueError, RuntimeError) as e:
            raise InputError("--ray %s: there is no such cluster: %s; start one with `ray start --head`, or give --ray local" %
                             (args.ray, str(e).splitlines()[0])) from None
    library = Library(model, {} if model.endswith((".so", ".dll")) else tile_options(model, words, args.tile, args.batch, len(args.scales) > 1))
    return Remote(library, threads=args.threads, num_cpus=args.threads or 1, in_flight=args.workers)


def _reach(address: str) -> None:
    """OSError where nobody listens at HOST:PORT: Ray itself asks for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


def _pair(word: str) -> Tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name or not value:
        raise InputError("--set: expected NAME=NUMBER or NAME=FILE.npy, found '%s'" % word)
    return name, value


def _plan(args: argparse.Namespace, network: Network, tile: Tuple[int, ...]) -> Plan:
    before = Before(args.normalize, args.mean, args.std)
    after = After(args.activation, args.argmax, args.threshold, args.dtype)
    overlap: Any = args.overlap[0] if len(args.overlap) == 1 else args.overlap
    tiling.per_axis(overlap, network.rank, "--overlap")
    for box in args.box:
        if len(box) != network.rank:
            raise InputError("--box: expected %d ranges, one for each axis of %s behind N and C, found %d" % (
                network.rank, network.layout, len(box)))
    for t in tile:
        if t % args.align:
            raise InputError("--tile: expected multiples of --align %d, found %s" % (args.align, "x".join(map(str, tile))))
    if len(args.scales) > 1 and any(network.fixed):
        raise InputError("--scales needs a model whose sizes are open; '%s' has the fixed shape %s" % (
            network.input.name, list(network.input.shape)))
    cache = Cache(args.cache, args.cache_size) if args.cache else None
    return Plan(network, tile, overlap, args.blend, args.sigma, args.padding, args.cval, args.align, before, after,
                args.axes.upper() if args.axes else None, args.channels, tuple(args.box), args.mask, args.scales, args.merge, args.output,
                args.format, LEAST, cache, args.reuse is not None)


def _compiling() -> Any:
    """Progress of compiling, on a terminal."""
    if not sys.stderr.isatty():
        return None

    def tell(stage: str, done: int, total: int) -> None:
        sys.stderr.write("\r\x1b[K" + ("compiling: %s%s" % (stage, " %d/%d" % (done, total) if total else "") if stage else ""))
        sys.stderr.flush()
    return tell


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _available() -> int:
    with open("/proc/meminfo", encoding="ascii") as f:
        for line in f:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 4 << 30


def _memory(args: argparse.Namespace, plan: Plan, rows: int, items: Sequence[Any]) -> Tuple[int, int]:
    """(bytes for rows under work and those that are written, batches that may wait). The network is run once, so that what it takes is
    known."""
    network, limit = plan.network, args.memory or _available() // 2
    tile = network.tile(args.tile)
    if not all(tile):  # tiles are as large as the images: one at a time
        if args.memory and limit - _resident() < 3 * LEAST:
            raise InputError("--memory: %d MB are not enough: %d MB are taken by the network and its libraries; at least --memory %dM" % (
                limit >> 20, _resident() >> 20, (_resident() + 3 * LEAST >> 20) + 1))
        return max((limit - _resident()) // 3, LEAST), 1
    channels = network.channels or (len(args.channels) if args.channels else _channels_of(plan, items))
    voxels = float(np.prod(np.asarray(tile, float)))
    least = rows * channels * voxels * network.dtype.itemsize
    if least > limit:
        raise InputError("--memory: %d MB are not enough for one run: its %d tiles of %s take %.0f MB; make --tile or --batch smaller" % (
            limit >> 20, rows, "x".join(map(str, tile)), least / (1 << 20)))
    lead, zoom = network.probe(channels, tile, rows)
    result = float(np.prod(lead)) * (voxels * float(np.prod([float(z) for z in zoom])) if zoom else 1.0) * 4
    batch = int(rows * (channels * voxels * network.dtype.itemsize + result))
    workers = args.workers or min(os.cpu_count() or 1, 4)
    arena = max((held["all of the context"]["peak"] for held in network.model.memory_snapshot()), default=0)
    left = limit - _resident() - arena * (workers - 1) - batch * (workers + 1)
    queue = int(min(left // 3 // max(batch, 1), MOST_WAITING))
    if queue < 1 or left < 3 * LEAST:
        raise InputError("--memory: %d MB are not enough: the network takes %d MB for each of %d runs at once, %d MB beside it, and a batch of "
                         "tiles %d MB; make --tile, --batch or --workers smaller, or --memory %dM" % (
                             limit >> 20, arena >> 20, workers, _resident() >> 20, batch >> 20,
                             (limit - left + max(3 * LEAST, 3 * batch) >> 20) + 1))
    # of what is left, a third waits as tiles; rows under work and those that are written share the rest
    return left // 4, queue * rows


def _channels_of(plan: Plan, items: Sequence[Any]) -> int:
    """Of the first item that can be opened."""
    for item in items:
        try:
            job = Job(item, plan)
        except (CytocError, OSError):
            continue
        count: int = job.view(0).shape[0]
        job.close()
        return count
    return 1


def main(argv: Optional[List[str]] = None) -> int:
    given = sys.argv[1:] if argv is None else argv
    warnings.simplefilter("ignore")  # of the formats' libraries; what matters is an error
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)
    try:
        summary = predict(given)
        _report(given, summary)
    except (Full, CytocError, OSError) as e:
        print("cytoc predict: error: " + "\n".join(str(e).splitlines()[-20:]), file=sys.stderr)
        if isinstance(e, Full):
            print("make room, and go on with --resume", file=sys.stderr)
        return 1
    except MemoryError as e:
        print("cytoc predict: error: out of memory: %s; make --tile, --batch or --workers smaller" % (str(e) or "no room"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ncytoc predict: interrupted; --resume goes on", file=sys.stderr)
        return 130
    return 2 if summary["failed"] else 0


def _report(argv: Sequence[str], summary: Dict[str, Any]) -> None:
    args, _ = parse(argv)
    if args.json == "-":
        json.dump(summary, sys.stdout, indent=1)
        print()
    elif args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(summary, f, indent=1)
    if not args.quiet:
        print(table(summary), file=sys.stderr)
