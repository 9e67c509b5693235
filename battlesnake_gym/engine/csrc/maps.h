/* The maps by file: each list ends with one that has no name. */
#ifndef BATTLESNAKE_MAPS_H
#define BATTLESNAKE_MAPS_H

#include "game.h"

extern const Map PLAIN_MAPS[];   /* no hazards, or hazards that stay where they are */
extern const Map RANDOM_MAPS[];  /* hazards that come cell by cell or side by side, from the stream */
extern const Map CLOCKED_MAPS[]; /* hazards that depend on turns and tails */
extern const Map FIXED_MAPS[];   /* boards of one size with their own starts */
extern const Map MAZE_MAPS[];

/* What other maps do too. */
int setup_standard(Game *game);

#endif
