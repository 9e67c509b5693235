/* Built-in snakes and territory planes on boards of up to 640 cells. */
#define WORDS 10
#define CHOICES builtin_choices_large
#define TERRITORY territory_planes_large
#include "builtin_snakes_kernel.h"
#include "territory_kernel.h"
