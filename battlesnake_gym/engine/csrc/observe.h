/* Observations: the planes that battlesnake_gym/mdp/observations.py defines, with identical
 * bytes. */
#ifndef BATTLESNAKE_OBSERVE_H
#define BATTLESNAKE_OBSERVE_H

#include "cpu_features.h"
#include "game.h"

/* Kinds of planes; the codes equal observations._VALUE_CODES. */
enum { VALUES_PLANES, VALUES_51S, VALUES_NUM, VALUES_TERRITORY, VALUES_MEMORY, NUM_VALUES };

/* Positions of the board in the planes; the codes equal observations._VIEW_CODES. */
enum { VIEW_BOARD, VIEW_HEAD, VIEW_FACING, NUM_VIEWS };

/* An encoder and the size of its planes. `frame_stack` is the number of stacked turns, up to
 * MAX_FRAME_STACK. `complete` is 1 if the planes show hidden cells too, despite a limited view. */
typedef struct {
    int values, view, frame_stack;
    int rows, columns;
    int complete;
} Observation;

enum { MAX_FRAME_STACK = 8 };

/* Planes of one turn of the kind `planes`, in order; the kind `territory` appends the planes of
 * territory.h, and the kind `memory` appends the memory planes. */
enum {
    BOARD_PLANE,
    FOOD_PLANE,
    HAZARDS_PLANE,
    TURN_PLANE,
    HEALTH_PLANE,
    LENGTH_PLANE,
    OWN_BODY_PLANE,
    OTHER_BODIES_PLANE,
    LONGER_HEADS_PLANE,
    SHORTER_HEADS_PLANE,
    PLANES,
};

/* Memory planes: per cell, the food value and the value of other bodies at the last sighting, and
 * the recency of this sighting. */
enum {
    SEEN_FOOD_PLANE = PLANES,
    SEEN_BODIES_PLANE,
    RECENCY_PLANE,
    PLANES_WITH_MEMORY,
};

/* Cell values. Body cells: FREE_NEXT_TURN_VALUE, or BLOCKED_VALUE plus 4 per turn until the cell is
 * free, up to MAX_BLOCKED_TURNS. Heads: HEAD_VALUE. Heads of opponents: EQUAL_LENGTH_VALUE, plus 1
 * << SEGMENT_SHIFT per segment of difference, up to 255. */
enum { FOOD_VALUE = 255, HAZARD_LAYER_VALUE = 51, MAX_LAYERS = 5 };
enum { FREE_NEXT_TURN_VALUE = 32, BLOCKED_VALUE = 128, MAX_BLOCKED_TURNS = 24, HEAD_VALUE = 255 };
enum { EQUAL_LENGTH_VALUE = 128, SEGMENT_SHIFT = 3 };
/* Recency: MAX_RECENCY on visible cells, minus RECENCY_STEP per turn since the sighting, down to
 * MIN_RECENCY; 0 on cells that were never seen. */
enum { MAX_RECENCY = 255, RECENCY_STEP = 4, MIN_RECENCY = 15 };
/* Returns the value of the turn plane. */
static inline uint8_t turn_value(int turn) {
    return turn < 8 * 255 ? (uint8_t)((unsigned)turn / 8) : 255;
}
/* Returns the value of the health plane. */
static inline uint8_t health_value(int health) {
    return (uint8_t)((unsigned)(health + 3) / 4 * 10);
}
/* Returns the value of the length plane. */
static inline uint8_t length_value(int length) {
    return length < 128 ? (uint8_t)(2 * length) : 255;
}

/* Returns whether the turn value changes on the next turn. */
static inline bool turn_will_change(int turn) { return (unsigned)turn % 8 == 7; }
/* Returns whether the health value changes on the next turn if the snake does not eat. */
static inline bool health_will_change(int health) { return (unsigned)health % 4 == 1; }

/* Returns `one` if `first`, or `other` otherwise. The function is branchless, because a branch here
 * would be unpredictable. */
static inline uint8_t *select_branchless(bool first, uint8_t *one, uint8_t *other) {
    uintptr_t mask = (uintptr_t)0 - first;
#ifdef __GNUC__
    __asm__("" : "+r"(mask)); /* prevents the compiler from creating a branch */
#endif
    return (uint8_t *)((uintptr_t)other ^ (((uintptr_t)one ^ (uintptr_t)other) & mask));
}

/* Selects the instruction set of later observations: "plain", "avx2", "avx512" or "best". Returns
 * false if the processor or the build does not support this instruction set. Not thread-safe. */
bool set_observation_isa(const char *isa);

/* Returns the name of the selected instruction set. */
const char *get_observation_isa(void);

/* Returns the number of planes per turn. */
int observation_planes(int values);

/* Returns whether every board of the batch fits in the planes. */
bool observation_fits(const Observation *observation, const Layout *layout);

/* Returns the size of one snake's observation in bytes. */
static inline size_t observation_size(const Observation *observation) {
    return (size_t)observation_planes(observation->values) * (size_t)observation->frame_stack *
           (size_t)observation->rows * (size_t)observation->columns;
}

/* Writes the observations of all seats of one game, in seat order.
 *
 * `before` is NULL, or a copy of the record's header and snakes one turn earlier. In the latter
 * case, `out` must contain the observations of that turn; older turns move back by one, and only
 * changes are written. If `before` is NULL, older turns are zero. Thread-safe for different
 * games. */
void observe_game(const Observation *observation, const Layout *layout, const Record *before,
                  const Record *record, uint8_t *out);

/* Writes the observations of all seats of one game with limited view, like observe_game(). All
 * planes are written on every turn. */
void observe_limited_game(const Observation *observation, const Game *game, const Record *before,
                          uint8_t *out);

/* Prefetches the planes that the next turn is expected to write and that are seldom in the cache.
 */
void prefetch_planes(const Observation *observation, const Record *record, uint8_t *out);

#endif
