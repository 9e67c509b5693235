/* Lists of maps, one per file. Each list ends with an entry without a name. */
#ifndef BATTLESNAKE_MAPS_H
#define BATTLESNAKE_MAPS_H

#include "game.h"

extern const Map PLAIN_MAPS[];   /* no hazards, or fixed hazards */
extern const Map RANDOM_MAPS[];  /* random hazards, from the official stream */
extern const Map CLOCKED_MAPS[]; /* hazards that depend on the turn or on tails */
extern const Map FIXED_MAPS[];   /* fixed board sizes and start points */
extern const Map MAZE_MAPS[];

/* Sets up a map with the standard start position; returns 0, or -1 if the snakes or the food do not
 * fit on the board. */
int setup_standard(Game *game);

#endif
