/* The search for boards of up to 640 cells. */
#define WORDS 10
#define CODE large_plain
#include "search_body.h"
