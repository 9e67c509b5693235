/* Random numbers: the official engine's seeded streams (Go's math/rand) and a faster stream (a
 * 64-bit mixer). The functions accept streams of both kinds. */
#ifndef BATTLESNAKE_RAND_H
#define BATTLESNAKE_RAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RAND_RING = 1024 }; /* a power of two greater than the generator's state of 607 outputs */

/* A random stream. */
typedef struct {
    bool fast;
    uint64_t state;  /* state of the fast stream */
    uint32_t seed;   /* first value of the seeded stream's linear congruential generator */
    uint32_t used;   /* number of outputs returned */
    uint32_t filled; /* number of outputs computed */
    uint64_t ring[RAND_RING]; /* output k, counted from 1, is at k % RAND_RING */
} Rand;

/* Computes the tables of the seeded stream from Go's 607 constants of 64 bits; call this function
 * before any other function. Returns 0, or -1 if `size` is wrong. */
int rand_init(const char *constants, size_t size);

/* Starts Go's rand.New(rand.NewSource(seed)). The start of a stream takes little time, because
 * outputs are computed on demand. */
void rand_seeded(Rand *rand, int64_t seed);

/* Starts the fast stream of one turn of one game: a hash of the seed, the turn and the index of the
 * draw. */
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

/* Returns an integer in [0, n), like Go's Intn. */
int32_t rand_intn(Rand *rand, int32_t n);

/* Returns an integer in [0, n), like the draws of Go's Shuffle. */
static inline uint32_t rand_bounded(Rand *rand, uint32_t n) {
    uint64_t product = (rand_next(rand) >> 31) * n;
    if ((uint32_t)product < n) {
        uint32_t smallest = -n % n;
        while ((uint32_t)product < smallest) product = (rand_next(rand) >> 31) * n;
    }
    return (uint32_t)(product >> 32);
}

/* Returns the percentage in [0, 100) that decides whether food appears. */
static inline int32_t rand_percent(Rand *rand) {
    return rand->fast ? (int32_t)rand_bounded(rand, 100) : rand_intn(rand, 100);
}
/* Returns an integer in [low, high]. */
static inline int32_t rand_range(Rand *rand, int32_t low, int32_t high) {
    return rand_intn(rand, high - low + 1) + low;
}

/* Shuffles n items like Go's Shuffle. */
void rand_shuffle(Rand *rand, int16_t *items, int n);

/* Returns the index of the item that Go's Shuffle of n items would move to `position`, with the
 * same draws. */
int rand_shuffled(Rand *rand, int n, int position);

#endif
