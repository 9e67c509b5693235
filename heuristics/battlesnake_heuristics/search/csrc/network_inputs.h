/* Computes the inputs of the evaluation network from the formulas of input_table.h. With one
 * opponent, the groups of the nearest and the mean opponent are not computed. Areas are fractions
 * of the board, so that all board sizes have the same scale. The order of the opponents does not
 * affect the inputs. */

/* Clamps `value` to [-limit, limit]. */
static inline int clamp_abs(int value, int limit) {
    return value > limit ? limit : value < -limit ? -limit : value;
}
/* Returns the smaller of two integers. */
static inline int min_int(int a, int b) { return a < b ? a : b; }
/* Returns the larger of two integers. */
static inline int max_int(int value, int minimum) { return value > minimum ? value : minimum; }
/* Returns the sign of a value: -1, 0 or 1. */
static inline int sign(int value) { return (value > 0) - (value < 0); }

/* Returns the Manhattan distance between two cells, in steps. On a wrapped board, the path may
 * cross the edges. */
static int steps_between(const Search *search, int a, int b) {
    const SearchRequest *request = search->request;
    int dx = abs(search->x[a] - search->x[b]), dy = abs(search->y[a] - search->y[b]);
    if (request->wrapped) {
        dx = min_int(dx, request->width - dx);
        dy = min_int(dy, request->height - dy);
    }
    return dx + dy;
}

/* Converts a number of cells to a fraction of the board, scale 1/512. */
static inline int board_fraction(const Search *search, int cells) {
    return cells * search->board_fraction_scale >> 16;
}

/* Writes the SNAKE_INPUTS inputs of snake `s`, which is alive[i]. */
static void snake_inputs(const Search *search, const Position *pos, const Territory *territory,
                         int i, int s, int16_t *in) {
    const SearchRequest *request = search->request;
    const Body *body = &pos->snake[s];
    int head = head_of(search, pos, s);
    int cells = territory->cells[i], turns_to_food = territory->turns_to_food[i];
    int slack = body->health - (turns_to_food == UNREACHED ? 40 : turns_to_food);
    int hazard_damage = request->damage > 0 ? min_int(request->damage, 50) : 0;
    int in_hazard = hazard_damage ? bits_count(bits_and(territory->owned[i], search->hazard)) : 0;
    int raw[SNAKE_INPUTS], *next = raw;
#define BOARD(name, unit, formula)
#define SNAKE(name, unit, formula) *next++ = formula;
#include "input_table.h"
#undef BOARD
#undef SNAKE
    for (int k = 0; k < SNAKE_INPUTS; k++) in[k] = clamp_abs(raw[k], MAX_ACTIVATION);
}

/* Writes the BOARD_INPUTS inputs from the perspective of a snake of length `length`. `longest` is
 * the length of the longest opponent. `longer` is our length lead over the nearest opponent, and
 * `head_distance` is the distance to its head. */
static void board_inputs(const Search *search, const Territory *territory, int count, int length,
                         int longest, int longer, int head_distance, int16_t *in) {
    const SearchRequest *request = search->request;
    int hazards = territory->num_hazards, lead = length - longest;
    int threat = head_distance < 8 ? (8 - head_distance) * 64 : 0;
    int raw[BOARD_INPUTS], *next = raw;
#define BOARD(name, unit, formula) *next++ = formula;
#define SNAKE(name, unit, formula)
#include "input_table.h"
#undef BOARD
#undef SNAKE
    for (int k = 0; k < BOARD_INPUTS; k++) in[k] = clamp_abs(raw[k], MAX_ACTIVATION);
}

/* Returns whether opponent `a` ranks before opponent `b`. The larger of `first_a` and `first_b`
 * ranks first; if the two values are equal, the inputs decide. */
static inline int ranks_before(int first_a, int first_b, const int16_t *a, const int16_t *b) {
    if (first_a != first_b) return first_a > first_b;
    return memcmp(a, b, SNAKE_INPUTS * sizeof *a) > 0;
}

/* Sets the numbers of cells for the board inputs, which are equal for all snakes. */
static void count_board_cells(const Search *search, const Position *pos, int count,
                              Territory *territory) {
    Bits owned = territory->owned[0];
    for (int i = 1; i < count; i++) owned = bits_or(owned, territory->owned[i]);
    territory->num_contested = bits_count(bits_minus(territory->reached_by_any, owned));
    territory->num_reached = bits_count(territory->reached_by_any);
    territory->num_food = bits_count(pos->food);
    territory->num_bodies = bits_count(pos->occupied);
    territory->num_hazards = search->request->damage > 0 ? bits_count(search->hazard) : 0;
}

/* Computes the territory and the inputs of the `count` living snakes, whose indices are in
 * `alive`. With several opponents, the row by_snake[count] contains the sums of all snakes. */
static void compute_snake_inputs(const Search *search, const Position *pos, const int *alive,
                                 int count, Territory *territory,
                                 int16_t by_snake[][SNAKE_INPUTS]) {
    compute_territory(search, pos, alive, count, territory);
    count_board_cells(search, pos, count, territory);
    for (int i = 0; i < count; i++) snake_inputs(search, pos, territory, i, alive[i], by_snake[i]);
    if (count == 2) return;
    int16_t sum[SNAKE_INPUTS] = {0}; /* the compiler vectorizes a local array */
    for (int i = 0; i < count; i++)
        for (int k = 0; k < SNAKE_INPUTS; k++) sum[k] += by_snake[i][k];
    memcpy(by_snake[count], sum, sizeof sum);
}

/* Returns value / 3, rounded toward zero. The compiler vectorizes the multiplication, but not a
 * division. */
static inline int16_t divide_by_3(int16_t value) { return (value * 21846 >> 16) + (value < 0); }

/* Writes all inputs from the perspective of snake alive[me], for `count` >= 2 living snakes. With
 * one opponent, the last two groups of `inputs` stay unchanged. */
static void assemble_inputs(const Search *search, const Position *pos, const int *alive, int count,
                            const Territory *territory, const int16_t by_snake[][SNAKE_INPUTS],
                            int me, int16_t *inputs) {
    int strongest = -1, nearest = -1, longest = 0;
    int head_distances[MAX_SNAKES], strengths[MAX_SNAKES];
    int length = pos->snake[alive[me]].length;
    int16_t sum[SNAKE_INPUTS], *block = inputs + BOARD_INPUTS;
    for (int i = 0; i < count; i++) {
        if (i == me) continue;
        longest = max_int(longest, pos->snake[alive[i]].length);
        head_distances[i] =
            steps_between(search, head_of(search, pos, alive[me]), head_of(search, pos, alive[i]));
        strengths[i] = by_snake[i][SNAKE_cells] + by_snake[i][SNAKE_length];
        if (strongest < 0 ||
            ranks_before(strengths[i], strengths[strongest], by_snake[i], by_snake[strongest]))
            strongest = i;
        if (nearest < 0 || ranks_before(-head_distances[i], -head_distances[nearest], by_snake[i],
                                        by_snake[nearest]))
            nearest = i;
    }
    int longer = length - pos->snake[alive[nearest]].length;
    board_inputs(search, territory, count, length, longest, longer, head_distances[nearest],
                 inputs);
    memcpy(block, by_snake[me], sizeof by_snake[0]);
    memcpy(block += SNAKE_INPUTS, by_snake[strongest], sizeof by_snake[0]);
    if (count == 2) return;
    memcpy(block += SNAKE_INPUTS, by_snake[nearest], sizeof by_snake[0]);
    block += SNAKE_INPUTS;
    for (int k = 0; k < SNAKE_INPUTS; k++) sum[k] = by_snake[count][k] - by_snake[me][k];
    if (count == 4)
        for (int k = 0; k < SNAKE_INPUTS; k++) block[k] = divide_by_3(sum[k]);
    else
        for (int k = 0; k < SNAKE_INPUTS; k++) block[k] = sum[k] / (count - 1);
}

/* Computes the inputs from the perspective of snake 0, which must be alive[0]. */
static void compute_inputs(const Search *search, const Position *pos, const int *alive, int count,
                           int16_t *inputs) {
    Territory territory;
    int16_t by_snake[MAX_SNAKES + 1][SNAKE_INPUTS];
    compute_snake_inputs(search, pos, alive, count, &territory, by_snake);
    assemble_inputs(search, pos, alive, count, &territory, by_snake, 0, inputs);
}
