/* What is known of positions, for all searches of the process: a table without locks.
 *
 * A position's key holds all that its value depends on, the rules and the evaluation included, so
 * one table serves every game, and what was learnt for one move is there for the next. Threads
 * write as they please: an entry whose two words were not written together matches no key. */
#ifndef TABLE_H
#define TABLE_H

#include <stdint.h>

enum { EXACT, AT_LEAST, AT_MOST };

typedef struct {
    int32_t value;
    uint8_t depth, bound, move;
} Known;

typedef struct Entry {
    uint64_t check, data; /* the key XOR data; value, depth, bound and move */
} Entry;

#define TABLE_SIZE (1u << 21) /* entries of the one that all share: 32 MiB */

#define SIZE_OF_2026 (1u << 20) /* entries then: which positions meet in one decides moves */

/* The shared table, allocated when first asked for and never cleared; NULL without memory. */
Entry *shared_table(void);

/* A table of SIZE_OF_2026 for one search alone, until it is returned; NULL without memory. It is not
 * empty, so the search gets keys of its own: `hash` changes in the bits above those of an index. */
Entry *borrow_table(uint64_t *hash);
void return_table(Entry *table);

static inline int recall(const Entry *table, uint32_t mask, uint64_t key, Known *known) {
    const Entry *entry = &table[key & mask];
    uint64_t data = __atomic_load_n(&entry->data, __ATOMIC_RELAXED);
    if ((__atomic_load_n(&entry->check, __ATOMIC_RELAXED) ^ data) != key) return 0;
    known->value = (int32_t)(data >> 32);
    known->depth = data >> 16;
    known->bound = data >> 8;
    known->move = data;
    return 1;
}

static inline void remember(Entry *table, uint32_t mask, uint64_t key, Known known) {
    Entry *entry = &table[key & mask];
    uint64_t data = (uint64_t)(uint32_t)known.value << 32 | (uint64_t)known.depth << 16 |
                    (uint64_t)known.bound << 8 | known.move;
    __atomic_store_n(&entry->data, data, __ATOMIC_RELAXED);
    __atomic_store_n(&entry->check, key ^ data, __ATOMIC_RELAXED);
}

#endif
