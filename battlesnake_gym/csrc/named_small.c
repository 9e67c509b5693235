/* The named snakes on boards of up to 128 cells. */
#define WORDS 2
#define CHOICES named_choices_small
#include "named_body.h"
