/* Search kernel for boards of up to 128 cells. */
#define WORDS 2
#define KERNEL small_plain
#include "search_kernel.h"
