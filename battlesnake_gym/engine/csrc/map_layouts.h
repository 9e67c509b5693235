/* Data that Python provides on import (battlesnake_gym/rules/tables.py): the point lists of the
 * fixed maps, and Go's random constants. */
#ifndef BATTLESNAKE_MAP_LAYOUTS_H
#define BATTLESNAKE_MAP_LAYOUTS_H

#include "side_data.h"

/* A list of points; the list does not own its memory. */
typedef struct {
    const Point *at;
    int count;
} PointList;

/* All lists, as arguments of the macro `each`. */
#define FIXED_POINT_LISTS(each) \
    each(RIVERS_HAZARDS) each(RIVERS_LG_HAZARDS) each(RIVERS_XL_HAZARDS) each(ISLANDS_HAZARDS) \
    each(ISLANDS_LG_HAZARDS) each(RIVERS_STARTS) each(RIVERS_LG_STARTS) each(RIVERS_XL_STARTS) \
    each(ISLANDS_STARTS) each(ISLANDS_LG_STARTS) each(CASTLE_HAZARDS) each(CASTLE_LG_HAZARDS) \
    each(CASTLE_XL_HAZARDS) each(CASTLE_STARTS) each(CASTLE_LG_STARTS) each(CASTLE_XL_STARTS) \
    each(CASTLE_GATES) each(CASTLE_LG_GATES) each(CASTLE_XL_GATES) each(ARCADE_HAZARDS) \
    each(ARCADE_CORNERS) each(ARCADE_LATER_STARTS) each(ARCADE_FOOD) each(PITS_STARTS) \
    each(PITS_HAZARDS)

#define DECLARE_POINT_LIST(name) extern PointList name;
FIXED_POINT_LISTS(DECLARE_POINT_LIST)
#undef DECLARE_POINT_LIST

/* Fills all lists and the random tables; call this function once with the GIL. Returns 0, or -1
 * with an exception set. */
int map_layouts_init(void);

#endif
