/* Maps with random hazards. */
#include "maps.h"

static void update_royale(Game *game) {
    if (game->record->turn + 1 >= game->rules->shrink_every) royale_hazards(game);
}

/* Returns an upper bound of the ring radius around a cell, as in the official engine. */
static int largest_radius(const Record *record, int x, int y) {
    return max_int(max_int(x, y), max_int(record->width - x, record->height - y));
}

/* Moves (x, y) to the position after `step` steps of a clockwise spiral around (x, y). Ring k of
 * the spiral has radius k. Each ring starts beside its upper left corner and ends in the corner.
 * Returns false beyond the last ring. */
static bool spiral_step(int step, int rings, int *x, int *y) {
    static const int STEP_X[] = {1, 0, -1, 0}, STEP_Y[] = {0, -1, 0, 1};
    int radius = 1;
    for (; radius <= rings && step > 8 * radius; radius++) step -= 8 * radius;
    if (radius > rings) return false;
    *x -= radius;
    *y += radius;
    for (int side = 0; side < 4; side++) {
        int steps = min_int(step, 2 * radius);
        *x += STEP_X[side] * steps;
        *y += STEP_Y[side] * steps;
        step -= steps;
    }
    return true;
}

static void update_spiral(Game *game) {
    enum { EVERY = 3 };
    const Record *record = game->record;
    int turn = record->turn + 1;
    if (turn % EVERY) return;
    Rand rand;
    game_rand(game, &rand);
    int margin_x = record->width * 3 / 10, margin_y = record->height * 3 / 10;
    int x = rand_range(&rand, margin_x, record->width - 1 - margin_x);
    int y = rand_range(&rand, margin_y, record->height - 1 - margin_y);
    int step = turn / EVERY - 1;
    if (step && !spiral_step(step, largest_radius(record, x, y), &x, &y)) return;
    if (on_board(record, x, y)) add_hazard(game, x, y, 1);
}

enum { SCATTER_EVERY = 2 };

static void update_scatter(Game *game) {
    const Record *record = game->record;
    int turn = record->turn + 1;
    if (turn % SCATTER_EVERY) return;
    Rand rand;
    game_rand(game, &rand);
    int cells = record->width * record->height;
    int chosen = rand_shuffled(&rand, cells, turn / SCATTER_EVERY - 1);
    add_hazard(game, chosen / record->height, chosen % record->height, 1);
}

/* The official engine crashes if all cells have hazards. */
static int check_scatter(const Game *game) {
    int turn = game->record->turn + 1, cells = game->record->width * game->record->height;
    return turn % SCATTER_EVERY == 0 && turn / SCATTER_EVERY > cells ? HALT_SCATTER_FULL : 0;
}

/* Returns whether hazards appear on this turn: on turns 1, 1 + every, ... until every cell has a
 * hazard. */
static bool is_due(const Game *game, int every) {
    const Record *record = game->record;
    return record->turn % every == 0 && count_hazards(game) != record->width * record->height;
}

typedef struct {
    int left, right, bottom, top;
} Box;

/* Grows the box by one random side that is not at the border, and stores the new cells in `added`.
 * Returns false if every side is at the border. */
static bool grow(const Record *record, Rand *rand, Box *box, Box *added) {
    bool room[] = {box->left > 0, box->top < record->height - 1, box->right < record->width - 1,
                   box->bottom > 0};
    int sides[4], count = 0;
    for (int side = 0; side < 4; side++) {
        if (room[side]) sides[count++] = side;
    }
    if (!count) return false;
    Box all = *box;
    switch (sides[rand_intn(rand, count)]) {
        case 0: box->left--; all.left = all.right = box->left; break;
        case 1: box->top++; all.bottom = all.top = box->top; break;
        case 2: box->right++; all.left = all.right = box->right; break;
        default: box->bottom--; all.bottom = all.top = box->bottom; break;
    }
    *added = all;
    return true;
}

static void update_grow_box(Game *game) {
    enum { EVERY = 12 };
    const Record *record = game->record;
    if (!is_due(game, EVERY)) return;
    Rand rand;
    game_rand(game, &rand);
    int x = rand_range(&rand, 2, record->width - 2), y = rand_range(&rand, 2, record->height - 2);
    Box box = {x, x, y, y}, added = box;
    for (int i = record->turn / EVERY; i > 0; i--) {
        if (!grow(record, &rand, &box, &added)) return;
    }
    for (x = added.left; x <= added.right; x++) {
        for (y = added.bottom; y <= added.top; y++) add_hazard(game, x, y, 1);
    }
}

/* Lists the cells on the board at Chebyshev distance `radius`, column by column. */
static int square_ring(const Record *record, int x, int y, int radius, Point *cells) {
    int count = 0;
    for (int i = max_int(x - radius, 0); i <= min_int(x + radius, record->width - 1); i++) {
        for (int j = max_int(y - radius, 0); j <= min_int(y + radius, record->height - 1); j++) {
            if (i == x - radius || i == x + radius || j == y - radius || j == y + radius) {
                cells[count++] = (Point){(int8_t)i, (int8_t)j};
            }
        }
    }
    return count;
}

static void update_expand_box(Game *game) {
    enum { EVERY = 20 };
    const Record *record = game->record;
    if (!is_due(game, EVERY)) return;
    Rand rand;
    game_rand(game, &rand);
    int x = rand_range(&rand, 2, record->width - 2);
    /* As in the official engine, y is also drawn from the range of the width. */
    int y = rand_range(&rand, 2, record->width - 2);
    int radius = record->turn / EVERY;
    if (!radius) {
        add_hazard(game, x, y, 1);
    } else if (radius <= largest_radius(record, x, y)) {
        Point cells[MAX_CELLS];
        int count = square_ring(record, x, y, radius, cells);
        for (int i = 0; i < count; i++) add_hazard(game, cells[i].x, cells[i].y, 1);
    }
}

static void update_expand_scatter(Game *game) {
    const Record *record = game->record;
    if (!is_due(game, SCATTER_EVERY)) return;
    Rand rand;
    game_rand(game, &rand);
    int x = rand_range(&rand, 1, record->width - 1);
    int y = rand_range(&rand, 1, record->width - 1);
    int index = record->turn / SCATTER_EVERY;
    if (!index) {
        add_hazard(game, x, y, 1);
        return;
    }
    index--;
    for (int radius = 1; radius <= largest_radius(record, x, y); radius++) {
        Point cells[MAX_CELLS];
        int count = square_ring(record, x, y, radius, cells);
        int chosen = rand_shuffled(&rand, count, min_int(index, count - 1));
        if (index < count) {
            add_hazard(game, cells[chosen].x, cells[chosen].y, 1);
            return;
        }
        index -= count;
    }
}

const Map RANDOM_MAPS[] = {
    {"royale", STANDARD_FOOD, false, setup_standard, update_royale},
    {"hz_spiral", STANDARD_FOOD, true, setup_standard, update_spiral},
    {"hz_scatter", STANDARD_FOOD, true, setup_standard, update_scatter, check_scatter},
    {"hz_grow_box", STANDARD_FOOD, true, setup_standard, update_grow_box},
    {"hz_expand_box", STANDARD_FOOD, true, setup_standard, update_expand_box},
    {"hz_expand_scatter", STANDARD_FOOD, true, setup_standard, update_expand_scatter},
    {0},
};
