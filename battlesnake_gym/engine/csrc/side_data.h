/* Data of a game outside its record: the order of lists, bodies of eliminated snakes, and the state
 * of maps. */
#ifndef BATTLESNAKE_SIDE_DATA_H
#define BATTLESNAKE_SIDE_DATA_H

#include "engine.h"

/* A point that may be off the board. */
typedef struct {
    int8_t x, y;
} Point;

/* A run of `count` consecutive equal entries of the hazard list. */
typedef struct {
    Point at;
    uint16_t count;
} HazardRun;

/* The body of an eliminated snake: `cells` points. The last point is repeated until the body has
 * `length` segments. */
typedef struct {
    int32_t eliminated_on;
    int32_t length;
    int32_t cells;
} DeadBody;

enum { MAX_GATES = 32 };

/* Side data of one game: the order of lists, the state of maps, and the bodies of eliminated
 * snakes. */
struct SideData {
    int32_t num_runs;
    int32_t off_board; /* number of hazard entries off the board */
    int32_t shrunk;    /* number of sides lost by the royale rectangle; -1: hazards must be rebuilt */
    int32_t num_gates; /* castle maps: number of gates */
    Point gates[MAX_GATES]; /* castle maps: gates in their current order */
    int32_t pools_drawn; /* healing pools: number of outputs used by removals */
    /* Offsets and sizes of the lists, equal for all games of a batch. */
    uint32_t runs_offset, max_runs, dead_points_offset, max_dead_points;
    DeadBody dead_bodies[MAX_SNAKES];
    /* The lists follow: int16_t food[2 * max_cells], HazardRun runs[max_runs], Point
     * dead[max_snakes][max_dead_points]. */
};

/* Returns the food list, with cells in the order in which food appeared. */
static inline int16_t *side_food(SideData *side) { return (int16_t *)(side + 1); }
/* Returns the hazard list. */
static inline HazardRun *side_hazard_runs(SideData *side) {
    return (HazardRun *)((char *)side + side->runs_offset);
}
/* Returns the points of an eliminated snake's body. */
static inline Point *side_dead_bodies(SideData *side, int seat) {
    return (Point *)((char *)side + side->dead_points_offset) +
           (size_t)seat * side->max_dead_points;
}

/* Sets the offsets of a zeroed block. */
void side_data_init(const Layout *layout, SideData *side);

#endif
