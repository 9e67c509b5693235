/* The search for boards of up to 128 cells. */
#define WORDS 2
#define SEARCH search_2026_small
#include "search_body.h"
