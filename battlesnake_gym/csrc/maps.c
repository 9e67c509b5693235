/* The maps by name. */
#include "maps.h"

#include <string.h>

static const Map MAPS[] = {
    /* name, whether hazards move, set-up, update, check before a turn */
    {"standard", false, setup_standard, update_standard, NULL},
    {"empty", false, setup_empty, update_nothing, NULL},
    {"royale", false, setup_standard, update_royale, NULL},
    {"hz_inner_wall", false, setup_inner_wall, update_standard, NULL},
    {"hz_rings", false, setup_rings, update_standard, NULL},
    {"hz_columns", false, setup_columns, update_standard, NULL},
    {"hz_spiral", true, setup_standard, update_spiral, NULL},
    {"hz_scatter", true, setup_standard, update_scatter, check_scatter},
    {"hz_grow_box", true, setup_standard, update_grow_box, NULL},
    {"hz_expand_box", true, setup_standard, update_expand_box, NULL},
    {"hz_expand_scatter", true, setup_standard, update_expand_scatter, NULL},
    {"snail_mode", true, setup_standard, update_snail, NULL},
    {"sinkholes", true, setup_standard, update_sinkholes, NULL},
    {"healing_pools", true, setup_pools, update_pools, NULL},
    {"hz_hazard_pits", true, setup_pits, update_pits, check_pits},
    {"hz_castle_wall", false, setup_castle, update_castle, NULL},
    {"hz_castle_wall_lg", false, setup_castle_lg, update_castle_lg, NULL},
    {"hz_castle_wall_xl", false, setup_castle_xl, update_castle_xl, NULL},
    {"hz_rivers_bridges", false, setup_rivers, update_rivers, NULL},
    {"hz_rivers_bridges_lg", false, setup_rivers_lg, update_rivers, NULL},
    {"hz_rivers_bridges_xl", false, setup_rivers_xl, update_rivers, NULL},
    {"hz_islands_bridges", false, setup_islands, update_rivers, NULL},
    {"hz_islands_bridges_lg", false, setup_islands_lg, update_rivers, NULL},
    {"arcade_maze", false, setup_arcade, update_arcade, NULL},
    {"solo_maze", true, setup_maze, update_maze, check_maze},
};

const Map *find_map(const char *name) {
    for (size_t i = 0; i < sizeof MAPS / sizeof *MAPS; i++) {
        if (!strcmp(MAPS[i].name, name)) return &MAPS[i];
    }
    return NULL;
}
