/* Food: the list, the plane, and the cells on which food appears. */
#include <string.h>

#include "game.h"

void add_food(Game *game, int cell) {
    record_food(game->layout, game->record)[cell]++;
    side_food(game->side)[game->record->num_food++] = (int16_t)cell;
    game->record->food_changes++;
}

void remove_food(Game *game, int cell) {
    uint8_t *food = record_food(game->layout, game->record);
    if (!food[cell]) return;
    int left = game->record->num_food - food[cell];
    food[cell] = 0;
    int16_t *list = side_food(game->side);
    for (int from = 0, to = 0; from < game->record->num_food; from++) {
        if (list[from] != cell) list[to++] = list[from];
    }
    game->record->num_food = (uint16_t)left;
    game->record->food_changes++;
}

void clear_food(Game *game) {
    if (!game->record->num_food) return;
    memset(record_food(game->layout, game->record), 0,
           (size_t)(game->record->width * game->record->height));
    game->record->num_food = 0;
    game->record->food_changes++;
}

void game_rand(const Game *game, Rand *rand) { rand_seeded(rand, game->record->seed); }

/* Marks the cells on which no food may appear: food, living bodies and neighbors of living
 * heads. */
static void taken_cells(const Game *game, bool spare_hazards, uint8_t *restrict taken) {
    const Record *record = game->record;
    int cells = record->width * record->height;
    memcpy(taken, record_food(game->layout, record), (size_t)cells);
    if (spare_hazards) {
        const uint8_t *restrict hazards = record_hazards(game->layout, record);
        for (int cell = 0; cell < cells; cell++) taken[cell] |= hazards[cell];
    }
    const uint16_t *restrict marks = record_marks(game->layout, record);
    for (unsigned rest = record->alive_mask; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        const Snake *snake = &record->snakes[seat];
        uint16_t extent = snake->extent;
        uint16_t oldest = (uint16_t)((seat << CLOCK_BITS | record->clock) - extent + 1);
        for (int cell = 0; cell < cells; cell++) {
            taken[cell] |= (uint16_t)(marks[cell] - oldest) < extent;
        }
        int cell = cell_at(record, snake->x, snake->y);
        if (snake->x > 0) taken[cell - 1] = 1;
        if (snake->x < record->width - 1) taken[cell + 1] = 1;
        if (snake->y > 0) taken[cell - record->width] = 1;
        if (snake->y < record->height - 1) taken[cell + record->width] = 1;
    }
}

void free_cells(const Game *game, bool spare_hazards, CellList *list) {
    uint8_t taken[MAX_CELLS];
    taken_cells(game, spare_hazards, taken);
    int width = game->record->width, height = game->record->height, count = 0;
    for (int x = 0; x < width; x++) {
        for (int y = 0, cell = x; y < height; y++, cell += width) {
            list->cells[count] = (int16_t)cell;
            count += !taken[cell];
        }
    }
    list->count = count;
}

static bool is_free(const Game *game, bool spare_hazards, int cell) {
    const Record *record = game->record;
    if (record_food(game->layout, record)[cell]) return false;
    if (spare_hazards && record_hazards(game->layout, record)[cell]) return false;
    if (mark_owner(record, record_marks(game->layout, record)[cell]) >= 0) return false;
    int x = cell % record->width, y = cell / record->width;
    for (unsigned rest = record->alive_mask; rest; rest &= rest - 1) {
        const Snake *snake = &record->snakes[__builtin_ctz(rest)];
        int dx = snake->x - x, dy = snake->y - y;
        if (dx * dx + dy * dy == 1) return false;
    }
    return true;
}

/* Adds one food by rejection sampling, with equal probability for every free cell, as with the
 * shuffle. Returns false if 16 random cells are blocked; on such crowded boards, a list of free
 * cells is faster. */
static bool place_one_fast(Game *game, Rand *rand, bool spare_hazards) {
    uint32_t cells = (uint32_t)(game->record->width * game->record->height);
    for (int tries = 0; tries < 16; tries++) {
        int cell = (int)rand_bounded(rand, cells);
        if (is_free(game, spare_hazards, cell)) {
            add_food(game, cell);
            return true;
        }
    }
    return false;
}

static void place_food(Game *game, Rand *rand, int count, bool spare_hazards) {
    if (rand->fast && count == 1 && place_one_fast(game, rand, spare_hazards)) return;
    CellList list;
    free_cells(game, spare_hazards, &list);
    if (count == 1) {
        if (list.count) add_food(game, list.cells[rand_shuffled(rand, list.count, 0)]);
        return;
    }
    rand_shuffle(rand, list.cells, list.count);
    for (int i = 0; i < count && i < list.count; i++) add_food(game, list.cells[i]);
}

void standard_food(Game *game, bool spare_hazards) {
    const Rules *rules = game->rules;
    int missing = max_int(0, rules->minimum_food) - game->record->num_food;
    if (missing <= 0 && rules->food_spawn_chance <= 0) return;
    Rand rand;
    turn_rand(game, &rand);
    if (missing > 0) {
        place_food(game, &rand, missing, spare_hazards);
    } else if (100 - rand_percent(&rand) < rules->food_spawn_chance) {
        place_food(game, &rand, 1, spare_hazards);
    }
}
