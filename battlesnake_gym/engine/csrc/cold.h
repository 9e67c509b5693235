/* What a game needs besides its record: the order of lists, the dead, what maps remember. */
#ifndef BATTLESNAKE_COLD_H
#define BATTLESNAKE_COLD_H

#include "engine.h"

/* A place, perhaps off the board. */
typedef struct {
    int8_t x, y;
} Point;

/* `count` equal entries of the hazard list in a row. */
typedef struct {
    Point at;
    uint16_t count;
} HazardRun;

/* The body of a dead snake: `cells` points, and the last of them repeated up to `length`. */
typedef struct {
    int32_t eliminated_on;
    int32_t length;
    int32_t cells;
} Grave;

enum { MAX_GATES = 32 };

struct Cold {
    int32_t num_runs;
    int32_t off_board; /* hazard entries off the board */
    int32_t shrunk;    /* sides that the royale rectangle has lost; -1: hazards need a rebuild */
    int32_t num_gates; /* castle maps: food candidates in their present order */
    Point gates[MAX_GATES];
    int32_t pools_drawn; /* healing pools: outputs of the stream that the removals have used */
    /* Offsets of the lists, the same for all games of a batch. */
    uint32_t runs_at, max_runs, graves_at, grave_points;
    Grave graves[MAX_SNAKES];
    /* then: int16_t food[2 * max_cells], HazardRun runs[max_runs], Point dead[max_snakes][...] */
};

static inline int16_t *cold_food(Cold *cold) { return (int16_t *)(cold + 1); }
static inline HazardRun *cold_runs(Cold *cold) {
    return (HazardRun *)((char *)cold + cold->runs_at);
}
static inline Point *cold_dead(Cold *cold, int seat) {
    return (Point *)((char *)cold + cold->graves_at) + (size_t)seat * cold->grave_points;
}

/* Sets the offsets of a zeroed block. */
void cold_init(const Layout *layout, Cold *cold);

#endif
