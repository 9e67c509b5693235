/* The hooks of the maps, by file. */
#ifndef BATTLESNAKE_MAPS_H
#define BATTLESNAKE_MAPS_H

#include "game.h"

/* maps_plain.c: no hazards, or hazards that stand still */
int setup_standard(Game *game);
int setup_empty(Game *game);
int setup_inner_wall(Game *game);
int setup_rings(Game *game);
int setup_columns(Game *game);
void update_standard(Game *game);
void update_nothing(Game *game);

/* maps_random.c: hazards that come cell by cell or side by side, from the game's stream */
void update_royale(Game *game);
void update_spiral(Game *game);
void update_scatter(Game *game);
int check_scatter(const Game *game);
void update_grow_box(Game *game);
void update_expand_box(Game *game);
void update_expand_scatter(Game *game);

/* maps_clocked.c: hazards that depend on turns and tails */
void update_sinkholes(Game *game);
int setup_pools(Game *game);
void update_pools(Game *game);
int setup_pits(Game *game);
void update_pits(Game *game);
int check_pits(const Game *game);
void update_snail(Game *game);

/* maps_fixed.c: boards of one size with their own starts */
int setup_castle(Game *game);
int setup_castle_lg(Game *game);
int setup_castle_xl(Game *game);
void update_castle(Game *game);
void update_castle_lg(Game *game);
void update_castle_xl(Game *game);
int setup_rivers(Game *game);
int setup_rivers_lg(Game *game);
int setup_rivers_xl(Game *game);
int setup_islands(Game *game);
int setup_islands_lg(Game *game);
void update_rivers(Game *game);
int setup_arcade(Game *game);
void update_arcade(Game *game);

/* maps_maze.c */
int setup_maze(Game *game);
void update_maze(Game *game);
int check_maze(const Game *game);

#endif
