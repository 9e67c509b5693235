/* Built-in snakes and territory planes on boards of up to 128 cells. */
#define WORDS 2
#define CHOICES builtin_choices_small
#define TERRITORY territory_planes_small
#include "builtin_snakes_kernel.h"
#include "territory_kernel.h"
