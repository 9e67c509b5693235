/* Quantized evaluation network: inputs, two hidden layers with clipped ReLU, and one output, the
 * logit of winning. Efficiently updatable networks (NNUE) use the same integer arithmetic.
 *
 * Inputs and activations: int16, scale 1/256, within +-MAX_ACTIVATION. Weights: int16, scale
 * 1/1024, within +-MAX_WEIGHT. Biases and sums: int32, scale 1/2^18. These bounds exclude
 * overflows, and every processor computes the same value. */
#ifndef NETWORK_H
#define NETWORK_H

#include <stdint.h>
#include <string.h>

#define BOARD(name, unit, formula) BOARD_##name,
#define SNAKE(name, unit, formula)
enum {
#include "input_table.h"
    BOARD_INPUTS /* number of board inputs */
};
#undef BOARD
#undef SNAKE
#define BOARD(name, unit, formula)
#define SNAKE(name, unit, formula) SNAKE_##name,
enum {
#include "input_table.h"
    SNAKE_INPUTS /* number of inputs per snake; groups: own, strongest, nearest and mean opponent */
};
#undef BOARD
#undef SNAKE
/* Number of inputs with one opponent: the board inputs and the first two groups. */
#define NUM_DUEL_INPUTS (BOARD_INPUTS + 2 * SNAKE_INPUTS)
/* Number of all inputs: board, own, strongest, nearest and mean opponent. */
#define NUM_INPUTS (BOARD_INPUTS + 4 * SNAKE_INPUTS)
_Static_assert(BOARD_INPUTS % 2 == 0 && SNAKE_INPUTS % 2 == 0, "inputs are multiplied by pairs");
#define HIDDEN1 32
#define HIDDEN2 16
#define STACKS 3 /* number of weight stacks: for two, three, and four or more living snakes */
#define MAX_ACTIVATION 1023
#define MAX_WEIGHT 8191
#define MAX_BIAS (1 << 29)
#define VALUE_PER_LOGIT 10000 /* 1/1000 cell per unit of logit */

/* One weight stack: the layers for one number of living snakes. Weights are stored in pairs of
 * inputs, for instructions that multiply and add pairs. */
typedef struct {
    int16_t first[NUM_INPUTS / 2][HIDDEN1][2];
    int32_t first_bias[HIDDEN1];
    int16_t second[HIDDEN1 / 2][HIDDEN2][2];
    int32_t second_bias[HIDDEN2];
    int16_t last[HIDDEN2 / 2][2];
    int32_t last_bias;
} Layers;

/* The network. stack[k] evaluates positions with k + 2 living snakes; the last stack also evaluates
 * positions with more snakes. */
typedef struct {
    Layers stack[STACKS];
} Network;

/* Number of the first board inputs, which differ between the snakes of a position. All other board
 * inputs are equal for all snakes. */
#define OWN_BOARD_INPUTS (BOARD_threat + 1)
_Static_assert(OWN_BOARD_INPUTS % 2 == 0, "inputs are multiplied by pairs");

/* Inputs of one living snake, from an array with all living snakes of a position. */
typedef struct {
    int16_t own_board[OWN_BOARD_INPUTS];
    int16_t own[SNAKE_INPUTS];
    int16_t mean[SNAKE_INPUTS]; /* mean opponent; not set with one opponent */
    int strongest, nearest;     /* array indices of the strongest and the nearest opponent */
} SnakeInputs;

/* Variants of the forward pass. */
enum { KERNEL_PLAIN, KERNEL_AVX2, NUM_KERNELS };

/* The functions of one variant. Logits of winning have the scale 1/2^18. */
typedef struct {
    /* Returns the logit from `pairs` pairs of inputs. */
    int32_t (*forward)(const Layers *layers, const int16_t *inputs, int pairs);
    /* Writes the logits of the `count` >= 2 living snakes of a position. `board` contains
     * BOARD_INPUTS inputs, and the first OWN_BOARD_INPUTS of them are not read. */
    void (*forward_all)(const Layers *layers, const int16_t *board, const SnakeInputs *snakes,
                        int count, int32_t *logits);
} NetworkKernel;

/* Returns the functions of `kernel` (KERNEL_PLAIN or KERNEL_AVX2), or NULL if the processor does
 * not support the kernel. */
const NetworkKernel *network_kernel(int kernel);
/* Returns the fastest kernel that the processor supports. */
const NetworkKernel *best_network_kernel(void);
/* Returns whether all weights and biases are within their bounds. */
int network_is_valid(const Network *network);

/* Returns the index of the weight stack for 2 to 16 living snakes. */
static inline int stack_index(int living) {
    return living >= 2 + STACKS ? STACKS - 1 : living - 2;
}

/* Converts a logit, scale 1/2^18, to a value in 1/1000 cell. */
static inline int value_from_logit(int64_t logit) { return (int)(logit * VALUE_PER_LOGIT >> 18); }

/* Returns the network's value in 1/1000 cell, for 2 to 16 living snakes. */
static inline int network_value(const NetworkKernel *kernel, const Layers *layers,
                                const int16_t *inputs, int living) {
    int pairs = (living == 2 ? NUM_DUEL_INPUTS : NUM_INPUTS) / 2;
    return value_from_logit(kernel->forward(layers, inputs, pairs));
}

/* Writes all inputs of snake `me` of a position with `count` living snakes; see forward_all(). With
 * one opponent, the last two groups of `inputs` stay unchanged. */
static inline void join_inputs(const int16_t *board, const SnakeInputs *snakes, int count, int me,
                               int16_t *inputs) {
    const SnakeInputs *snake = &snakes[me];
    const int16_t *groups[] = {snake->own, snakes[snake->strongest].own,
                               snakes[snake->nearest].own, snake->mean};
    memcpy(inputs, board, BOARD_INPUTS * sizeof *inputs);
    memcpy(inputs, snake->own_board, sizeof snake->own_board);
    for (int group = 0; group < (count == 2 ? 2 : 4); group++)
        memcpy(inputs + BOARD_INPUTS + group * SNAKE_INPUTS, groups[group], sizeof snake->own);
}

#endif
