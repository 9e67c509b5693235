/* Maps with fixed boards: castles, rivers, islands and the arcade maze. */
#include <string.h>

#include "maps.h"
#include "map_layouts.h"

static void add_hazards(Game *game, const PointList *places) {
    for (int i = 0; i < places->count; i++) {
        add_hazard(game, places->at[i].x, places->at[i].y, 1);
    }
}

/* Marks a cell as taken. Food on these maps avoids all bodies, including the bodies of
 * eliminated snakes. */

static void take_point(const Record *record, uint8_t *taken, int x, int y) {
    if (on_board(record, x, y)) taken[cell_at(record, x, y)] = 1;
}

static void take_neighbors(const Record *record, uint8_t *taken, int x, int y) {
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
        const Point *dead = side_dead_bodies(game->side, seat);
        for (int i = 0; i < game->side->dead_bodies[seat].cells; i++) {
            take_point(record, taken, dead[i].x, dead[i].y);
        }
    }
}

/* Adds food on the first free point of `points`. */
static void feed_first_free(Game *game, const uint8_t *taken, const Point *points, int count) {
    for (int i = 0; i < count; i++) {
        int cell = cell_at(game->record, points[i].x, points[i].y);
        if (!on_board(game->record, points[i].x, points[i].y) || taken[cell]) continue;
        add_food(game, cell);
        return;
    }
}

/* The parameters of a castle map. */

typedef struct {
    const PointList *hazards, *starts, *gates;
    int most_food;
} Castle;

static int setup_castle(Game *game) {
    const Castle *castle = game->rules->map->plan;
    Point starts[MAX_SNAKES];
    int needed = (game->record->num_snakes + 3) / 4 * 4; /* start points form groups of four */
    if (needed > castle->starts->count) return -1;
    memcpy(starts, castle->starts->at, sizeof *starts * (size_t)needed);
    Rand rand;
    game_rand(game, &rand);
    put_snakes_shuffled(game, &rand, starts, needed);
    add_hazards(game, castle->hazards);
    return 0;
}

/* Adds food in a gate that has no snake, head or food beside it; the food settings have no effect.
 * The side data stores the shuffled order of the gates, which the next turn shuffles again. */
static void update_castle(Game *game) {
    enum { FIRST_FOOD_TURN = 10 };
    const Castle *castle = game->rules->map->plan;
    const Record *record = game->record;
    SideData *side = game->side;
    if (record->turn < FIRST_FOOD_TURN || record->num_food == castle->most_food) return;
    if (!side->num_gates) {
        side->num_gates = castle->gates->count;
        memcpy(side->gates, castle->gates->at, sizeof(Point) * (size_t)side->num_gates);
    }
    Rand rand;
    turn_rand(game, &rand);
    shuffle_points(&rand, side->gates, side->num_gates);
    uint8_t taken[MAX_CELLS];
    take_food_and_bodies(game, taken);
    for (int i = 0; i < record->num_food; i++) {
        int cell = side_food(side)[i];
        take_neighbors(record, taken, cell % record->width, cell / record->width);
    }
    for (int seat = 0; seat < record->num_snakes; seat++) {
        take_neighbors(record, taken, record->snakes[seat].x, record->snakes[seat].y);
    }
    feed_first_free(game, taken, side->gates, side->num_gates);
}

/* The parameters of a river or island map. */

typedef struct {
    const PointList *hazards, *starts;
    int places; /* start points per quadrant */
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

/* Sets up the arcade maze. */

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

/* Adds at most one food on a free food cell, with a probability of chance + 1 percent. */
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
    {"hz_castle_wall", MAP_FOOD, false, setup_castle, update_castle, NULL, CASTLE_OF(CASTLE, 2)},
    {"hz_castle_wall_lg", MAP_FOOD, false, setup_castle, update_castle, NULL,
     CASTLE_OF(CASTLE_LG, 2)},
    {"hz_castle_wall_xl", MAP_FOOD, false, setup_castle, update_castle, NULL,
     CASTLE_OF(CASTLE_XL, 4)},
    {"hz_rivers_bridges", FOOD_OFF_HAZARDS, false, setup_rivers, NULL, NULL, RIVERS_OF(RIVERS, 2)},
    {"hz_rivers_bridges_lg", FOOD_OFF_HAZARDS, false, setup_rivers, NULL, NULL,
     RIVERS_OF(RIVERS_LG, 4)},
    {"hz_rivers_bridges_xl", FOOD_OFF_HAZARDS, false, setup_rivers, NULL, NULL,
     RIVERS_OF(RIVERS_XL, 4)},
    {"hz_islands_bridges", FOOD_OFF_HAZARDS, false, setup_rivers, NULL, NULL,
     RIVERS_OF(ISLANDS, 2)},
    {"hz_islands_bridges_lg", FOOD_OFF_HAZARDS, false, setup_rivers, NULL, NULL,
     RIVERS_OF(ISLANDS_LG, 4)},
    {"arcade_maze", MAP_FOOD, false, setup_arcade, update_arcade},
    {0},
};
