/* Lock-free transposition table (Hyatt and Mann 2002, XOR verification).
 *
 * A key hashes everything that a value depends on, the rules and the evaluation included. One table
 * therefore serves all games of the process, and results carry over from move to move. Threads
 * write without locks: a slot whose two words come from different writes matches no key. */
#ifndef TRANSPOSITION_TABLE_H
#define TRANSPOSITION_TABLE_H

#include <stdint.h>

enum { BOUND_EXACT, BOUND_LOWER, BOUND_UPPER };

/* An entry: a value in 1/1000 cell, the depth it was searched to in turns, its BOUND_..., and the
 * best move (0 to 3, or snake << 2 | move for a reply). */
typedef struct {
    int32_t value;
    uint8_t depth, bound, move;
} TTEntry;

/* A slot: the two words that are stored. */
typedef struct TTSlot {
    uint64_t check, data; /* key XOR data; value, depth, bound and move */
} TTSlot;

#define TT_SLOTS (1u << 21) /* slots of the shared table: 32 MiB */

/* Slots of the frozen search's tables; hash collisions, and so its moves, depend on it. */
#define FROZEN_TT_SLOTS (1u << 20)

/* Returns the shared table, allocated on the first call and never cleared or freed; NULL if out of
 * memory. Thread-safe. */
TTSlot *tt_shared(void);

/* Returns a table of FROZEN_TT_SLOTS for one search, until it is returned; NULL if out of memory.
 * The table is not cleared; instead `hash` is changed, above the index bits, so that old entries
 * never match. Thread-safe. */
TTSlot *tt_borrow_frozen(uint64_t *hash);
/* Returns a borrowed table to the pool, or frees it; NULL is allowed. Thread-safe. */
void tt_return_frozen(TTSlot *table);

/* Looks up `key` in a table of mask + 1 slots; returns 1 and fills `entry`, or returns 0. */
static inline int tt_probe(const TTSlot *table, uint32_t mask, uint64_t key, TTEntry *entry) {
    const TTSlot *slot = &table[key & mask];
    uint64_t data = __atomic_load_n(&slot->data, __ATOMIC_RELAXED);
    if ((__atomic_load_n(&slot->check, __ATOMIC_RELAXED) ^ data) != key) return 0;
    entry->value = (int32_t)(data >> 32);
    entry->depth = data >> 16;
    entry->bound = data >> 8;
    entry->move = data;
    return 1;
}

/* Stores an entry, replacing the one in its slot. */
static inline void tt_store(TTSlot *table, uint32_t mask, uint64_t key, TTEntry entry) {
    TTSlot *slot = &table[key & mask];
    uint64_t data = (uint64_t)(uint32_t)entry.value << 32 | (uint64_t)entry.depth << 16 |
                    (uint64_t)entry.bound << 8 | entry.move;
    __atomic_store_n(&slot->data, data, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->check, key ^ data, __ATOMIC_RELAXED);
}

#endif
