/* Search kernel for boards of up to 384 cells. */
#define WORDS 6
#define KERNEL medium_plain
#include "search_kernel.h"
