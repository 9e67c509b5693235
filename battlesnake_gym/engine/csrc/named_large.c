/* The named snakes, and who reaches what, on boards of up to 640 cells. */
#define WORDS 10
#define CHOICES named_choices_large
#define REACH reach_planes_large
#include "named_body.h"
#include "reach_body.h"
