/* The maps by name. */
#include <string.h>

#include "game.h"

static int standard_setup(Game *game) {
    Rand rand;
    game_rand(game, &rand);
    return standard_start(game, &rand);
}

static void standard_update(Game *game) { standard_food(game, false); }

static int empty_setup(Game *game) {
    Rand rand;
    game_rand(game, &rand);
    return place_snakes(game, &rand);
}

static void empty_update(Game *game) { (void)game; }

static const Map MAPS[] = {
    {"standard", false, standard_setup, standard_update, NULL},
    {"empty", false, empty_setup, empty_update, NULL},
};

const Map *find_map(const char *name) {
    for (size_t i = 0; i < sizeof MAPS / sizeof *MAPS; i++) {
        if (!strcmp(MAPS[i].name, name)) return &MAPS[i];
    }
    return NULL;
}
