/* The table that all searches of the process share. */
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
