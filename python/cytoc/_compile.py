# SPDX-License-Identifier: Apache-2.0
"""cytoc.compile: from a model, in whatever form, to a Model that runs."""
from __future__ import annotations

import ctypes as C
import os
import tempfile
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from . import _cache
from ._errors import CompileError, CompileWarning, Diagnostic, warn
from ._model import Model
from ._native import Diagnostic as NativeDiagnostic
from ._native import DiagnosticFn, ExternalFn, Job, ProgressFn, Result, compiler, decoded
from ._source import Source, source_of

Progress = Callable[[str, int, int], Any]
_FILES = "input or output failed", "no linker"  # names of statuses, of what may have found no space for a file
_SEVERITIES = ("error", "warning", "note")


def option_words(*, target: Optional[str] = None, int8: Union[None, bool, str] = None, calibrate: Any = None, fp16: bool = False,
                 bf16: bool = False, weights: Optional[str] = None, dims: Optional[Mapping[str, int]] = None,
                 shapes: Optional[Mapping[str, Sequence[Any]]] = None, **options: Any) -> List[str]:
    """The words of the command line. Names in **options are its long options, with '_' for '-'; True is an option without a value."""
    words: List[str] = []

    def add(name: str, value: Any) -> None:
        if value is None or value is False:
            return
        flag = "-" + name if len(name) == 1 else "--" + name.replace("_", "-")
        words.append(flag if value is True else flag + ("" if len(name) == 1 else "=") + _word(value))

    add("target", target)
    add("int8", int8)
    add("calibrate", os.fspath(calibrate) if calibrate is not None else None)
    add("fp16", fp16)
    add("bf16", bf16)
    add("weights", weights)
    for name, size in (dims or {}).items():
        add("dim", "%s=%d" % (name, size))
    for name, shape in (shapes or {}).items():
        add("shape", "%s=%s" % (name, "x".join("?" if d is None or isinstance(d, str) else str(int(d)) for d in shape)))
    for name, value in options.items():
        add(name, value)
    return words


def _word(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _samples(calibrate: Any, folder: str) -> Any:
    """Samples given as arrays become a file: {input: stacked arrays}, or a list of dicts or arrays."""
    import numpy as np
    if calibrate is None or isinstance(calibrate, (str, os.PathLike)):
        return calibrate
    if isinstance(calibrate, Mapping):
        stacked = {name: np.asarray(a) for name, a in calibrate.items()}
    else:
        samples = [s if isinstance(s, Mapping) else {"arr_0": s} for s in calibrate]
        if not samples:
            raise ValueError("calibrate: expected samples, found none")
        stacked = {name: np.stack([np.asarray(s[name]) for s in samples]) for name in samples[0]}
    path = os.path.join(folder, "samples.npz")
    save: Any = np.savez
    save(path, **stacked)
    return path


class _Bar:
    """progress=True: a bar of tqdm's."""

    def __init__(self) -> None:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            raise ImportError("progress=True needs the package tqdm: pip install tqdm") from None
        self.bar: Any = tqdm(total=None, unit="", leave=False)

    def __call__(self, stage: str, done: int, total: int) -> None:
        self.bar.set_description_str(stage, refresh=False)
        self.bar.total, self.bar.n = total or None, done
        self.bar.refresh()

    def close(self) -> None:
        self.bar.close()


def run_compiler(source: Source, words: Sequence[str], output: str, progress: Optional[Progress] = None) -> List[Diagnostic]:
    """Writes the library; returns what the compiler had to say. CompileError, or what `progress` raised, which cancels."""
    native = compiler()
    said: List[Diagnostic] = []
    raised: List[BaseException] = []

    def on_diagnostic(_: Any, p: Any) -> None:
        d: NativeDiagnostic = p.contents
        said.append(Diagnostic(_SEVERITIES[d.severity], decoded(d.text), decoded(d.file), decoded(d.graph), decoded(d.node),
                               decoded(d.op), d.node_index, decoded(d.item), decoded(d.line)))

    def on_progress(_: Any, stage: bytes, done: int, total: int) -> int:
        try:
            if progress:
                progress(stage.decode(), done, total)
        except BaseException as e:  # KeyboardInterrupt, too
            raised.append(e)
            return 1
        return 0

    callbacks = (DiagnosticFn(on_diagnostic), ProgressFn(on_progress))
    encoded = (C.c_char_p * max(len(words), 1))(*[w.encode() for w in words])
    job = Job(struct_size=C.sizeof(Job), external=ExternalFn(), options=encoded, option_count=len(words),
              output_path=os.fsencode(output), on_diagnostic=callbacks[0], on_progress=callbacks[1])
    if source.data is not None:
        job.model, job.model_size = C.cast(C.c_char_p(source.data), C.c_void_p), len(source.data)
        job.model_dir = os.fsencode(source.directory) if source.directory else None
    else:
        job.model_path = os.fsencode(str(source.path))
    result = Result(struct_size=C.sizeof(Result))
    try:
        status = native.cytoc_compile(C.byref(job), C.byref(result))
        message, report = decoded(result.message), decoded(result.report)
    finally:
        native.cytoc_result_free(C.byref(result))
    if raised:
        raise raised[0]
    if status:
        name = decoded(native.cytoc_status_name(status))
        raise CompileError(message or name, name, said)
    if report:
        print(report, end="", flush=True)
    return said


def _key(source: Source, words: Sequence[str]) -> str:
    native = compiler()
    h = source.digest()
    for word in [decoded(native.cytoc_build_id()), decoded(native.cytoc_native_target()), *words]:
        h.update(b"\0" + word.encode())
    for word in words:  # samples are a part of what is compiled
        if word.startswith("--calibrate="):
            h.update(_files_digest(word.partition("=")[2]))
    return str(h.hexdigest())


def _files_digest(path: str) -> bytes:
    import hashlib
    h = hashlib.sha256()
    places = [path] if os.path.isfile(path) else sorted(os.path.join(r, f) for r, _, files in os.walk(path) for f in files)
    for place in places:
        h.update(os.path.relpath(place, path).encode())
        with open(place, "rb") as f:
            for block in iter(lambda: f.read(1 << 20), b""):
                h.update(block)
    return h.digest()


def compile(model: Any, *, target: Optional[str] = None, int8: Union[None, bool, str] = None, calibrate: Any = None, fp16: bool = False,
            bf16: bool = False, weights: Optional[str] = None, dims: Optional[Mapping[str, int]] = None,
            shapes: Optional[Mapping[str, Sequence[Any]]] = None, threads: Optional[int] = None, device: int = 0, cache: bool = True,
            progress: Union[None, bool, Progress] = None, args: Optional[Sequence[Any]] = None, dynamic_shapes: Any = None,
            input_names: Optional[Sequence[str]] = None, output_names: Optional[Sequence[str]] = None, **options: Any) -> Model:
    """Compiles a model into a library for this machine, and opens it.

    model: a path, the bytes of an ONNX file, an onnx.ModelProto (its external data loaded, or in the working folder), an onnx_ir or
        onnxscript model, or a torch.nn.Module, which is exported: then `args` are example inputs, and `dynamic_shapes`, `input_names`
        and `output_names` are those of torch.onnx.export.
    target: a CPU or GPU, "native" by default: "x86-64-v3", "sm_89", "aarch64". A model for another machine can be
        saved, and neither run nor looked into here.
    int8: "static" or "dynamic" (True: by whether there are samples). calibrate: samples for "static": a path as the command line takes
        it, {input: arrays stacked along a first axis}, or a list of arrays or of {input: array}.
    fp16, bf16: operands of products in half precision. weights: "int8" or "int4": products' weights stored so.
    dims: {symbol: size} fixes sizes that the model leaves open; shapes: {input: shape}, None for what stays open.
    threads: how many a run may use (None: all CPUs of this process). device: number of the GPU, of models for CUDA.
    cache: keep the library for the next process that asks for the same (see cytoc.cache_folder()).
    progress: True for a bar (needs tqdm), or a function (stage, done, total) -> None; an exception of its cancels.
    options: any other option of the command line: O=2, fast_algorithms="off"; with explain=True, stats=True or v=True the compiler
        prints what it does on the command line, and does it anew.

    Raises CompileError, whose `diagnostics` has all that the compiler said; warnings of the compiler are CompileWarning.
    """
    names: Dict[str, Any] = {}
    if input_names:
        names["input_names"] = list(input_names)
    if output_names:
        names["output_names"] = list(output_names)
    bar = _Bar() if progress is True else None
    tell = bar if bar else progress if callable(progress) else None
    with tempfile.TemporaryDirectory(prefix="cytoc-") as folder:
        try:
            if tell:
                tell("export" if hasattr(model, "state_dict") else "read", 0, 0)
            source = source_of(model, args, dynamic_shapes, **names)
            words = option_words(target=target, int8=int8, calibrate=_samples(calibrate, folder), fp16=fp16, bf16=bf16, weights=weights,
                                 dims=dims, shapes=shapes, **options)

            def build(path: str) -> None:
                for d in run_compiler(source, words, path, tell):
                    if d.severity == "warning":
                        warn(str(d), CompileWarning)

            def build_kept(path: str) -> None:
                try:
                    build(path)
                except CompileError as e:
                    if e.status in _FILES:  # the cache's folder, it may be
                        raise OSError(str(e)) from e
                    raise

            file = "model.dll" if target and target.endswith("-windows") else "model.so"
            how: Dict[str, Any] = {"threads": threads, "device": device, "_elsewhere": target not in (None, "native")}
            printed = any(options.get(name) for name in ("explain", "stats", "v"))
            path = _cache.library(_key(source, words), file, build_kept) if cache and not printed else None
            if path:
                return Model(path, **how)
            own = tempfile.mkdtemp(prefix="cytoc-")
            try:
                build(os.path.join(own, file))
                return Model(os.path.join(own, file), _owned=own, **how)
            except BaseException:
                import shutil
                shutil.rmtree(own, ignore_errors=True)
                raise
        finally:
            if bar:
                bar.close()


def version() -> str:
    return decoded(compiler().cytoc_version())
