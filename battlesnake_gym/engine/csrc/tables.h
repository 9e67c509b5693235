/* What Python hands over at import (rules/tables.py): cells of fixed maps, and Go's constants. */
#ifndef BATTLESNAKE_TABLES_H
#define BATTLESNAKE_TABLES_H

#include "cold.h"

typedef struct {
    const Point *at;
    int count;
} Places;

#define FIXED_PLACES(each) \
    each(RIVERS_HAZARDS) each(RIVERS_LG_HAZARDS) each(RIVERS_XL_HAZARDS) each(ISLANDS_HAZARDS) \
    each(ISLANDS_LG_HAZARDS) each(RIVERS_STARTS) each(RIVERS_LG_STARTS) each(RIVERS_XL_STARTS) \
    each(ISLANDS_STARTS) each(ISLANDS_LG_STARTS) each(CASTLE_HAZARDS) each(CASTLE_LG_HAZARDS) \
    each(CASTLE_XL_HAZARDS) each(CASTLE_STARTS) each(CASTLE_LG_STARTS) each(CASTLE_XL_STARTS) \
    each(CASTLE_GATES) each(CASTLE_LG_GATES) each(CASTLE_XL_GATES) each(ARCADE_HAZARDS) \
    each(ARCADE_CORNERS) each(ARCADE_LATER_STARTS) each(ARCADE_FOOD) each(PITS_STARTS) \
    each(PITS_HAZARDS)

#define DECLARE_PLACES(name) extern Places name;
FIXED_PLACES(DECLARE_PLACES)
#undef DECLARE_PLACES

/* Returns 0, or -1 with a Python error. */
int tables_init(void);

#endif
