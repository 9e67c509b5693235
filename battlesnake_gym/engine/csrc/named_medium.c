/* The named snakes, and who reaches what, on boards of up to 384 cells. */
#define WORDS 6
#define CHOICES named_choices_medium
#define REACH reach_planes_medium
#include "named_body.h"
#include "reach_body.h"
