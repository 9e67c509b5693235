/* The search for boards of up to 384 cells. */
#define WORDS 6
#define SEARCH search_2026_medium
#include "search_body.h"
