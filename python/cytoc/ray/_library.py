# SPDX-License-Identifier: Apache-2.0
"""One model for machines of several kinds: compiled by the driver, opened by workers.

In:  a model, options of compiling; the nodes of the cluster. Out: a Library, which pickles as a few references to the object store.

Kinds are what cytoc calls the CPU ("znver4", "skylake-avx512"); a kind without a name ("native"), or a machine that came
later with a CPU that no other has, compiles for itself, once, into the cache that its workers share.
"""
from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
from typing import Any, Dict, List, Optional

import numpy as np
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .. import _cache
from .._compile import compile as compile_model
from .._errors import LoadError
from .._model import Model, load
from .._native import compiler, decoded
from .._source import source_of

_FILES = "", ".weights"  # what a library consists of, behind its name
_opened: Dict[Any, Model] = {}  # of this process
_lock = threading.Lock()


def native_kind() -> str:
    return str(decoded(compiler().cytoc_native_target()))


_kind_of_node = ray.remote(num_cpus=0, max_retries=0)(native_kind)


def kinds_of_cluster() -> List[str]:
    """Of every node that is alive; one that does not answer is left out."""
    asked = [_kind_of_node.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
             for node in ray.nodes() if node["Alive"]]
    found = set()
    for answer in asked:
        try:
            found.add(ray.get(answer, timeout=120))
        except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError):
            continue
    return sorted(found | {native_kind()})


def _contents(path: str) -> Dict[str, Any]:
    """{ending: bytes} of a library's files."""
    return {ending: np.fromfile(path + ending, np.uint8) for ending in _FILES if os.path.exists(path + ending)}


class Library:
    """A model on every machine. local: opened by the driver, which knows inputs and outputs by it; is not pickled."""

    def __init__(self, model: Any, options: Dict[str, Any]) -> None:
        if not ray.is_initialized():
            ray.init(logging_level="warning")
        path = os.fspath(model) if isinstance(model, (str, os.PathLike)) else None
        self.options = dict(options)
        self.files: Dict[str, Dict[str, Any]] = {}  # by the kind of CPU; "": any
        self.source: Any = None
        self.digest = hashlib.sha256(repr(sorted(options)).encode())
        if path and path.endswith((".so", ".dll")):
            if options:
                raise LoadError("'%s' is compiled: options of compiling do not change it, found %s" % (path, ", ".join(sorted(options))))
            self.local: Optional[Model] = load(path)
            self._add("", path)
        else:
            source = source_of(model)
            self.digest.update(source.digest().digest())
            self._compile(model)
            self.source = ray.put(source.data) if source.data is not None else os.path.abspath(str(source.path))
        self.key = self.digest.hexdigest()[:32]

    def _compile(self, model: Any) -> None:
        """For every kind of CPU there is; where a target is given, for that."""
        own = native_kind()
        given = self.options.get("target") not in (None, "native")
        for kind in [own] if given else kinds_of_cluster():
            if kind == "native" and kind != own:
                continue
            compiled = compile_model(model, **(self.options if given or kind == own else {**self.options, "target": kind}))
            if kind == own:
                self.local = compiled
            with tempfile.TemporaryDirectory(prefix="cytoc-ray-") as folder:
                place = os.path.join(folder, "model.so")
                compiled.save(place)
                self._add("" if given else kind, place)

    def _add(self, kind: str, path: str) -> None:
        """The key is made of what was compiled: all that options and samples change is in it. "native" is no kind: two CPUs without a
        name may differ, and each compiles for itself."""
        contents = _contents(path)
        for ending, data in contents.items():
            self.digest.update(("%s %s %d " % (kind, ending, data.size)).encode())
            self.digest.update(data)
        if kind != "native":
            self.files[kind] = {ending: ray.put(data) for ending, data in contents.items()}

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "local": None, "digest": None}

    def open(self, threads: Optional[int] = None) -> Model:
        """The model in this process, whichever that is; one for all calls. threads: of a run (None: the CPUs that Ray gave)."""
        threads = threads or _threads()
        with _lock:
            model = _opened.get((self.key, threads))
            if model is None:
                model = _opened[self.key, threads] = self._opened_here(threads)
            return model

    def _opened_here(self, threads: int) -> Model:
        files = self.files.get("") or self.files.get(native_kind())
        if files is None:
            return self._compiled_here(threads)
        found: Dict[str, Any] = files

        def build(path: str) -> None:
            for ending, reference in found.items():
                ray.get(reference).tofile(path + ending)
        kept = _cache.library("ray-%s-%s" % (self.key, native_kind()), "model.so", build)
        if kept:
            return load(kept, threads=threads)
        own = tempfile.mkdtemp(prefix="cytoc-ray-")
        try:
            build(os.path.join(own, "model.so"))
            return Model(os.path.join(own, "model.so"), threads=threads, _owned=own)
        except BaseException:
            shutil.rmtree(own, ignore_errors=True)
            raise

    def _compiled_here(self, threads: int) -> Model:
        source = ray.get(self.source) if isinstance(self.source, ray.ObjectRef) else self.source
        return compile_model(source, threads=threads, **self.options)


def _threads() -> int:
    """As many as Ray has given this task or actor CPUs; the driver, which is neither, takes one."""
    try:
        given = ray.get_runtime_context().get_assigned_resources().get("CPU", 0)
    except (AssertionError, RuntimeError):  # what Ray answers a driver
        given = 1
    return max(1, int(given))
