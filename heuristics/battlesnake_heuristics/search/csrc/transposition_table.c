/* Storage of the transposition tables: one table shared by all searches, and a pool for the frozen
 * search. */
#include <stdlib.h>

#include "transposition_table.h"

TTSlot *tt_shared(void) {
    static TTSlot *shared;
    TTSlot *table = __atomic_load_n(&shared, __ATOMIC_ACQUIRE), *none = NULL;
    if (table) return table;
    table = calloc(TT_SLOTS, sizeof *table); /* pages are allocated on first use */
    if (!table || __atomic_compare_exchange_n(&shared, &none, table, 0, __ATOMIC_ACQ_REL,
                                              __ATOMIC_ACQUIRE))
        return table;
    free(table); /* another thread allocated the table first */
    return none;
}

/* Pool of tables for reuse. Clearing a new table takes longer than a short search. */
static TTSlot *spare[8];

TTSlot *tt_borrow_frozen(uint64_t *hash) {
    static uint64_t searches;
    TTSlot *table = NULL;
    *hash ^= __atomic_add_fetch(&searches, 1, __ATOMIC_RELAXED) * FROZEN_TT_SLOTS;
    for (int i = 0; i < 8 && !table; i++)
        table = __atomic_exchange_n(&spare[i], NULL, __ATOMIC_ACQUIRE);
    return table ? table : calloc(FROZEN_TT_SLOTS, sizeof *table);
}

void tt_return_frozen(TTSlot *table) {
    for (int i = 0; i < 8 && table; i++)
        table = __atomic_exchange_n(&spare[i], table, __ATOMIC_ACQ_REL);
    free(table);
}
