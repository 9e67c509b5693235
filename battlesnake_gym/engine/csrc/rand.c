/* Go's math/rand: an additive lagged Fibonacci generator (607, 273), computed on demand. */
#include "rand.h"
#include "cpu_features.h"

#include <stddef.h>
#include <string.h>

enum { WORDS = 607, TAP_LAG = 273, MODULUS = 2147483647, MULTIPLIER = 48271 };

/* The initial state has 607 words. Each word combines three values of a linear congruential
 * generator with a constant. The words are used from the last to the first. Word j of the tables is
 * therefore word 606 - j of Go. FACTORS[t][j] times the seed gives value t of word j. */
static uint32_t FACTORS[3][WORDS];
static uint64_t CONSTANTS[WORDS];

int rand_init(const char *constants, size_t size) {
    if (size != sizeof CONSTANTS) return -1;
    uint64_t power = 1;
    for (int i = 0; i < 21; i++) power = power * MULTIPLIER % MODULUS;
    for (int i = 0; i < WORDS; i++) {
        for (int t = 0; t < 3; t++) {
            FACTORS[t][WORDS - 1 - i] = (uint32_t)power;
            power = power * MULTIPLIER % MODULUS;
        }
        memcpy(&CONSTANTS[WORDS - 1 - i], constants + sizeof *CONSTANTS * (size_t)i,
               sizeof *CONSTANTS);
    }
    return 0;
}

void rand_seeded(Rand *rand, int64_t seed) {
    int64_t reduced = seed % MODULUS;
    if (reduced < 0) reduced += MODULUS;
    rand->fast = false;
    rand->seed = reduced ? (uint32_t)reduced : 89482311;
    rand->used = rand->filled = 0;
}

/* Returns seed * factor modulo 2^31 - 1. Two folds suffice, because the product is not a multiple
 * of the modulus. */
static inline uint64_t lcg_value(uint64_t seed, uint64_t factor) {
    uint64_t product = seed * factor; /* both factors have 31 bits */
    product = (product & MODULUS) + (product >> 31);
    return (product & MODULUS) + (product >> 31);
}

static inline uint64_t seeded_word(uint64_t seed, size_t j) {
    return (lcg_value(seed, FACTORS[0][j]) << 40) ^ (lcg_value(seed, FACTORS[1][j]) << 20) ^
           lcg_value(seed, FACTORS[2][j]) ^ CONSTANTS[j];
}

/* Writes `count` outputs, starting with output j + 1 and ending with at most output 273. Each
 * output is the sum of two state words. The form of the loop allows compilers to vectorize it. */
static inline void sum_words(uint64_t seed, size_t j, size_t count, uint64_t *restrict outputs) {
    for (size_t i = 0; i < count; i++)
        outputs[i] = seeded_word(seed, j + i) + seeded_word(seed, j + i + TAP_LAG);
}

/* The shuffle for one piece of food needs about 100 outputs; AVX2 halves the time for these
 * outputs. */
#ifdef X86_VECTORS
__attribute__((target("avx2"))) static void sum_words_avx2(uint64_t seed, size_t j, size_t count,
                                                           uint64_t *restrict outputs) {
    sum_words(seed, j, count, outputs);
}
#endif

static void early_outputs(uint32_t seed, uint32_t first, uint32_t last, uint64_t *ring) {
    size_t j = first - 1, count = last - first + 1;
#ifdef X86_VECTORS
    if (count >= 8 && cpu_has(HAS_AVX2)) {
        sum_words_avx2(seed, j, count, ring + first);
        return;
    }
#endif
    sum_words(seed, j, count, ring + first);
}

/* Computes all outputs up to output `last`. */
static void fill(Rand *rand, uint32_t last) {
    uint32_t k = rand->filled + 1;
    if (k <= TAP_LAG) {
        uint32_t end = last < TAP_LAG ? last : TAP_LAG;
        early_outputs(rand->seed, k, end, rand->ring);
        k = end + 1;
    }
    for (; k <= last; k++) {
        uint64_t tap = rand->ring[(k - TAP_LAG) % RAND_RING];
        uint64_t feed = k <= WORDS ? seeded_word(rand->seed, (k + TAP_LAG - 1) % WORDS)
                                   : rand->ring[(k - WORDS) % RAND_RING];
        rand->ring[k % RAND_RING] = tap + feed;
    }
    rand->filled = last;
}

/* Computes the next `count` outputs; at most 400, because more outputs would overwrite each
 * other. */
static inline void prepare(Rand *rand, uint32_t count) {
    if (rand->used + count > rand->filled) fill(rand, rand->used + count);
}

uint64_t rand_seeded_next(Rand *rand) {
    if (!rand->filled) { /* most turns need only one output */
        rand->ring[1] = seeded_word(rand->seed, 0) + seeded_word(rand->seed, TAP_LAG);
        rand->filled = 1;
    }
    prepare(rand, 1);
    return rand->ring[++rand->used % RAND_RING] & INT64_MAX;
}

int32_t rand_intn(Rand *rand, int32_t n) {
    if (n < 1) return 0; /* only on boards that the map rejects */
    if ((n & (n - 1)) == 0) return (int32_t)(rand_next(rand) >> 32) & (n - 1);
    int32_t largest = (int32_t)(INT32_MAX - (1u << 31) % (uint32_t)n);
    int32_t value;
    do {
        value = (int32_t)(rand_next(rand) >> 32);
    } while (value > largest);
    return value % n;
}

void rand_shuffle(Rand *rand, int16_t *items, int n) {
    for (int i = n - 1; i > 0; i--) {
        int j = (int)rand_bounded(rand, (uint32_t)i + 1);
        int16_t item = items[i];
        items[i] = items[j];
        items[j] = item;
    }
}

/* Computes rand_shuffled() with an array of all indices, for shuffles with a repeated draw. */
static int shuffled_slowly(Rand *rand, int n, int position) {
    int16_t items[1024];
    for (int i = 0; i < n; i++) items[i] = (int16_t)i;
    rand_shuffle(rand, items, n);
    return items[position];
}

/* Finds the index by following `position` through the swaps from the last to the first, without an
 * array. Draws the same numbers as rand_bounded(). If a draw must be repeated (one in millions),
 * the function shuffles an array instead. */
int rand_shuffled(Rand *rand, int n, int position) {
    if (rand->fast || n > 400) return shuffled_slowly(rand, n, position);
    if (n < 2) return position;
    uint32_t draws = (uint32_t)n - 1;
    prepare(rand, draws);
    int where = position;
    for (uint32_t i = 1; i <= draws; i++) {
        uint32_t k = rand->used + 1 + draws - i;
        uint64_t product = ((rand->ring[k % RAND_RING] & INT64_MAX) >> 31) * (i + 1);
        if ((uint32_t)product < i + 1) return shuffled_slowly(rand, n, position);
        int j = (int)(product >> 32);
        where = where == (int)i ? j : where == j ? (int)i : where;
    }
    rand->used += draws;
    return where;
}
