/* Search kernel for boards of up to 640 cells. */
#define WORDS 10
#define KERNEL large_plain
#include "search_kernel.h"
