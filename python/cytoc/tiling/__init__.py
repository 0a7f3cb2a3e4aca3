# SPDX-License-Identifier: Apache-2.0
"""cytoc.tiling: networks over images and volumes larger than their input, or than memory.

    from cytoc import tiling
    labels = tiling.sliding_window(volume, model, (64, 256, 256), overlap=0.25, mode="gaussian")     # volume: [channels, z, y, x]

or in parts, each of which may run elsewhere, as tiles are plain data:

    grid = tiling.Grid(volume.shape[1:], (64, 256, 256), 0.25)
    blender = tiling.Blender(grid, lead=(1,), write=lambda row, rows: file.write(row, rows), mode="gaussian")
    for tile in grid:
        blender.add(tile, model(tiling.read_tile(volume, tile)[None])[0])                             # in any order
    blender.finish()
"""
from ._blend import BLENDING, Blender, needed, weights
from ._grid import PADDING, Grid, Tile, per_axis, read_tile
from ._window import MERGING, batches, level_tile, merged, pyramid, shrink, sliding_window, stretch, windows, zoom_of

__all__ = ["BLENDING", "MERGING", "PADDING", "Blender", "Grid", "Tile", "batches", "level_tile", "merged", "needed", "per_axis", "pyramid", "read_tile", "shrink",
           "sliding_window", "stretch", "weights", "windows", "zoom_of"]
