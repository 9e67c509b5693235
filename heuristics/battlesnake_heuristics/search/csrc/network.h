/* A small network that values a position: what it is given, its weights, and its arithmetic.
 *
 * All of it is whole numbers, so that every processor computes the same. Inputs and hidden values
 * count in 1/256 and lie within +-LARGEST; weights count in 1/1024 and lie within +-HEAVIEST, so
 * that no sum leaves 32 bits. */
#ifndef NETWORK_H
#define NETWORK_H

#include <stdint.h>

#define BOARD(name, unit, formula) BOARD_##name,
#define SNAKE(name, unit, formula)
enum {
#include "input_table.h"
    BOARD_INPUTS /* of the board */
};
#undef BOARD
#undef SNAKE
#define BOARD(name, unit, formula)
#define SNAKE(name, unit, formula) SNAKE_##name,
enum {
#include "input_table.h"
    SNAKE_INPUTS /* of ourselves, the strongest, the nearest and the mean rival */
};
#undef BOARD
#undef SNAKE
#define DUEL_INPUTS (BOARD_INPUTS + 2 * SNAKE_INPUTS) /* with one rival these are all */
#define INPUTS (BOARD_INPUTS + 4 * SNAKE_INPUTS)
_Static_assert(BOARD_INPUTS % 2 == 0 && SNAKE_INPUTS % 2 == 0, "inputs are multiplied by pairs");
#define HIDDEN 32
#define SECOND 16
#define STACKS 3 /* weights of their own for two, three, and more living snakes */
#define LARGEST 1023
#define HEAVIEST 8191
#define HEAVIEST_BIAS (1 << 29)
#define LOGIT 10000 /* what odds of e to 1 are worth in the search, in thousandths of a cell */

/* Weights lie by pairs of inputs, as the processor multiplies them. */
typedef struct {
    int16_t first[INPUTS / 2][HIDDEN][2];
    int32_t first_bias[HIDDEN];
    int16_t second[HIDDEN / 2][SECOND][2];
    int32_t second_bias[SECOND];
    int16_t last[SECOND / 2][2];
    int32_t last_bias;
} Layers;

typedef struct {
    Layers stack[STACKS];
} Network;

enum { CODE_PLAIN, CODE_AVX2, CODES };

/* The logit of winning in 1/2^18: `pairs` pairs of inputs through one stack. */
typedef int32_t (*NetworkCode)(const Layers *layers, const int16_t *inputs, int pairs);

NetworkCode network_code(int code); /* NULL where this processor lacks it */
NetworkCode fastest_network_code(void);
int network_in_bounds(const Network *network);

/* The value in thousandths of a cell, from 2 to 16 living snakes. */
static inline int network_value(NetworkCode code, const Network *network, const int16_t *inputs,
                                int living) {
    int stack = living >= 2 + STACKS ? STACKS - 1 : living - 2;
    int pairs = (living == 2 ? DUEL_INPUTS : INPUTS) / 2;
    int64_t logit = code(&network->stack[stack], inputs, pairs);
    return (int)(logit * LOGIT >> 18);
}

#endif
