/* The named snakes on boards of up to 640 cells. */
#define WORDS 10
#define CHOICES named_choices_large
#include "named_body.h"
