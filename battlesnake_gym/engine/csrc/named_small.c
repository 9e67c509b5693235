/* The named snakes, and who reaches what, on boards of up to 128 cells. */
#define WORDS 2
#define CHOICES named_choices_small
#define REACH reach_planes_small
#include "named_body.h"
#include "reach_body.h"
