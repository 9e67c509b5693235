/* Built-in snakes and territory planes on boards of up to 384 cells. */
#define WORDS 6
#define CHOICES builtin_choices_medium
#define TERRITORY territory_planes_medium
#include "builtin_snakes_kernel.h"
#include "territory_kernel.h"
