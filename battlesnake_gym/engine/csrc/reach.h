/* The planes of the observation `reach` that show who reaches which cells first. */
#ifndef BATTLESNAKE_REACH_H
#define BATTLESNAKE_REACH_H

#include "engine.h"
#include "processor.h"

/* What is reached by all moves, what others reach, and what is reached by going up, down, left and
 * right first. */
enum { REACH_PLANES = 6 };

/* What a cell shows: the most on the coming turn, less for each turn later. */
enum { SOONEST = 255, TURN_LATER = 8, LATEST = 15 };

typedef enum { WITHOUT_VECTORS, WITH_AVX2, WITH_AVX512 } Vectors;

/* Writes the planes of all living seats, `size` bytes each, those of seat s at out + s * stride: as many
 * as the board has cells, if those are 64 or more, or as fill whole words of 64. */
typedef void ReachFunction(Vectors vectors, const Layout *layout, const Record *record,
                           size_t stride, int size, uint8_t *out);

/* For boards of up to 128, 384 and 640 cells. */
ReachFunction reach_planes_small, reach_planes_medium, reach_planes_large;

#endif
