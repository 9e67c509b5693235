/* The search for boards of up to 640 cells. */
#define WORDS 10
#define SEARCH search_2026_large
#include "search_body.h"
