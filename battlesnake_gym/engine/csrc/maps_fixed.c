#include <string.h>

#include "maps.h"
#include "tables.h"

static void add_hazards(Game *game, const Places *places) {
    for (int i = 0; i < places->count; i++) {
        add_hazard(game, places->at[i].x, places->at[i].y, 1);
    }
}

/* ---- cells that food avoids here: all bodies, dead ones included ---- */

static void take_point(const Record *record, uint8_t *taken, int x, int y) {
    if (on_board(record, x, y)) taken[cell_at(record, x, y)] = 1;
}

static void take_neighbours(const Record *record, uint8_t *taken, int x, int y) {
    take_point(record, taken, x - 1, y);
    take_point(record, taken, x + 1, y);
    take_point(record, taken, x, y - 1);
    take_point(record, taken, x, y + 1);
}

static void take_food_and_bodies(const Game *game, uint8_t *taken) {
    const Record *record = game->record;
    int cells = record->width * record->height;
    const uint16_t *marks = record_marks(game->layout, record);
    memcpy(taken, record_food(game->layout, record), (size_t)cells);
    for (int cell = 0; cell < cells; cell++) taken[cell] |= mark_owner(record, marks[cell]) >= 0;
    for (int seat = 0; seat < record->num_snakes; seat++) {
        if (record->snakes[seat].alive) continue;
        const Point *dead = cold_dead(game->cold, seat);
        for (int i = 0; i < game->cold->graves[seat].cells; i++) {
            take_point(record, taken, dead[i].x, dead[i].y);
        }
    }
}

/* Food on the first of these points that is not taken. */
static void feed_first_free(Game *game, const uint8_t *taken, const Point *points, int count) {
    for (int i = 0; i < count; i++) {
        int cell = cell_at(game->record, points[i].x, points[i].y);
        if (!on_board(game->record, points[i].x, points[i].y) || taken[cell]) continue;
        add_food(game, cell);
        return;
    }
}

/* ---- castles ---- */

typedef struct {
    const Places *hazards, *starts, *gates;
    int most_food;
} Castle;

static int setup_castle(Game *game) {
    const Castle *castle = game->rules->map->plan;
    Point starts[MAX_SNAKES];
    int needed = (game->record->num_snakes + 3) / 4 * 4; /* start places come in groups of four */
    if (needed > castle->starts->count) return -1;
    memcpy(starts, castle->starts->at, sizeof *starts * (size_t)needed);
    Rand rand;
    game_rand(game, &rand);
    put_snakes_shuffled(game, &rand, starts, needed);
    add_hazards(game, castle->hazards);
    return 0;
}

/* Food in a gate that has no snake, head or food beside it, whatever the settings say. The list of
 * gates stays as it was shuffled. */
static void update_castle(Game *game) {
    enum { FIRST_FOOD_TURN = 10 };
    const Castle *castle = game->rules->map->plan;
    const Record *record = game->record;
    Cold *cold = game->cold;
    if (record->turn < FIRST_FOOD_TURN || record->num_food == castle->most_food) return;
    if (!cold->num_gates) {
        cold->num_gates = castle->gates->count;
        memcpy(cold->gates, castle->gates->at, sizeof(Point) * (size_t)cold->num_gates);
    }
    Rand rand;
    turn_rand(game, &rand);
    shuffle_points(&rand, cold->gates, cold->num_gates);
    uint8_t taken[MAX_CELLS];
    take_food_and_bodies(game, taken);
    for (int i = 0; i < record->num_food; i++) {
        int cell = cold_food(cold)[i];
        take_neighbours(record, taken, cell % record->width, cell / record->width);
    }
    for (int seat = 0; seat < record->num_snakes; seat++) {
        take_neighbours(record, taken, record->snakes[seat].x, record->snakes[seat].y);
    }
    feed_first_free(game, taken, cold->gates, cold->num_gates);
}

/* ---- rivers and islands ---- */

typedef struct {
    const Places *hazards, *starts;
    int places; /* in a quadrant */
} Rivers;

static int setup_rivers(Game *game) {
    const Rivers *rivers = game->rules->map->plan;
    const Point(*quadrants)[4] = (const Point(*)[4])rivers->starts->at;
    Rand rand;
    game_rand(game, &rand);
    if (place_in_quadrants(game, &rand, quadrants, rivers->places) < 0) return -1;
    add_hazards(game, rivers->hazards);
    return food_beside_snakes(game, &rand, true);
}

/* ---- arcade ---- */

static int setup_arcade(Game *game) {
    enum { FIRST_FOOD_X = 9, FIRST_FOOD_Y = 11 };
    int corners = ARCADE_CORNERS.count, later = ARCADE_LATER_STARTS.count;
    Point starts[MAX_SNAKES];
    memcpy(starts, ARCADE_CORNERS.at, sizeof(Point) * (size_t)corners);
    memcpy(starts + corners, ARCADE_LATER_STARTS.at, sizeof(Point) * (size_t)later);
    if (game->record->num_snakes > corners + later) return -1;
    Rand rand;
    game_rand(game, &rand);
    shuffle_points(&rand, starts, corners);
    for (int seat = 0; seat < game->record->num_snakes; seat++) {
        put_snake(game, seat, starts[seat].x, starts[seat].y);
    }
    add_hazards(game, &ARCADE_HAZARDS);
    if (game->rules->minimum_food > 0) {
        add_food(game, cell_at(game->record, FIRST_FOOD_X, FIRST_FOOD_Y));
    }
    return 0;
}

/* Perhaps one food on a fixed place that is free; here chance + 1 of 100 rolls pass. */
static void update_arcade(Game *game) {
    int chance = game->rules->food_spawn_chance;
    if (!chance) return;
    Rand rand;
    turn_rand(game, &rand);
    if (rand_percent(&rand) > chance) return;
    Point places[MAX_GATES];
    memcpy(places, ARCADE_FOOD.at, sizeof(Point) * (size_t)ARCADE_FOOD.count);
    shuffle_points(&rand, places, ARCADE_FOOD.count);
    uint8_t taken[MAX_CELLS];
    take_food_and_bodies(game, taken);
    feed_first_free(game, taken, places, ARCADE_FOOD.count);
}

#define CASTLE_OF(name, most_food) \
    &(const Castle){&name##_HAZARDS, &name##_STARTS, &name##_GATES, most_food}
#define RIVERS_OF(name, places) &(const Rivers){&name##_HAZARDS, &name##_STARTS, places}

const Map FIXED_MAPS[] = {
    {"hz_castle_wall", OWN_FOOD, false, setup_castle, update_castle, NULL, CASTLE_OF(CASTLE, 2)},
    {"hz_castle_wall_lg", OWN_FOOD, false, setup_castle, update_castle, NULL, CASTLE_OF(CASTLE_LG, 2)},
    {"hz_castle_wall_xl", OWN_FOOD, false, setup_castle, update_castle, NULL, CASTLE_OF(CASTLE_XL, 4)},
    {"hz_rivers_bridges", DRY_FOOD, false, setup_rivers, NULL, NULL, RIVERS_OF(RIVERS, 2)},
    {"hz_rivers_bridges_lg", DRY_FOOD, false, setup_rivers, NULL, NULL, RIVERS_OF(RIVERS_LG, 4)},
    {"hz_rivers_bridges_xl", DRY_FOOD, false, setup_rivers, NULL, NULL, RIVERS_OF(RIVERS_XL, 4)},
    {"hz_islands_bridges", DRY_FOOD, false, setup_rivers, NULL, NULL, RIVERS_OF(ISLANDS, 2)},
    {"hz_islands_bridges_lg", DRY_FOOD, false, setup_rivers, NULL, NULL, RIVERS_OF(ISLANDS_LG, 4)},
    {"arcade_maze", OWN_FOOD, false, setup_arcade, update_arcade},
    {0},
};
