/* Kernel of the frozen search for boards of up to 128 cells. */
#define WORDS 2
#define FROZEN 1
#define KERNEL frozen_small_plain
#include "search_kernel.h"
