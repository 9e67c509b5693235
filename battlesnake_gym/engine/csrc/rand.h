/* Random numbers: the official engine's seeded streams (Go's math/rand) and a faster stream (a
 * 64-bit mixer). Both have the same functions, so that rules work with either. */
#ifndef BATTLESNAKE_RAND_H
#define BATTLESNAKE_RAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RAND_RING = 1024 }; /* a power of two above the generator's state of 607 outputs */

/* A stream. */
typedef struct {
    bool fast;
    uint64_t state;  /* of the fast stream */
    uint32_t seed;   /* of the seeded stream: first value of its linear congruential generator */
    uint32_t used;   /* outputs returned */
    uint32_t filled; /* outputs computed */
    uint64_t ring[RAND_RING]; /* output k, counted from 1, is at k % RAND_RING */
} Rand;

/* Computes the tables of the seeded stream from Go's 607 constants, words of 64 bits; call it once
 * before any other function. Returns 0, or -1 if `size` is wrong. */
int rand_init(const char *constants, size_t size);

/* Starts Go's rand.New(rand.NewSource(seed)). Cheap: outputs are computed on demand. */
void rand_seeded(Rand *rand, int64_t seed);

/* Starts the fast stream of one turn of one game: a hash of (seed, turn, number of the draw). */
static inline void rand_fast(Rand *rand, int64_t seed, int32_t turn) {
    rand->fast = true;
    rand->state = (uint64_t)seed * 0xD1342543DE82EF95u + (uint64_t)turn * 0xA0761D6478BD642Fu;
}

/* Returns the next output of a fast stream, 63 bits. */
static inline uint64_t rand_fast_next(Rand *rand) {
    uint64_t x = rand->state += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 32)) * 0xE9846AF9B1A615Du;
    x = (x ^ (x >> 32)) * 0xE9846AF9B1A615Du;
    return (x ^ (x >> 28)) >> 1;
}

/* Returns the next output of a seeded stream, 63 bits. */
uint64_t rand_seeded_next(Rand *rand);

/* Returns the next output, 63 bits. */
static inline uint64_t rand_next(Rand *rand) {
    return rand->fast ? rand_fast_next(rand) : rand_seeded_next(rand);
}

/* Returns a number in [0, n), as Go's Intn. */
int32_t rand_intn(Rand *rand, int32_t n);

/* Returns a number in [0, n), as within Go's Shuffle. */
static inline uint32_t rand_bounded(Rand *rand, uint32_t n) {
    uint64_t product = (rand_next(rand) >> 31) * n;
    if ((uint32_t)product < n) {
        uint32_t smallest = -n % n;
        while ((uint32_t)product < smallest) product = (rand_next(rand) >> 31) * n;
    }
    return (uint32_t)(product >> 32);
}

/* Returns the percent roll that decides about food, in [0, 100). */
static inline int32_t rand_percent(Rand *rand) {
    return rand->fast ? (int32_t)rand_bounded(rand, 100) : rand_intn(rand, 100);
}
/* Returns a number in [low, high]. */
static inline int32_t rand_range(Rand *rand, int32_t low, int32_t high) {
    return rand_intn(rand, high - low + 1) + low;
}

/* Shuffles n numbers like Go's Shuffle. */
void rand_shuffle(Rand *rand, int16_t *items, int n);

/* Returns which of n items Go's Shuffle would bring to `position`, with the same draws. */
int rand_shuffled(Rand *rand, int n, int position);

#endif
