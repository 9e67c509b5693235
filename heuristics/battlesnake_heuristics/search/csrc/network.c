/* Forward pass of the quantized evaluation network, in plain C and with AVX2. Both variants return
 * equal values, because integer sums do not depend on the order of the terms. */
#include "network.h"
#include "cpu_features.h"

#include <stddef.h>

#define ROUNDING (1 << 9) /* half of the divisor of clipped_relu(), for rounding to nearest */

/* Applies the clipped ReLU of NNUE: converts a sum, scale 1/2^18, to an activation in [0,
 * MAX_ACTIVATION], scale 1/2^8. */
static inline int16_t clipped_relu(int32_t sum) {
    int32_t value = (sum + ROUNDING) >> 10;
    return value < 0 ? 0 : value > MAX_ACTIVATION ? MAX_ACTIVATION : value;
}

static int32_t forward_plain(const Layers *layers, const int16_t *inputs, int pairs) {
    int32_t sum[HIDDEN1];
    int16_t hidden[HIDDEN1];
    for (int h = 0; h < HIDDEN1; h++) sum[h] = layers->first_bias[h];
    for (int p = 0; p < pairs; p++)
        for (int h = 0; h < HIDDEN1; h++)
            sum[h] += inputs[2 * p] * layers->first[p][h][0] +
                      inputs[2 * p + 1] * layers->first[p][h][1];
    for (int h = 0; h < HIDDEN1; h++) hidden[h] = clipped_relu(sum[h]);
    for (int h = 0; h < HIDDEN2; h++) sum[h] = layers->second_bias[h];
    for (int p = 0; p < HIDDEN1 / 2; p++)
        for (int h = 0; h < HIDDEN2; h++)
            sum[h] += hidden[2 * p] * layers->second[p][h][0] +
                      hidden[2 * p + 1] * layers->second[p][h][1];
    int32_t out = layers->last_bias;
    for (int h = 0; h < HIDDEN2; h++) out += clipped_relu(sum[h]) * layers->last[h / 2][h % 2];
    return out;
}

static void forward_all_plain(const Layers *layers, const int16_t *board,
                              const SnakeInputs *snakes, int count, int32_t *logits) {
    for (int i = 0; i < count; i++) {
        int16_t inputs[NUM_INPUTS];
        join_inputs(board, snakes, count, i, inputs);
        logits[i] = forward_plain(layers, inputs, (count == 2 ? NUM_DUEL_INPUTS : NUM_INPUTS) / 2);
    }
}

#ifdef X86_VECTORS
#include <immintrin.h>

/* Returns a pair of int16 values as one int32. The index has type size_t, because an int requires a
 * sign extension for every pair. */
static inline int32_t pair_at(const int16_t *values, size_t pair) {
    int32_t both;
    memcpy(&both, values + 2 * pair, sizeof both);
    return both;
}

#define LANES 8
#define GROUPS (HIDDEN1 / LANES)
__attribute__((target("avx2"))) static inline __m256i clipped_relu_avx2(__m256i sum) {
    __m256i value = _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(ROUNDING)), 10);
    value = _mm256_max_epi32(value, _mm256_setzero_si256());
    return _mm256_min_epi32(value, _mm256_set1_epi32(MAX_ACTIVATION));
}

__attribute__((target("avx2"))) static inline __m256i add_pairs_avx2(__m256i sum, __m256i both,
                                                                    const void *weights) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(both, _mm256_loadu_si256(weights)));
}

/* Packs 16 int32 values into 16 int16 values, in order. */
__attribute__((target("avx2"))) static inline __m256i narrowed_avx2(__m256i low, __m256i high) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
}

/* Returns the sum of the output layer, scale 1/2^18, from the sums of the second hidden layer. */
__attribute__((target("avx2"))) static inline int32_t last_layer(const Layers *layers, __m256i low,
                                                                 __m256i high) {
    __m256i second = narrowed_avx2(clipped_relu_avx2(low), clipped_relu_avx2(high));
    __m256i out = _mm256_madd_epi16(second, _mm256_loadu_si256((const void *)layers->last));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(out), _mm256_extracti128_si256(out, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1));
    return layers->last_bias + _mm_cvtsi128_si32(four);
}

/* Writes the activations of the first hidden layer. */
__attribute__((target("avx2"))) static inline void store_hidden(const __m256i *sum,
                                                                int16_t *hidden) {
    for (int g = 0; g < GROUPS; g += 2)
        _mm256_storeu_si256(
            (void *)&hidden[g * LANES],
            narrowed_avx2(clipped_relu_avx2(sum[g]), clipped_relu_avx2(sum[g + 1])));
}

__attribute__((target("avx2"))) static int32_t forward_avx2(const Layers *layers,
                                                            const int16_t *inputs, int pairs) {
    __m256i sum[GROUPS];
    int16_t hidden[HIDDEN1];
    for (int g = 0; g < GROUPS; g++)
        sum[g] = _mm256_loadu_si256((const void *)&layers->first_bias[g * LANES]);
#pragma GCC unroll 8 /* without unrolling, the sums move between registers */
    for (size_t p = 0; p < (size_t)pairs; p++) {
        __m256i both = _mm256_set1_epi32(pair_at(inputs, p));
        for (int g = 0; g < GROUPS; g++)
            sum[g] = add_pairs_avx2(sum[g], both, layers->first[p][g * LANES]);
    }
    store_hidden(sum, hidden);
    __m256i low = _mm256_loadu_si256((const void *)layers->second_bias);
    __m256i high = _mm256_loadu_si256((const void *)&layers->second_bias[LANES]);
#pragma GCC unroll 8
    for (size_t p = 0; p < HIDDEN1 / 2; p++) {
        __m256i both = _mm256_set1_epi32(pair_at(hidden, p));
        low = add_pairs_avx2(low, both, layers->second[p]);
        high = add_pairs_avx2(high, both, layers->second[p][LANES]);
    }
    return last_layer(layers, low, high);
}

/* Adds the products of `pairs` pairs of inputs of two snakes to their sums `a` and `b`. The two
 * snakes share each weight. */
__attribute__((target("avx2"), always_inline)) static inline void add_inputs_of_two(
    __m256i *a, __m256i *b, const int16_t (*weights)[HIDDEN1][2], const int16_t *inputs_a,
    const int16_t *inputs_b, size_t pairs) {
#pragma GCC unroll 1 /* unrolled loops store sums on the stack */
    for (size_t p = 0; p < pairs; p++) {
        __m256i both_a = _mm256_set1_epi32(pair_at(inputs_a, p));
        __m256i both_b = _mm256_set1_epi32(pair_at(inputs_b, p));
        for (int g = 0; g < GROUPS; g++) {
            a[g] = add_pairs_avx2(a[g], both_a, weights[p][g * LANES]);
            b[g] = add_pairs_avx2(b[g], both_b, weights[p][g * LANES]);
        }
    }
}

/* Writes the outputs of two snakes from their sums `a` and `b` of the first layer. The processor
 * computes the two outputs at the same time. */
__attribute__((target("avx2"))) static inline void last_layers_of_two(
    const Layers *layers, const __m256i *a, const __m256i *b, int32_t *logit_a, int32_t *logit_b) {
    int16_t hidden_a[HIDDEN1], hidden_b[HIDDEN1];
    store_hidden(a, hidden_a);
    store_hidden(b, hidden_b);
    __m256i low_a = _mm256_loadu_si256((const void *)layers->second_bias), low_b = low_a;
    __m256i high_a = _mm256_loadu_si256((const void *)&layers->second_bias[LANES]);
    __m256i high_b = high_a;
#pragma GCC unroll 1 /* see add_inputs_of_two() */
    for (size_t p = 0; p < HIDDEN1 / 2; p++) {
        __m256i both_a = _mm256_set1_epi32(pair_at(hidden_a, p));
        __m256i both_b = _mm256_set1_epi32(pair_at(hidden_b, p));
        low_a = add_pairs_avx2(low_a, both_a, layers->second[p]);
        low_b = add_pairs_avx2(low_b, both_b, layers->second[p]);
        high_a = add_pairs_avx2(high_a, both_a, layers->second[p][LANES]);
        high_b = add_pairs_avx2(high_b, both_b, layers->second[p][LANES]);
    }
    *logit_a = last_layer(layers, low_a, high_a);
    *logit_b = last_layer(layers, low_b, high_b);
}

#define BOARD_PAIRS (BOARD_INPUTS / 2)
#define OWN_BOARD_PAIRS (OWN_BOARD_INPUTS / 2)
#define SNAKE_PAIRS (SNAKE_INPUTS / 2)

/* Writes the sums of the inputs that several snakes share: the board inputs, and either `strongest`
 * or `second` as the strongest opponent. */
__attribute__((target("avx2"))) static inline void add_shared_inputs(
    const Layers *layers, const int16_t *board, const SnakeInputs *strongest,
    const SnakeInputs *second, __m256i sum[2][GROUPS]) {
    for (int g = 0; g < GROUPS; g++)
        sum[0][g] = _mm256_loadu_si256((const void *)&layers->first_bias[g * LANES]);
#pragma GCC unroll 1 /* see add_inputs_of_two() */
    for (size_t p = OWN_BOARD_PAIRS; p < BOARD_PAIRS; p++) {
        __m256i both = _mm256_set1_epi32(pair_at(board, p));
        for (int g = 0; g < GROUPS; g++)
            sum[0][g] = add_pairs_avx2(sum[0][g], both, layers->first[p][g * LANES]);
    }
    memcpy(sum[1], sum[0], sizeof sum[0]);
    add_inputs_of_two(sum[0], sum[1], layers->first + BOARD_PAIRS + SNAKE_PAIRS, strongest->own,
                      second->own, SNAKE_PAIRS);
}

/* Evaluates two snakes at a time. Only two snakes are the strongest opponent of any snake, and each
 * of the two is the strongest opponent of the other. */
__attribute__((target("avx2"))) static void forward_all_avx2(const Layers *layers,
                                                             const int16_t *board,
                                                             const SnakeInputs *snakes, int count,
                                                             int32_t *logits) {
    const int16_t(*own)[HIDDEN1][2] = layers->first + BOARD_PAIRS; /* weights of the groups */
    const int16_t(*nearest)[HIDDEN1][2] = own + 2 * SNAKE_PAIRS;
    const int16_t(*mean)[HIDDEN1][2] = own + 3 * SNAKE_PAIRS;
    int strongest = snakes[0].strongest, second = snakes[strongest].strongest;
    __m256i shared[2][GROUPS], a[GROUPS], b[GROUPS];
    add_shared_inputs(layers, board, &snakes[strongest], &snakes[second], shared);
    for (int i = 0; i < count; i += 2) {
        int j = i + 1 < count ? i + 1 : i;
        const SnakeInputs *ours = &snakes[i], *theirs = &snakes[j];
        memcpy(a, shared[ours->strongest != strongest], sizeof a);
        memcpy(b, shared[theirs->strongest != strongest], sizeof b);
        add_inputs_of_two(a, b, layers->first, ours->own_board, theirs->own_board,
                          OWN_BOARD_PAIRS);
        add_inputs_of_two(a, b, own, ours->own, theirs->own, SNAKE_PAIRS);
        if (count > 2) {
            add_inputs_of_two(a, b, nearest, snakes[ours->nearest].own,
                              snakes[theirs->nearest].own, SNAKE_PAIRS);
            add_inputs_of_two(a, b, mean, ours->mean, theirs->mean, SNAKE_PAIRS);
        }
        last_layers_of_two(layers, a, b, &logits[i], &logits[j]);
    }
}
#endif

const NetworkKernel *network_kernel(int kernel) {
    static const NetworkKernel plain = {forward_plain, forward_all_plain};
#ifdef X86_VECTORS
    static const NetworkKernel avx2 = {forward_avx2, forward_all_avx2};
    if (kernel == KERNEL_AVX2 && cpu_has(HAS_AVX2)) return &avx2;
#endif
    return kernel == KERNEL_PLAIN ? &plain : NULL;
}

const NetworkKernel *best_network_kernel(void) {
    const NetworkKernel *avx2 = network_kernel(KERNEL_AVX2);
    return avx2 ? avx2 : network_kernel(KERNEL_PLAIN);
}

static int weights_are_valid(const int16_t *weights, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (weights[i] > MAX_WEIGHT || weights[i] < -MAX_WEIGHT) return 0;
    return 1;
}

static int biases_are_valid(const int32_t *biases, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (biases[i] > MAX_BIAS || biases[i] < -MAX_BIAS) return 0;
    return 1;
}

int network_is_valid(const Network *network) {
    for (int s = 0; s < STACKS; s++) {
        const Layers *layers = &network->stack[s];
        if (!weights_are_valid(layers->first[0][0], NUM_INPUTS * HIDDEN1) ||
            !weights_are_valid(layers->second[0][0], HIDDEN1 * HIDDEN2) ||
            !weights_are_valid(layers->last[0], HIDDEN2) ||
            !biases_are_valid(layers->first_bias, HIDDEN1) ||
            !biases_are_valid(layers->second_bias, HIDDEN2) ||
            !biases_are_valid(&layers->last_bias, 1))
            return 0;
    }
    return 1;
}
