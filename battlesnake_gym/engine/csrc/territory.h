/* Territory planes of observations, which show the cells that each snake reaches first. */
#ifndef BATTLESNAKE_TERRITORY_H
#define BATTLESNAKE_TERRITORY_H

#include "engine.h"
#include "cpu_features.h"

/* Number of planes: own territory, the opponents' territory, and own territory after a move up,
 * down, left and right. */
enum { NUM_TERRITORY_PLANES = 6 };

/* Cell values: TERRITORY_MAX for cells reached on the next turn, TERRITORY_STEP less per turn, and
 * at least TERRITORY_MIN. */
enum { TERRITORY_MAX = 255, TERRITORY_STEP = 8, TERRITORY_MIN = 15 };

/* An instruction set. */
typedef enum { ISA_PLAIN, ISA_AVX2, ISA_AVX512 } Isa;

/* Writes the planes of all living seats, `size` bytes each; the planes of seat s are at out + s *
 * stride. `size` is the number of cells of the board, or a multiple of 64 for boards of fewer than
 * 64 cells. */
typedef void TerritoryFunction(Isa isa, const Layout *layout, const Record *record, size_t stride,
                               int size, uint8_t *out);

/* Variants for boards of up to 128, 384 and 640 cells. */
TerritoryFunction territory_planes_small, territory_planes_medium, territory_planes_large;

#endif
