# SPDX-License-Identifier: Apache-2.0
"""cytoc.ray: models on the machines of a Ray cluster.

    import cytoc.ray, ray
    ds = ray.data.read_images("plates/")
    ds = ds.map_batches(cytoc.ray.Predictor("unet.onnx", int8=True), compute=ray.data.TaskPoolStrategy(size=8), num_cpus=1)

    labels = cytoc.ray.sliding_window(volume, cytoc.ray.Predictor("unet.onnx"), (64, 256, 256), overlap=0.25)   # tiles anywhere

A model is compiled once for each kind of CPU in the cluster, by the driver, and goes to the workers through the object store; those of
one machine share the library's memory. docs/ray.md tells the rest. Needs the package ray, and cytoc on every machine.
"""
try:
    import ray as _ray  # noqa: F401
except ImportError:
    raise ImportError("cytoc.ray needs the package ray: pip install 'cytoc[ray]'") from None

from ._predictor import Predictor
from ._window import Remote, sliding_window

__all__ = ["Predictor", "Remote", "sliding_window"]
