/* SPDX-License-Identifier: Apache-2.0 */
/* volume.h - makes volumes as a light-sheet microscope might see them: cells, dirt and fibres behind haze and noise. */
#ifndef VOLUME_H
#define VOLUME_H

#include <stdint.h>

/* Fills depth x height x width voxels, z slowest: what is seen, about 0 to 1, and 1 where there is a cell, else 0. Equal
 * arguments make equal volumes. */
void volume_make(int depth, int height, int width, uint32_t seed, float *seen, uint8_t *cell);

#endif
