/* Random numbers: the reference's seeded streams (Go's math/rand) and a fast stream of our own.
 *
 * Both answer the same questions in the same way, so that a rule reads the same with either. */
#ifndef BATTLESNAKE_RAND_H
#define BATTLESNAKE_RAND_H

#include <stdbool.h>
#include <stdint.h>

enum { RAND_RING = 1024 }; /* a power of two above the generator's memory of 607 outputs */

typedef struct {
    bool fast;
    uint64_t state;  /* of the fast stream */
    uint32_t seed;   /* of the seeded stream: the first value of its linear congruential generator */
    uint32_t used;   /* outputs handed out */
    uint32_t filled; /* outputs computed */
    uint64_t ring[RAND_RING]; /* output k (from 1) stands at k % RAND_RING */
} Rand;

/* Computes the tables of the seeded stream; call once before any other function. */
void rand_init(void);

/* Go's rand.New(rand.NewSource(seed)). Cheap: outputs are computed when asked for. */
void rand_seeded(Rand *rand, int64_t seed);

/* The fast stream of one turn of one game: a hash of (seed, turn, number of the draw). */
void rand_fast(Rand *rand, int64_t seed, int32_t turn);

uint64_t rand_next(Rand *rand);               /* 63 bits */
int32_t rand_intn(Rand *rand, int32_t n);     /* 0 .. n - 1, as Go's Intn */
uint32_t rand_bounded(Rand *rand, uint32_t n); /* 0 .. n - 1, as within Go's Shuffle */
static inline int32_t rand_range(Rand *rand, int32_t low, int32_t high) {
    return rand_intn(rand, high - low + 1) + low;
}

/* Go's Shuffle of n numbers. */
void rand_shuffle(Rand *rand, int16_t *items, int n);

/* Which of n items a Shuffle would bring to `position`; takes the same draws. */
int rand_shuffled(Rand *rand, int n, int position);

/* Passes over the draws of a Shuffle of n items. */
void rand_skip_shuffle(Rand *rand, int n);

#endif
