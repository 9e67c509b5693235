/* The table that all searches of the process share, and those that serve one search at a time. */
#include <stdlib.h>

#include "table.h"

Entry *shared_table(void) {
    static Entry *shared;
    Entry *table = __atomic_load_n(&shared, __ATOMIC_ACQUIRE), *none = NULL;
    if (table) return table;
    table = calloc(TABLE_SIZE, sizeof *table); /* pages come when they are touched */
    if (!table || __atomic_compare_exchange_n(&shared, &none, table, 0, __ATOMIC_ACQ_REL,
                                              __ATOMIC_ACQUIRE))
        return table;
    free(table); /* another thread was quicker */
    return none;
}

static Entry *spare[8]; /* clearing a new one would take longer than a short search */

Entry *borrow_table(uint64_t *hash) {
    static uint64_t searches;
    Entry *table = NULL;
    *hash ^= __atomic_add_fetch(&searches, 1, __ATOMIC_RELAXED) * SIZE_OF_2026;
    for (int i = 0; i < 8 && !table; i++)
        table = __atomic_exchange_n(&spare[i], NULL, __ATOMIC_ACQUIRE);
    return table ? table : calloc(SIZE_OF_2026, sizeof *table);
}

void return_table(Entry *table) {
    for (int i = 0; i < 8 && table; i++)
        table = __atomic_exchange_n(&spare[i], table, __ATOMIC_ACQ_REL);
    free(table);
}
