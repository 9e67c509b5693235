/* Random numbers: the reference's seeded streams (Go's math/rand) and a fast stream of our own.
 *
 * Both answer the same questions in the same way, so that a rule reads the same with either. */
#ifndef BATTLESNAKE_RAND_H
#define BATTLESNAKE_RAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RAND_RING = 1024 }; /* a power of two above the generator's memory of 607 outputs */

typedef struct {
    bool fast;
    uint64_t state;  /* of the fast stream */
    uint32_t seed;   /* of the seeded stream: the first value of its linear congruential generator */
    uint32_t used;   /* outputs handed out */
    uint32_t filled; /* outputs computed */
    uint64_t ring[RAND_RING]; /* output k (from 1) is at k % RAND_RING */
} Rand;

/* Computes the tables of the seeded stream from the 607 constants of Go, words of 64 bits; call once
 * before any other function. Returns 0, or -1 if they are not as many. */
int rand_init(const char *constants, size_t size);

/* Go's rand.New(rand.NewSource(seed)). Cheap: outputs are computed when asked for. */
void rand_seeded(Rand *rand, int64_t seed);

/* The fast stream of one turn of one game: a hash of (seed, turn, number of the draw). */
static inline void rand_fast(Rand *rand, int64_t seed, int32_t turn) {
    rand->fast = true;
    rand->state = (uint64_t)seed * 0xD1342543DE82EF95u + (uint64_t)turn * 0xA0761D6478BD642Fu;
}

static inline uint64_t rand_fast_next(Rand *rand) {
    uint64_t x = rand->state += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 32)) * 0xE9846AF9B1A615Du;
    x = (x ^ (x >> 32)) * 0xE9846AF9B1A615Du;
    return (x ^ (x >> 28)) >> 1;
}

/* The next output of a seeded stream. */
uint64_t rand_seeded_next(Rand *rand);

/* 63 bits. */
static inline uint64_t rand_next(Rand *rand) {
    return rand->fast ? rand_fast_next(rand) : rand_seeded_next(rand);
}

int32_t rand_intn(Rand *rand, int32_t n); /* 0 .. n - 1, as Go's Intn */

/* 0 .. n - 1, as within Go's Shuffle. */
static inline uint32_t rand_bounded(Rand *rand, uint32_t n) {
    uint64_t product = (rand_next(rand) >> 31) * n;
    if ((uint32_t)product < n) {
        uint32_t smallest = -n % n;
        while ((uint32_t)product < smallest) product = (rand_next(rand) >> 31) * n;
    }
    return (uint32_t)(product >> 32);
}

/* The roll of a hundred that decides about food. */
static inline int32_t rand_percent(Rand *rand) {
    return rand->fast ? (int32_t)rand_bounded(rand, 100) : rand_intn(rand, 100);
}
static inline int32_t rand_range(Rand *rand, int32_t low, int32_t high) {
    return rand_intn(rand, high - low + 1) + low;
}

/* Go's Shuffle of n numbers. */
void rand_shuffle(Rand *rand, int16_t *items, int n);

/* Which of n items a Shuffle would bring to `position`; takes the same draws. */
int rand_shuffled(Rand *rand, int n, int position);

#endif
