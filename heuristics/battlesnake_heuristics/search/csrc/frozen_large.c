/* Kernel of the frozen search for boards of up to 640 cells. */
#define WORDS 10
#define FROZEN 1
#define KERNEL frozen_large_plain
#include "search_kernel.h"
