/* What the snakes see: the planes that battlesnake_gym/see/observations.py defines, byte for byte. */
#ifndef BATTLESNAKE_OBSERVE_H
#define BATTLESNAKE_OBSERVE_H

#include "engine.h"
#include "processor.h"

/* Which planes there are; the numbers of observations._VALUES. */
enum { VALUES_PLANES, VALUES_51S, VALUES_NUM, VALUES_REACH, NUM_VALUES };

/* Where the board is in them; the numbers of observations._VIEWS. */
enum { VIEW_BOARD, VIEW_HEAD, VIEW_FACING, NUM_VIEWS };

/* One encoder and the size of its planes. */
typedef struct {
    int values, view, frames;
    int rows, columns;
} Observation;

enum { MAX_FRAMES = 8 };

/* The planes of one frame of `planes`, in order; those of `reach` are followed by reach.h's. */
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

/* What their cells show. Bodies: free after the next turn; blocked, plus 4 for each turn until they
 * are free, from FAR turns on all alike; heads. Heads of others: as long as the own; more for each
 * segment of difference, up to 255. */
enum { A_FOOD = 255, A_LAYER = 51, MAX_LAYERS = 5 };
enum { LEAVING = 32, BLOCKED = 128, FAR = 24, A_HEAD = 255 };
enum { AS_LONG = 128, A_SEGMENT_BITS = 3 };
static inline uint8_t turn_value(int turn) {
    return turn < 8 * 255 ? (uint8_t)((unsigned)turn / 8) : 255;
}
static inline uint8_t health_value(int health) {
    return (uint8_t)((unsigned)(health + 3) / 4 * 10);
}
static inline uint8_t length_value(int length) {
    return length < 128 ? (uint8_t)(2 * length) : 255;
}

/* Whether the turn after this one shows another value; health if nothing is eaten. */
static inline bool turn_will_change(int turn) { return (unsigned)turn % 8 == 7; }
static inline bool health_will_change(int health) { return (unsigned)health % 4 == 1; }

/* One or the other without a jump, which a processor could only guess. */
static inline uint8_t *either(bool first, uint8_t *one, uint8_t *other) {
    uintptr_t mask = (uintptr_t)0 - first;
#ifdef __GNUC__
    __asm__("" : "+r"(mask)); /* else the compiler makes it a jump */
#endif
    return (uint8_t *)((uintptr_t)other ^ (((uintptr_t)one ^ (uintptr_t)other) & mask));
}

/* Chooses the code that observes from now on: "plain", "avx2", "avx512", or the "best" that this
 * processor has. False if it does not have it. */
bool observe_by(const char *vectors);

/* The name of the code chosen. */
const char *observes_by(void);

/* The number of planes in one frame. */
int observation_planes(int values);

/* Whether every board of the batch fits into the planes. */
bool observation_fits(const Observation *observation, const Layout *layout);

/* Bytes of one snake's observation. */
static inline size_t observation_size(const Observation *observation) {
    return (size_t)observation_planes(observation->values) * (size_t)observation->frames *
           (size_t)observation->rows * (size_t)observation->columns;
}

/* Writes the observations of all seats of one game, one after the other.
 *
 * `before` is NULL, or a copy of the record's header and snakes one turn ago: then `out` must hold
 * what was written of that turn. Older frames move back by one, and only what changed is written.
 * Without it older frames are zero. */
void observe_game(const Observation *observation, const Layout *layout, const Record *before,
                  const Record *record, uint8_t *out);

/* Asks for the memory that the next turn of a game will write into its observations and that the turns
 * before hardly touched, as far as this can be foreseen: a processor does not. */
void fetch_planes(const Observation *observation, const Record *record, uint8_t *out);

#endif
