/* The clock of the searches in this process; apart from Python's door, for those without it. */
#include "search.h"

int search_cpu_clock;
