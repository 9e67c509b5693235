/* The territory planes of observations: which cells each snake reaches first. */
#ifndef BATTLESNAKE_TERRITORY_H
#define BATTLESNAKE_TERRITORY_H

#include "engine.h"
#include "cpu_features.h"

/* Own territory, the opponents' territory, and own territory after moving up, down, left and
 * right. */
enum { NUM_TERRITORY_PLANES = 6 };

/* Cell values: TERRITORY_MAX on the next turn, TERRITORY_STEP less per turn, at least
 * TERRITORY_MIN. */
enum { TERRITORY_MAX = 255, TERRITORY_STEP = 8, TERRITORY_MIN = 15 };

/* An instruction set. */
typedef enum { ISA_PLAIN, ISA_AVX2, ISA_AVX512 } Isa;

/* Writes the planes of all living seats, `size` bytes each; those of seat s at out + s * stride.
 * `size` is the number of cells of the board if that is 64 or more, otherwise whole words of 64. */
typedef void TerritoryFunction(Isa isa, const Layout *layout, const Record *record, size_t stride,
                               int size, uint8_t *out);

/* For boards of up to 128, 384 and 640 cells. */
TerritoryFunction territory_planes_small, territory_planes_medium, territory_planes_large;

#endif
