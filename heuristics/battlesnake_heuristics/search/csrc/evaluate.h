/* Static evaluation of a position for snake 0: territory, food, length and space. If the request
 * has no network, the handcrafted evaluation is used.
 *
 * Territory is a multi-source breadth-first flood from all heads: a cell belongs to the snake
 * that reaches it first. A tie belongs to the longest snake, or to no snake if several are
 * longest. */

/* Value of `turns_to_food` if the snake reaches no food first. */
#define UNREACHED 127
#define SOON_TURNS 4  /* number of turns of the input `cells_soon` */
#define LATER_TURNS 9 /* number of turns of the input `cells_later` */

/* Territory of each living snake, indexed like the array `alive`. */
typedef struct {
    Bits owned[MAX_SNAKES]; /* cells that the snake reaches before all other snakes */
    Bits reached_by_any;    /* cells that any snake reaches */
    /* Number of turns to the nearest food that the snake reaches first, or UNREACHED. */
    int turns_to_food[MAX_SNAKES];
    /* Number of cells that the snake can enter on the next turn, including contested cells. */
    int num_exits[MAX_SNAKES];
    /* Number of owned cells within SOON_TURNS, within LATER_TURNS, and in total. */
    int soon[MAX_SNAKES], later[MAX_SNAKES], cells[MAX_SNAKES];
    int last_turn[MAX_SNAKES]; /* turn on which the snake reaches its last cell */
    /* Numbers of cells, set by count_board_cells(): cells that any snake reaches, reached cells
     * that no snake owns, and cells with food, bodies and hazards. */
    int num_reached, num_contested, num_food, num_bodies, num_hazards;
} Territory;

/* The cells that the body of one snake vacates during a flood: one cell per turn, tail first. */
typedef struct {
    const uint16_t *ring; /* ring of the snake, borrowed from the Search */
    unsigned ring_index;  /* the cell of turn t has the ring index ring_index + t, modulo RING */
    unsigned first, last; /* first turn on which a cell is vacated, and number of cells minus 1 */
} Tail;

/* Writes the tails of the `count` living snakes; returns the turn on which the last cell is
 * vacated. */
static inline ALWAYS_INLINE int init_tails(const Search *search, const Position *pos,
                                           const int *alive, int count, Tail *tails) {
    int last_turn = 0;
    for (int i = 0; i < count; i++) {
        const Body *body = &pos->snake[alive[i]];
        unsigned first = body->stacked + 1, last = (uint16_t)(body->head - body->tail);
        tails[i] = (Tail){search->ring[alive[i]], body->tail - first, first, last};
        if ((int)(first + last) > last_turn) last_turn = first + last;
    }
    return last_turn;
}

/* Returns the union of `free` and the cells that tails vacate on turn `turn`. */
static inline ALWAYS_INLINE Bits free_tails(const Search *search, const Tail *tails, int count,
                                            unsigned turn, Bits free) {
    for (int i = 0; i < count; i++) {
        const Tail *tail = &tails[i];
        if (turn - tail->first > tail->last) continue;
        free = bits_or(free, search->cell_bits[tail->ring[(tail->ring_index + turn) & (RING - 1)]]);
    }
    return free;
}

#if WORDS == 2 /* specialized code for the common board sizes and numbers of snakes */
#define LANES 2
#define ROWS 1
#include "territory_spread.h"
#define LANES 4
#define ROWS 1
#include "territory_spread.h"
#endif
#define LANES 4
#define ROWS 4
#include "territory_spread.h"

/* Computes the territories of the `count` living snakes, whose indices are in `alive`. */
static __attribute__((noinline)) void compute_territory(const Search *search, const Position *pos,
                                                        const int *alive, int count,
                                                        Territory *territory) {
#if WORDS == 2
    if (count <= 2)
        sets_spread_2_1(search, pos, alive, count, territory);
    else if (count <= 4)
        sets_spread_4_1(search, pos, alive, count, territory);
    else
#endif
        sets_spread_4_4(search, pos, alive, count, territory);
}

/* Returns the score of the nearest food in the snake's territory, minus a penalty if the snake
 * starves before it eats. */
static int food_score(const Search *search, const Body *body, int turns_to_food) {
    const int32_t *weights = search->request->weights;
    int lack = weights[W_HUNGER_THRESHOLD] - body->health;
    int drive = weights[W_FOOD_NEAR] + (lack > 0 ? lack * weights[W_HUNGER] : 0);
    int value = turns_to_food == UNREACHED ? 0 : drive / (turns_to_food + 1);
    /* The snake will starve, because it reaches no food of its territory in time. */
    if (body->health < turns_to_food && lack > 0) value -= weights[W_STARVING] / (body->health + 1);
    return value;
}

/* Returns the score of snake `s` for its territory, space and food. */
static int snake_score(const Search *search, const Position *pos, int s, Bits owned,
                       int turns_to_food) {
    const int32_t *weights = search->request->weights;
    const Body *body = &pos->snake[s];
    int cells = bits_count(owned);
    int value = cells * weights[W_TERRITORY];
    if (search->request->damage > 0)
        value -= bits_count(bits_and(owned, search->hazard)) * weights[W_HAZARD_CELL];
    if (cells < body->length) value -= (body->length - cells) * weights[W_CRAMPED];
    if (!search->request->constrictor) value += food_score(search, body, turns_to_food);
    return value;
}

/* Returns the score of our length lead over the longest opponent. */
static int length_score(const int32_t *weights, int own, int opponent) {
    int difference = own - opponent;
    int counted = difference > weights[W_LEAD_CAP]    ? weights[W_LEAD_CAP]
                  : difference < -weights[W_LEAD_CAP] ? -weights[W_LEAD_CAP]
                                                      : difference;
    return counted * weights[W_LENGTH] + (difference > 0   ? weights[W_LONGEST]
                                          : difference < 0 ? -weights[W_LONGEST]
                                                           : 0);
}

/* Returns the handcrafted evaluation of a position in which snake 0 is living, in 1/1000 cell. */
static int evaluate_handcrafted(const Search *search, const Position *pos, const int *alive,
                                int count) {
    const int32_t *weights = search->request->weights;
    int longest = 0, best = 0, total = 0;
    Territory territory;
    compute_territory(search, pos, alive, count, &territory);
    int value = snake_score(search, pos, 0, territory.owned[0], territory.turns_to_food[0]);
    for (int i = 1; i < count; i++) {
        int opponent_score =
            snake_score(search, pos, alive[i], territory.owned[i], territory.turns_to_food[i]);
        total += opponent_score;
        if (i == 1 || opponent_score > best) best = opponent_score;
        if (pos->snake[alive[i]].length > longest) longest = pos->snake[alive[i]].length;
    }
    if (count > 1) {
        /* The subtracted score is halfway between the best and the mean score of the opponents. */
        value -= (best + total / (count - 1)) / 2;
        value += length_score(weights, pos->snake[0].length, longest);
    }
    return value + (search->request->snakes - count) * weights[W_ELIMINATED_OPPONENT];
}

#include "network_inputs.h"

/* Returns the evaluation of a position in which snake 0 is living, in 1/1000 cell. The frozen
 * search has no network. */
static int evaluate(Search *search, const Position *pos) {
    int alive[MAX_SNAKES] = {0}, count = 0;
    int16_t inputs[NUM_INPUTS];
    search->leaf_evals++;
    for (int s = 0; s < search->request->snakes; s++)
        if (pos->snake[s].alive) alive[count++] = s;
    if (FROZEN || !search->request->network || count < 2)
        return evaluate_handcrafted(search, pos, alive, count);
    compute_inputs(search, pos, alive, count, inputs);
    return network_value(search->network_kernel, search->layers[stack_index(count)], inputs,
                         count);
}
