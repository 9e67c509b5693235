/* What a network is given of a position, by the formulas of input_table.h. With one rival the groups of
 * the nearest and the mean one are not computed. Areas are shares of the board, so that all sizes look
 * alike. The order of the rivals changes nothing. */

static inline int within(int value, int most) {
    return value > most ? most : value < -most ? -most : value;
}
static inline int smaller(int a, int b) { return a < b ? a : b; }
static inline int above(int value, int least) { return value > least ? value : least; }
static inline int sign(int value) { return (value > 0) - (value < 0); }

static int steps_between(const Search *search, int a, int b) {
    const Question *ask = search->ask;
    int dx = abs(search->x[a] - search->x[b]), dy = abs(search->y[a] - search->y[b]);
    if (ask->wrapped) {
        dx = smaller(dx, ask->width - dx);
        dy = smaller(dy, ask->height - dy);
    }
    return dx + dy;
}

/* Cells as a share of the board, whole: 512. */
static inline int share_of(const Search *search, int cells) { return cells * search->share >> 16; }

/* The inputs of snake `s`, the `i`-th of the living. */
static void snake_inputs(const Search *search, const Position *at, const Territory *land, int i,
                         int s, int16_t *in) {
    const Question *ask = search->ask;
    const Body *body = &at->snake[s];
    int head = head_of(search, at, s), cells = land->cells[i], food_at = land->food_at[i];
    int slack = body->health - (food_at == UNREACHED ? 40 : food_at);
    int lost = ask->damage > 0 ? smaller(ask->damage, 50) : 0;
    int in_hazard = lost ? bits_count(bits_and(land->owned[i], search->hazard)) : 0;
#define BOARD(name, unit, formula)
#define SNAKE(name, unit, formula) *in++ = within(formula, LARGEST);
#include "input_table.h"
#undef BOARD
#undef SNAKE
}

/* The inputs of the board for a snake of `length`. */
static void board_inputs(const Search *search, const Position *at, const Territory *land, int count,
                         int length, int longest, int longer, int apart, int16_t *in) {
    const Question *ask = search->ask;
    Bits owned = land->owned[0];
    for (int i = 1; i < count; i++) owned = bits_or(owned, land->owned[i]);
    int lead = length - longest;
    int threat = apart < 8 ? (8 - apart) * 64 : 0;
    int hazards = ask->damage > 0 ? bits_count(search->hazard) : 0;
#define BOARD(name, unit, formula) *in++ = within(formula, LARGEST);
#define SNAKE(name, unit, formula)
#include "input_table.h"
#undef BOARD
#undef SNAKE
}

/* Whether rival `a` comes before `b`: by `first`, by the rest of their inputs where that is equal. */
static inline int comes_before(int first_a, int first_b, const int16_t *a, const int16_t *b) {
    if (first_a != first_b) return first_a > first_b;
    return memcmp(a, b, SNAKE_INPUTS * sizeof *a) > 0;
}

/* Spreads the `count` living snakes, whose numbers are in `alive`, and writes what each is given. */
static void inputs_of_all(const Search *search, const Position *at, const int *alive, int count,
                          Territory *land, int16_t own[][SNAKE_INPUTS]) {
    spread_out(search, at, alive, count, land);
    for (int i = 0; i < count; i++) snake_inputs(search, at, land, i, alive[i], own[i]);
}

/* All inputs as the `me`-th of 2 living snakes or more sees them, from those of all. The last two groups
 * of `inputs` stay as they are where there is one rival. */
static void inputs_from(const Search *search, const Position *at, const int *alive, int count,
                        const Territory *land, const int16_t own[][SNAKE_INPUTS], int me,
                        int16_t *inputs) {
    int strongest = -1, nearest = -1, longest = 0, away[MAX_SNAKES], strength[MAX_SNAKES];
    int sum[SNAKE_INPUTS] = {0}, length = at->snake[alive[me]].length;
    int16_t *block = inputs + BOARD_INPUTS;
    for (int i = 0; i < count; i++) {
        if (i == me) continue;
        longest = above(longest, at->snake[alive[i]].length);
        away[i] = steps_between(search, head_of(search, at, alive[me]), head_of(search, at, alive[i]));
        strength[i] = own[i][SNAKE_cells] + own[i][SNAKE_length];
        if (strongest < 0 || comes_before(strength[i], strength[strongest], own[i], own[strongest]))
            strongest = i;
        if (nearest < 0 || comes_before(-away[i], -away[nearest], own[i], own[nearest])) nearest = i;
    }
    int longer = length - at->snake[alive[nearest]].length;
    board_inputs(search, at, land, count, length, longest, longer, away[nearest], inputs);
    memcpy(block, own[me], sizeof own[0]);
    memcpy(block += SNAKE_INPUTS, own[strongest], sizeof own[0]);
    if (count == 2) return;
    memcpy(block += SNAKE_INPUTS, own[nearest], sizeof own[0]);
    block += SNAKE_INPUTS;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < SNAKE_INPUTS; k++) sum[k] += i == me ? 0 : own[i][k];
    for (int k = 0; k < SNAKE_INPUTS; k++)
        block[k] = count == 4 ? sum[k] / 3 : count == 3 ? sum[k] / 2 : sum[k] / (count - 1);
}

/* The inputs of snake 0, the first in `alive`. */
static void inputs_of(const Search *search, const Position *at, const int *alive, int count,
                      int16_t *inputs) {
    Territory land;
    int16_t own[MAX_SNAKES][SNAKE_INPUTS];
    inputs_of_all(search, at, alive, count, &land, own);
    inputs_from(search, at, alive, count, &land, own, 0, inputs);
}
