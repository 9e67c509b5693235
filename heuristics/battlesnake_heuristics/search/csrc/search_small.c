/* The search for boards of up to 128 cells. */
#define WORDS 2
#define CODE small_plain
#include "search_body.h"
