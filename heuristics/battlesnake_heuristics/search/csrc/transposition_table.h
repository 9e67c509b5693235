/* Lock-free transposition table (Hyatt and Mann 2002, XOR verification).
 *
 * A key is a hash of all data that a value depends on, including the rules and the evaluation. One
 * table therefore serves all games of the process, and results remain valid from move to move.
 * Threads write without locks: a slot whose two words come from different writes matches no key. */
#ifndef TRANSPOSITION_TABLE_H
#define TRANSPOSITION_TABLE_H

#include <stdint.h>

enum { BOUND_EXACT, BOUND_LOWER, BOUND_UPPER };

/* An entry with the value of a position. */
typedef struct {
    int32_t value; /* in 1/1000 cell */
    /* Search depth in turns; BOUND_...; best move: 0 to 3, or snake << 2 | move for a reply. */
    uint8_t depth, bound, move;
} TTEntry;

/* A slot, which consists of the two stored words. */
typedef struct TTSlot {
    uint64_t check, data; /* check: key XOR data; data: value, depth, bound, move */
} TTSlot;

#define TT_SLOTS (1u << 21) /* slots of the shared table: 32 MiB */

/* Number of slots of the frozen search's tables; its moves depend on the hash collisions and
 * therefore on this number. */
#define FROZEN_TT_SLOTS (1u << 20)

/* Returns the shared table, or NULL if out of memory. The first call allocates the table, which is
 * never cleared or freed. Thread-safe. */
TTSlot *tt_shared(void);

/* Returns a table of FROZEN_TT_SLOTS slots for one search, or NULL if out of memory. The caller
 * returns the table with tt_return_frozen(). The table is not cleared; instead, the function
 * changes `hash` above the index bits, so that old entries never match. Thread-safe. */
TTSlot *tt_borrow_frozen(uint64_t *hash);
/* Returns a borrowed table to the pool, or frees the table; NULL is allowed. Thread-safe. */
void tt_return_frozen(TTSlot *table);

/* Looks up `key` in a table of mask + 1 slots. Returns 1 and fills `entry`, or returns 0. */
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

/* Stores an entry, which replaces the entry in its slot. */
static inline void tt_store(TTSlot *table, uint32_t mask, uint64_t key, TTEntry entry) {
    TTSlot *slot = &table[key & mask];
    uint64_t data = (uint64_t)(uint32_t)entry.value << 32 | (uint64_t)entry.depth << 16 |
                    (uint64_t)entry.bound << 8 | entry.move;
    __atomic_store_n(&slot->data, data, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->check, key ^ data, __ATOMIC_RELAXED);
}

#endif
