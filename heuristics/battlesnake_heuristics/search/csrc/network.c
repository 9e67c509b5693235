#include "network.h"
#include "processor.h"

#include <stddef.h>

#define HALF (1 << 9) /* rounds to the nearest: sums count in 1/2^18, values in 1/2^8 */

static inline int16_t clipped(int32_t sum) {
    int32_t value = (sum + HALF) >> 10;
    return value < 0 ? 0 : value > LARGEST ? LARGEST : value;
}

static int32_t value_plain(const Layers *layers, const int16_t *inputs, int pairs) {
    int32_t sum[HIDDEN];
    int16_t hidden[HIDDEN];
    for (int h = 0; h < HIDDEN; h++) sum[h] = layers->first_bias[h];
    for (int p = 0; p < pairs; p++)
        for (int h = 0; h < HIDDEN; h++)
            sum[h] += inputs[2 * p] * layers->first[p][h][0] +
                      inputs[2 * p + 1] * layers->first[p][h][1];
    for (int h = 0; h < HIDDEN; h++) hidden[h] = clipped(sum[h]);
    for (int h = 0; h < SECOND; h++) sum[h] = layers->second_bias[h];
    for (int p = 0; p < HIDDEN / 2; p++)
        for (int h = 0; h < SECOND; h++)
            sum[h] += hidden[2 * p] * layers->second[p][h][0] +
                      hidden[2 * p + 1] * layers->second[p][h][1];
    int32_t out = layers->last_bias;
    for (int h = 0; h < SECOND; h++) out += clipped(sum[h]) * layers->last[h / 2][h % 2];
    return out;
}

#ifdef X86_VECTORS
#include <immintrin.h>
#include <string.h>

static inline int32_t pair_at(const int16_t *values, int pair) {
    int32_t both;
    memcpy(&both, values + 2 * pair, sizeof both);
    return both;
}

#define LANES 8
#define GROUPS (HIDDEN / LANES)
__attribute__((target("avx2"))) static inline __m256i clipped_avx2(__m256i sum) {
    __m256i value = _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(HALF)), 10);
    value = _mm256_max_epi32(value, _mm256_setzero_si256());
    return _mm256_min_epi32(value, _mm256_set1_epi32(LARGEST));
}

__attribute__((target("avx2"))) static inline __m256i add_pairs_avx2(__m256i sum, __m256i both,
                                                                    const void *weights) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(both, _mm256_loadu_si256(weights)));
}

/* 16 values of 32 bits as 16 bits, in order. */
__attribute__((target("avx2"))) static inline __m256i narrowed_avx2(__m256i low, __m256i high) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
}

/* The last layer, of what the second gives. */
__attribute__((target("avx2"))) static inline int32_t last_layer(const Layers *layers,
                                                                 __m256i second) {
    __m256i out = _mm256_madd_epi16(second, _mm256_loadu_si256((const void *)layers->last));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(out), _mm256_extracti128_si256(out, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1));
    return layers->last_bias + _mm_cvtsi128_si32(four);
}

__attribute__((target("avx2"))) static int32_t value_avx2(const Layers *layers,
                                                          const int16_t *inputs, int pairs) {
    __m256i sum[GROUPS];
    int16_t hidden[HIDDEN];
    for (int g = 0; g < GROUPS; g++)
        sum[g] = _mm256_loadu_si256((const void *)&layers->first_bias[g * LANES]);
    for (int p = 0; p < pairs; p++) {
        __m256i both = _mm256_set1_epi32(pair_at(inputs, p));
        for (int g = 0; g < GROUPS; g++)
            sum[g] = add_pairs_avx2(sum[g], both, layers->first[p][g * LANES]);
    }
    for (int g = 0; g < GROUPS; g += 2)
        _mm256_storeu_si256((void *)&hidden[g * LANES],
                            narrowed_avx2(clipped_avx2(sum[g]), clipped_avx2(sum[g + 1])));
    __m256i low = _mm256_loadu_si256((const void *)layers->second_bias);
    __m256i high = _mm256_loadu_si256((const void *)&layers->second_bias[LANES]);
    for (int p = 0; p < HIDDEN / 2; p++) {
        __m256i both = _mm256_set1_epi32(pair_at(hidden, p));
        low = add_pairs_avx2(low, both, layers->second[p]);
        high = add_pairs_avx2(high, both, layers->second[p][LANES]);
    }
    return last_layer(layers, narrowed_avx2(clipped_avx2(low), clipped_avx2(high)));
}
#endif

NetworkCode network_code(int code) {
#ifdef X86_VECTORS
    if (code == CODE_AVX2 && processor_has(HAS_AVX2)) return value_avx2;
#endif
    return code == CODE_PLAIN ? value_plain : NULL;
}

NetworkCode fastest_network_code(void) {
    NetworkCode fast = network_code(CODE_AVX2);
    return fast ? fast : value_plain;
}

static int all_within(const int16_t *weights, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (weights[i] > HEAVIEST || weights[i] < -HEAVIEST) return 0;
    return 1;
}

static int biases_within(const int32_t *biases, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (biases[i] > HEAVIEST_BIAS || biases[i] < -HEAVIEST_BIAS) return 0;
    return 1;
}

int network_in_bounds(const Network *network) {
    for (int s = 0; s < STACKS; s++) {
        const Layers *layers = &network->stack[s];
        if (!all_within(layers->first[0][0], INPUTS * HIDDEN) ||
            !all_within(layers->second[0][0], HIDDEN * SECOND) ||
            !all_within(layers->last[0], SECOND) || !biases_within(layers->first_bias, HIDDEN) ||
            !biases_within(layers->second_bias, SECOND) || !biases_within(&layers->last_bias, 1))
            return 0;
    }
    return 1;
}
