/* Maps whose hazards depend on the turn or on the snakes' tails. */
#include <string.h>

#include "maps.h"
#include "map_layouts.h"

/* Sinkholes: adds one hazard layer to a central disc; the radius is one cell larger each time. */
static void update_sinkholes(Game *game) {
    const Record *record = game->record;
    int every = game->rules->shrink_every > 0 ? game->rules->shrink_every : 10;
    int rings = record->width == 7 ? 3 : record->width == 19 ? 7 : 5;
    int since = record->turn - 1;
    if (since < 0 || (since && since >= (int64_t)every * rings) || since % every) return;
    int radius = since / every;
    for (int dx = -radius; dx <= radius; dx++) {
        for (int dy = -radius; dy <= radius; dy++) {
            bool corner = radius && (dx == radius || dx == -radius) &&
                          (dy == radius || dy == -radius);
            if (!corner) add_hazard(game, record->width / 2 + dx, record->height / 2 + dy, 1);
        }
    }
}

/* One set of pools; each game uses one set. */
typedef struct {
    int count;
    Point pools[4];
} PoolSet;

/* Stores the pool sets for a board width, and returns the number of sets. */
static int pool_sets(int width, const PoolSet **sets) {
    static const PoolSet SMALL[] = {{1, {{3, 3}}}};
    static const PoolSet MIDDLE[] = {
        {2, {{3, 3}, {7, 7}}}, {2, {{3, 7}, {7, 3}}}, {2, {{3, 5}, {7, 5}}}, {2, {{5, 7}, {5, 3}}}};
    static const PoolSet LARGE[] = {{4, {{5, 5}, {13, 13}, {5, 13}, {13, 5}}},
                                    {4, {{5, 10}, {13, 10}, {10, 13}, {10, 5}}}};
    *sets = width == 7 ? SMALL : width == 11 ? MIDDLE : LARGE;
    return width == 7 ? 1 : width == 11 ? 4 : width == 19 ? 2 : 0;
}

static int setup_pools(Game *game) {
    const PoolSet *sets;
    int count = pool_sets(game->record->width, &sets);
    if (!count || setup_standard(game) < 0) return -1;
    Rand rand;
    game_rand(game, &rand);
    const PoolSet *chosen = &sets[rand_intn(&rand, count)];
    for (int i = 0; i < chosen->count; i++) {
        add_hazard(game, chosen->pools[i].x, chosen->pools[i].y, 1);
    }
    return 0;
}

/* Healing pools: removes a random pool every shrink_every turns. The official engine uses one
 * generator for the whole game, so the number of used outputs is stored. */
static void update_pools(Game *game) {
    int every = game->rules->shrink_every, count = count_hazards(game);
    if (every <= 0 || game->record->turn <= 0 || game->record->turn % every || !count) return;
    Rand rand;
    game_rand(game, &rand);
    for (int i = 0; i < game->side->pools_drawn; i++) rand_next(&rand);
    swap_out_hazard(game, rand_intn(&rand, count));
    game->side->pools_drawn = (int32_t)rand.used;
}

static int setup_pits(Game *game) {
    Rand rand;
    game_rand(game, &rand);
    Point starts[4];
    memcpy(starts, PITS_STARTS.at, sizeof starts);
    if (game->record->num_snakes > 4) return -1;
    put_snakes_shuffled(game, &rand, starts, 4);
    return start_food(game, &rand);
}

static void update_pits(Game *game) {
    enum { MOST_LAYERS = 4, CYCLE = 7 };
    int turn = game->record->turn, every = game->rules->shrink_every;
    if (turn % every) return;
    int depth = turn / every % CYCLE;
    clear_hazards(game);
    for (int layer = 0; layer < depth && layer < MOST_LAYERS; layer++) {
        for (int i = 0; i < PITS_HAZARDS.count; i++) {
            add_hazard(game, PITS_HAZARDS.at[i].x, PITS_HAZARDS.at[i].y, 1);
        }
    }
}

/* Rejects a shrink_every that the map cannot use. */
static int check_pits(const Game *game) {
    return game->rules->shrink_every < 1 ? HALT_PITS_EVERY : 0;
}

/* Returns the sum of all runs at the point of run `first`, or 0 if an earlier run is at this
 * point. */
static int count_once(const HazardRun *runs, int num_runs, int first) {
    Point at = runs[first].at;
    int count = 0;
    for (int i = 0; i < num_runs; i++) {
        if (runs[i].at.x != at.x || runs[i].at.y != at.y) continue;
        if (i < first) return 0;
        count += runs[i].count;
    }
    return count;
}

/* Snail mode: removes one layer from all hazards below the upper border, once per cell, in list
 * order. Hazards outside the left and right borders, possible only in imported games, use a slower
 * path. */
static void fade(Game *game, const HazardRun *runs, int num_runs) {
    const Record *record = game->record;
    int total[MAX_CELLS];
    memset(total, 0, sizeof *total * (size_t)(record->width * record->height));
    for (int i = 0; i < num_runs; i++) {
        Point at = runs[i].at;
        if (on_board(record, at.x, at.y)) total[cell_at(record, at.x, at.y)] += runs[i].count;
    }
    for (int i = 0; i < num_runs; i++) {
        Point at = runs[i].at;
        if (on_board(record, at.x, at.y)) {
            int *layers = &total[cell_at(record, at.x, at.y)];
            if (*layers > 1) add_hazard(game, at.x, at.y, *layers - 1);
            *layers = 0;
        } else if (at.y < record->height) {
            int layers = count_once(runs, num_runs, i);
            if (layers > 1) add_hazard(game, at.x, at.y, layers - 1);
        }
    }
}

/* Returns the tail cell of a snake. */
static int oldest_cell(const Game *game, int seat) {
    const Record *record = game->record;
    const uint16_t *marks = record_marks(game->layout, record);
    int age = record->snakes[seat].extent - 1;
    uint16_t oldest = (uint16_t)(seat << CLOCK_BITS | (record->clock - age));
    int cell = 0;
    while (cell < record->width * record->height - 1 && marks[cell] != oldest) cell++;
    return cell;
}

/* Snail mode: trails lose a layer, trails of the previous turn appear, and new trails are stored. A
 * new trail is stored above the board, at y + height, for one turn. */
static void update_snail(Game *game) {
    const Record *record = game->record;
    int height = record->height, num_runs = game->side->num_runs;
    HazardRun runs[2 * MAX_CELLS + 800];
    memcpy(runs, side_hazard_runs(game->side), sizeof *runs * (size_t)num_runs);
    clear_hazards(game);
    fade(game, runs, num_runs);
    unsigned rest;
    for (rest = record->alive_mask; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        const Snake *snake = &record->snakes[seat];
        if (snake->extent < snake->length) continue; /* the tail is stacked and stays */
        int tail = oldest_cell(game, seat);
        add_hazard(game, tail % record->width, tail / record->width + height, snake->length);
    }
    for (int i = 0; i < num_runs; i++) {
        int x = runs[i].at.x, y = runs[i].at.y - height;
        if (y >= 0 && !is_living_head(record, x, y)) add_hazard(game, x, y, runs[i].count);
    }
}

const Map CLOCKED_MAPS[] = {
    {"snail_mode", STANDARD_FOOD, true, setup_standard, update_snail},
    {"sinkholes", STANDARD_FOOD, true, setup_standard, update_sinkholes},
    {"healing_pools", STANDARD_FOOD, true, setup_pools, update_pools},
    {"hz_hazard_pits", STANDARD_FOOD, true, setup_pits, update_pits, check_pits},
    {0},
};
