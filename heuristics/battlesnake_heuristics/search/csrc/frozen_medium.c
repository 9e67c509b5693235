/* Kernel of the frozen search for boards of up to 384 cells. */
#define WORDS 6
#define FROZEN 1
#define KERNEL frozen_medium_plain
#include "search_kernel.h"
