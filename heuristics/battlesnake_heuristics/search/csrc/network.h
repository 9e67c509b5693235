/* Quantized evaluation network: inputs, two hidden layers with clipped ReLU, and one output, the
 * logit of winning. Efficiently updatable networks (NNUE) use the same integer arithmetic.
 *
 * Inputs and activations: int16, scale 1/256, within +-MAX_ACTIVATION. Weights: int16, scale
 * 1/1024, within +-MAX_WEIGHT. Biases and sums: int32, scale 1/2^18. These bounds exclude
 * overflows, and every processor computes the same value. */
#ifndef NETWORK_H
#define NETWORK_H

#include <stdint.h>

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

/* Variants of the forward pass. */
enum { KERNEL_PLAIN, KERNEL_AVX2, NUM_KERNELS };

/* A forward pass: returns the logit of winning, scale 1/2^18, from `pairs` pairs of inputs. */
typedef int32_t (*NetworkKernel)(const Layers *layers, const int16_t *inputs, int pairs);

/* Returns the forward pass of `kernel` (KERNEL_PLAIN or KERNEL_AVX2), or NULL if the processor does
 * not support the kernel. */
NetworkKernel network_kernel(int kernel);
/* Returns the fastest forward pass that the processor supports. */
NetworkKernel best_network_kernel(void);
/* Returns whether all weights and biases are within their bounds. */
int network_is_valid(const Network *network);

/* Returns the network's value in 1/1000 cell, for 2 to 16 living snakes. */
static inline int network_value(NetworkKernel kernel, const Network *network, const int16_t *inputs,
                                int living) {
    int stack = living >= 2 + STACKS ? STACKS - 1 : living - 2;
    int pairs = (living == 2 ? NUM_DUEL_INPUTS : NUM_INPUTS) / 2;
    int64_t logit = kernel(&network->stack[stack], inputs, pairs);
    return (int)(logit * VALUE_PER_LOGIT >> 18);
}

#endif
