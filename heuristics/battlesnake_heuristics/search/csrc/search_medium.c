/* The search for boards of up to 384 cells. */
#define WORDS 6
#define CODE medium_plain
#include "search_body.h"
