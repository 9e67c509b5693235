/* The named snakes on boards of up to 384 cells. */
#define WORDS 6
#define CHOICES named_choices_medium
#include "named_body.h"
