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

#ifdef X86_VECTORS
#include <immintrin.h>
#include <string.h>

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

/* Returns the sum of the output layer, scale 1/2^18, for the activations of the second hidden
 * layer. */
__attribute__((target("avx2"))) static inline int32_t last_layer(const Layers *layers,
                                                                 __m256i second) {
    __m256i out = _mm256_madd_epi16(second, _mm256_loadu_si256((const void *)layers->last));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(out), _mm256_extracti128_si256(out, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1));
    return layers->last_bias + _mm_cvtsi128_si32(four);
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
    for (int g = 0; g < GROUPS; g += 2)
        _mm256_storeu_si256(
            (void *)&hidden[g * LANES],
            narrowed_avx2(clipped_relu_avx2(sum[g]), clipped_relu_avx2(sum[g + 1])));
    __m256i low = _mm256_loadu_si256((const void *)layers->second_bias);
    __m256i high = _mm256_loadu_si256((const void *)&layers->second_bias[LANES]);
#pragma GCC unroll 8
    for (size_t p = 0; p < HIDDEN1 / 2; p++) {
        __m256i both = _mm256_set1_epi32(pair_at(hidden, p));
        low = add_pairs_avx2(low, both, layers->second[p]);
        high = add_pairs_avx2(high, both, layers->second[p][LANES]);
    }
    return last_layer(layers, narrowed_avx2(clipped_relu_avx2(low), clipped_relu_avx2(high)));
}
#endif

NetworkKernel network_kernel(int kernel) {
#ifdef X86_VECTORS
    if (kernel == KERNEL_AVX2 && cpu_has(HAS_AVX2)) return forward_avx2;
#endif
    return kernel == KERNEL_PLAIN ? forward_plain : NULL;
}

NetworkKernel best_network_kernel(void) {
    NetworkKernel avx2_kernel = network_kernel(KERNEL_AVX2);
    return avx2_kernel ? avx2_kernel : forward_plain;
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
