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

/* Writes the SNAKE_INPUTS inputs of snake `s`, which is alive[i], before they are clamped. */
static void snake_inputs(const Search *search, const Position *pos, const Territory *territory,
                         int i, int s, int32_t *raw) {
    const SearchRequest *request = search->request;
    const Body *body = &pos->snake[s];
    int head = head_of(search, pos, s);
    int cells = territory->cells[i], turns_to_food = territory->turns_to_food[i];
    int slack = body->health - (turns_to_food == UNREACHED ? 40 : turns_to_food);
    int hazard_damage = request->damage > 0 ? min_int(request->damage, 50) : 0;
    int in_hazard = hazard_damage ? bits_count(bits_and(territory->owned[i], search->hazard)) : 0;
#define BOARD(name, unit, formula)
#define SNAKE(name, unit, formula) raw[SNAKE_##name] = formula;
#include "input_table.h"
#undef BOARD
#undef SNAKE
}

/* The inputs of a position, from which relate_snake() and join_inputs() build the inputs of each
 * snake. Arrays are indexed like `alive`. */
typedef struct {
    Territory territory;
    SnakeInputs snake[MAX_SNAKES];
    int16_t sum[SNAKE_INPUTS];                 /* sums of all snakes, if there are more than two */
    int16_t board[BOARD_INPUTS];               /* only the inputs that are equal for all snakes */
    int length[MAX_SNAKES];                    /* number of segments */
    int head_distance[MAX_SNAKES][MAX_SNAKES]; /* steps between two different heads */
    int strongest, second;                     /* the two strongest of more than two snakes */
} PositionInputs;

/* Writes the board inputs that are equal for all `count` snakes. */
static void shared_board_inputs(const Search *search, const Territory *territory, int count,
                                int16_t *in) {
    const SearchRequest *request = search->request;
    const int lead = 0, longer = 0, head_distance = 0, threat = 0; /* not used by these inputs */
    int hazards = territory->num_hazards, raw[BOARD_INPUTS] = {0};
#define BOARD(name, unit, formula) \
    if (BOARD_##name >= OWN_BOARD_INPUTS) raw[BOARD_##name] = formula;
#define SNAKE(name, unit, formula)
#include "input_table.h"
#undef BOARD
#undef SNAKE
    for (int k = 0; k < BOARD_INPUTS; k++) in[k] = clamp_abs(raw[k], MAX_ACTIVATION);
}

/* Writes the board inputs that differ between the snakes. `lead` is our length lead over the
 * longest opponent. `longer` is our length lead over the nearest opponent, and `head_distance` is
 * the distance to its head. */
static void own_board_inputs(const Search *search, const Territory *territory, int count, int lead,
                             int longer, int head_distance, int16_t *in) {
    const SearchRequest *request = search->request;
    int hazards = territory->num_hazards;
    int threat = head_distance < 8 ? (8 - head_distance) * 64 : 0;
#define BOARD(name, unit, formula) \
    if (BOARD_##name < OWN_BOARD_INPUTS) in[BOARD_##name] = clamp_abs(formula, MAX_ACTIVATION);
#define SNAKE(name, unit, formula)
#include "input_table.h"
#undef BOARD
#undef SNAKE
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

/* Returns whether snake `a` is stronger than snake `b`, or `b` is negative. */
static inline int is_stronger(const PositionInputs *all, int a, int b) {
    if (b < 0) return 1;
    const int16_t *in = all->snake[a].own, *other = all->snake[b].own;
    return ranks_before(in[SNAKE_cells] + in[SNAKE_length],
                        other[SNAKE_cells] + other[SNAKE_length], in, other);
}

/* Finds the two strongest snakes, one of which is the strongest opponent of every snake. */
static void find_strongest(int count, PositionInputs *all) {
    all->strongest = all->second = -1;
    for (int i = 0; i < count; i++) {
        if (is_stronger(all, i, all->strongest)) {
            all->second = all->strongest;
            all->strongest = i;
        } else if (is_stronger(all, i, all->second)) {
            all->second = i;
        }
    }
}

/* Computes the territory and the inputs of the `count` living snakes, whose indices are in
 * `alive`. */
static void compute_snake_inputs(const Search *search, const Position *pos, const int *alive,
                                 int count, PositionInputs *all) {
    int32_t raw[MAX_SNAKES][SNAKE_INPUTS];
    compute_territory(search, pos, alive, count, &all->territory);
    count_board_cells(search, pos, count, &all->territory);
    shared_board_inputs(search, &all->territory, count, all->board);
    for (int i = 0; i < count; i++) {
        int s = alive[i], head = head_of(search, pos, s);
        all->length[i] = pos->snake[s].length;
        snake_inputs(search, pos, &all->territory, i, s, raw[i]);
        for (int o = 0; o < i; o++)
            all->head_distance[i][o] = all->head_distance[o][i] =
                steps_between(search, head, head_of(search, pos, alive[o]));
    }
    for (int i = 0; i < count; i++) /* the compiler vectorizes a separate loop */
        for (int k = 0; k < SNAKE_INPUTS; k++)
            all->snake[i].own[k] = clamp_abs(raw[i][k], MAX_ACTIVATION);
    if (count == 2) return;
    find_strongest(count, all);
    int16_t sum[SNAKE_INPUTS] = {0}; /* the compiler vectorizes a local array */
    for (int i = 0; i < count; i++)
        for (int k = 0; k < SNAKE_INPUTS; k++) sum[k] += all->snake[i].own[k];
    memcpy(all->sum, sum, sizeof sum);
}

/* Returns value / 3, rounded toward zero. The compiler vectorizes the multiplication, but not a
 * division. */
static inline int16_t divide_by_3(int16_t value) { return (value * 21846 >> 16) + (value < 0); }

/* Writes the inputs of snake alive[me] that depend on its opponents, for `count` >= 2 living
 * snakes. */
static void relate_snake(const Search *search, int count, int me, PositionInputs *all) {
    SnakeInputs *snake = &all->snake[me];
    const int *distances = all->head_distance[me];
    int nearest = !me, longest = all->length[nearest];
    int16_t sum[SNAKE_INPUTS];
    for (int i = nearest + 1; i < count; i++) {
        if (i == me) continue;
        longest = max_int(longest, all->length[i]);
        if (ranks_before(-distances[i], -distances[nearest], all->snake[i].own,
                         all->snake[nearest].own))
            nearest = i;
    }
    snake->nearest = nearest;
    snake->strongest = count == 2 ? nearest : all->strongest == me ? all->second : all->strongest;
    own_board_inputs(search, &all->territory, count, all->length[me] - longest,
                     all->length[me] - all->length[nearest], distances[nearest], snake->own_board);
    if (count == 2) return;
    for (int k = 0; k < SNAKE_INPUTS; k++) sum[k] = all->sum[k] - snake->own[k];
    if (count == 4)
        for (int k = 0; k < SNAKE_INPUTS; k++) snake->mean[k] = divide_by_3(sum[k]);
    else
        for (int k = 0; k < SNAKE_INPUTS; k++) snake->mean[k] = sum[k] / (count - 1);
}

/* Computes the inputs from the perspective of snake 0, which must be alive[0]. */
static void compute_inputs(const Search *search, const Position *pos, const int *alive, int count,
                           int16_t *inputs) {
    PositionInputs all;
    compute_snake_inputs(search, pos, alive, count, &all);
    relate_snake(search, count, 0, &all);
    join_inputs(all.board, all.snake, count, 0, inputs);
}
