/* Maps without hazards, or with constant hazards. */
#include "maps.h"

int setup_standard(Game *game) {
    Rand rand;
    game_rand(game, &rand);
    return standard_start(game, &rand);
}

static int setup_empty(Game *game) {
    Rand rand;
    game_rand(game, &rand);
    return place_snakes(game, &rand);
}

/* Adds the border of the rectangle with number - 1 free cells on each side of the board. */
static int add_ring(Game *game, int number) {
    int width = game->record->width, height = game->record->height;
    if (number >= (width < height ? width : height) - 1) return -1;
    int left = number - 1, right = width - number, bottom = number - 1, top = height - number;
    for (int x = left; x <= right; x++) {
        add_hazard(game, x, bottom, 1);
        add_hazard(game, x, top, 1);
    }
    for (int y = bottom + 1; y < top; y++) {
        add_hazard(game, left, y, 1);
        add_hazard(game, right, y, 1);
    }
    return 0;
}

static int setup_inner_wall(Game *game) {
    return setup_standard(game) < 0 ? -1 : add_ring(game, 2);
}

static int setup_rings(Game *game) {
    if (setup_standard(game) < 0) return -1;
    for (int number = 2; number < game->record->width / 2; number += 2) {
        if (add_ring(game, number) < 0) return -1;
    }
    return 0;
}

static int setup_columns(Game *game) {
    if (setup_standard(game) < 0) return -1;
    for (int x = 1; x < game->record->width; x += 2) {
        for (int y = 1; y < game->record->height; y += 2) add_hazard(game, x, y, 1);
    }
    return 0;
}

const Map PLAIN_MAPS[] = {
    {"standard", STANDARD_FOOD, false, setup_standard},
    {"empty", MAP_FOOD, false, setup_empty},
    {"hz_inner_wall", STANDARD_FOOD, false, setup_inner_wall},
    {"hz_rings", STANDARD_FOOD, false, setup_rings},
    {"hz_columns", STANDARD_FOOD, false, setup_columns},
    {0},
};
