/* The definition stands in observations.py. Here each byte is written about once, by loops over a
 * plane that the compiler turns into vector code. */
#include "observe.h"

#include <string.h>

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

/* The planes of one frame, in order. */
enum {
    BOARD_PLANE,
    FOOD_PLANE,
    HAZARDS_PLANE,
    BLOCKED_PLANE,
    TURN_PLANE,
    OWN_HEAD_PLANE,
    LONGER_HEADS_PLANE,
    SHORTER_HEADS_PLANE,
    OWN_BODY_PLANE,
    OTHER_BODIES_PLANE,
    HEALTH_PLANE,
    LENGTH_PLANE,
    PLANES,
};
enum {
    STARTER_FOOD,
    STARTER_OWN,
    STARTER_OTHERS,
    STARTER_HAZARDS,
    STARTER_HEALTH,
    STARTER_LENGTH,
    STARTER_TURN,
    STARTER_PLANES,
};
enum { OUTSIDE = 255, MAX_PLANES = PLANES, MAX_LAYERS = 5, FAR_TURNS = 32 };

/* Loops over a plane run in whole blocks of cells, which the compiler makes into vector code without
 * a tail. They read up to BLOCK - 1 entries too far (there is room: PLANE_SLACK) and write as many
 * bytes too far. So the planes of a snake are written in their order, each overwriting what the one
 * before wrote too far, and the last one is written exactly. Boards of less than a block have no
 * such room, and are looped over exactly. */
enum { BLOCK = PLANE_SLACK };

INLINE int span_of(int cells) {
    return cells < BLOCK ? cells : (cells + BLOCK - 1) / BLOCK * BLOCK;
}

/* The living snakes of a game, made once; each plane is as large as the game's board. */
typedef struct {
    int longest, second_longest; /* lengths; the same where two are the longest, 0 for nobody */
    _Alignas(64) uint8_t own[MAX_SNAKES][MAX_CELLS + BLOCK];
    _Alignas(64) uint8_t all[MAX_CELLS + BLOCK];
} Bodies;

/* Where the board's cell (x, y) goes in a plane: base + y * step_y + x * step_x. */
typedef struct {
    int base, step_x, step_y;
} Placement;

int observation_planes(int values) { return values == VALUES_PLANES ? PLANES : STARTER_PLANES; }

static int largest(int a, int b) { return a > b ? a : b; }
static int smallest(int a, int b) { return a < b ? a : b; }

bool observation_fits(const Observation *observation, const Layout *layout) {
    int width = layout->max_width, height = layout->max_height;
    int rows = observation->rows, columns = observation->columns;
    if (observation->view == VIEW_BOARD) return rows >= height && columns >= width;
    if (observation->view == VIEW_HEAD) return rows >= 2 * height - 1 && columns >= 2 * width - 1;
    return rows == columns && rows % 2 == 1 && rows >= 2 * largest(width, height) - 1;
}

/* -- loops over a plane ----------------------------------------------------------------------- */

/* One snake's body: base + slope * age, at most `top`, on the cells whose age is below extent;
 * added to the bodies of all. No two bodies share a cell. */
INLINE void body_plane(const uint16_t *restrict marks, int cells, uint16_t head_mark,
                       uint16_t extent, int16_t base, int16_t slope, int16_t top,
                       uint8_t *restrict own, uint8_t *restrict all) {
    for (int cell = 0; cell < cells; cell++) {
        /* Marks of other snakes differ in the high bits, so their age here is large. */
        uint16_t age = (uint16_t)(head_mark - marks[cell]);
        int16_t value = (int16_t)(base + slope * age);
        value = value < top ? value : top;
        value = age < extent ? value : 0;
        own[cell] = (uint8_t)value;
        all[cell] |= (uint8_t)value;
    }
}

INLINE void others_plane(const uint8_t *restrict all, const uint8_t *restrict own, int cells,
                         uint8_t *restrict out) {
    for (int cell = 0; cell < cells; cell++) out[cell] = all[cell] ^ own[cell];
}

INLINE void copy_plane(const uint8_t *restrict plane, int cells, uint8_t *restrict out) {
    for (int cell = 0; cell < cells; cell++) out[cell] = plane[cell];
}

INLINE void fill_plane(uint8_t value, int cells, uint8_t *restrict out) {
    for (int cell = 0; cell < cells; cell++) out[cell] = value;
}

/* `value` where `plane` is at least `least`, which is not 0. */
INLINE void least_plane(const uint8_t *restrict plane, int cells, uint8_t least, uint8_t value,
                        uint8_t *restrict out) {
    for (int cell = 0; cell < cells; cell++) out[cell] = plane[cell] >= least ? value : 0;
}

INLINE void layers_plane(const uint8_t *restrict layers, int cells, uint8_t step,
                         uint8_t *restrict out) {
    for (int cell = 0; cell < cells; cell++) {
        uint8_t count = layers[cell] < MAX_LAYERS ? layers[cell] : MAX_LAYERS;
        out[cell] = (uint8_t)(count * step);
    }
}

/* -- the planes of one snake ------------------------------------------------------------------ */

INLINE void make_bodies(const Layout *layout, const Record *record, int values, int span,
                        Bodies *bodies) {
    fill_plane(0, span, bodies->all);
    bodies->longest = bodies->second_longest = 0;
    for (int seat = 0; seat < record->num_snakes; seat++) {
        const Snake *snake = &record->snakes[seat];
        if (!snake->alive) continue;
        if (snake->length > bodies->longest) {
            bodies->second_longest = bodies->longest;
            bodies->longest = snake->length;
        } else if (snake->length > bodies->second_longest) {
            bodies->second_longest = snake->length;
        }
        uint16_t head_mark = (uint16_t)((seat << CLOCK_BITS) + record->clock);
        /* Longer than this, all cells are FAR_TURNS away: the sum stays within 16 bits. */
        int length = smallest(snake->length, snake->extent + FAR_TURNS);
        int base = values == VALUES_PLANES ? 8 * length : values == VALUES_NUM ? 5 : 50;
        int slope = values == VALUES_PLANES ? -8 : values == VALUES_NUM ? 5 : 0;
        int top = values == VALUES_PLANES ? 255 : 250;
        body_plane(record_marks(layout, record), span, head_mark, snake->extent,
                   (int16_t)base, (int16_t)slope, (int16_t)top, bodies->own[seat], bodies->all);
        if (values != VALUES_51S) continue;
        int head = snake->y * record->width + snake->x;
        bodies->own[seat][head] = bodies->all[head] = 250;
    }
}

INLINE uint8_t turn_value(const Record *record) {
    return (uint8_t)smallest(255, record->turn / 4);
}

INLINE uint8_t health_value(const Snake *snake) {
    return (uint8_t)(smallest(MAX_HEALTH, largest(0, snake->health)) * 255 / MAX_HEALTH);
}

INLINE uint8_t length_lead(const Bodies *bodies, int length) {
    int longest_other = length == bodies->longest ? bodies->second_longest : bodies->longest;
    int lead = length - longest_other;
    if (longest_other == 0 || lead >= 16) return 255;
    return (uint8_t)(lead <= -16 ? 0 : 128 + 8 * lead);
}

INLINE void paint_heads(const Record *record, int own, int cells, int span,
                        uint8_t *planes) {
    fill_plane(0, 2 * cells + span, planes + OWN_HEAD_PLANE * cells);
    for (int seat = 0; seat < record->num_snakes; seat++) {
        const Snake *snake = &record->snakes[seat];
        if (!snake->alive) continue;
        int longer = snake->length >= record->snakes[own].length;
        int plane = seat == own ? OWN_HEAD_PLANE : longer ? LONGER_HEADS_PLANE : SHORTER_HEADS_PLANE;
        planes[plane * cells + snake->y * record->width + snake->x] = 255;
    }
}

INLINE void paint_planes(const Layout *layout, const Record *record, const Bodies *bodies, int own,
                         int cells, int span, uint8_t *planes) {
    fill_plane(255, span, planes + BOARD_PLANE * cells);
    least_plane(record_food(layout, record), span, 1, 255, planes + FOOD_PLANE * cells);
    if (record->any_hazards)
        layers_plane(record_hazards(layout, record), span, 51,
                     planes + HAZARDS_PLANE * cells);
    else
        fill_plane(0, span, planes + HAZARDS_PLANE * cells);
    least_plane(bodies->all, span, 16, 255, planes + BLOCKED_PLANE * cells);
    fill_plane(turn_value(record), span, planes + TURN_PLANE * cells);
    paint_heads(record, own, cells, span, planes);
    copy_plane(bodies->own[own], span, planes + OWN_BODY_PLANE * cells);
    others_plane(bodies->all, bodies->own[own], span, planes + OTHER_BODIES_PLANE * cells);
    fill_plane(health_value(&record->snakes[own]), span, planes + HEALTH_PLANE * cells);
    memset(planes + LENGTH_PLANE * cells, length_lead(bodies, record->snakes[own].length), (size_t)cells);
}

INLINE void paint_starter_planes(const Layout *layout, const Record *record, const Bodies *bodies,
                                 int own, int cells, int span, uint8_t *planes) {
    const Snake *snake = &record->snakes[own];
    least_plane(record_food(layout, record), span, 1, 250, planes + STARTER_FOOD * cells);
    copy_plane(bodies->own[own], span, planes + STARTER_OWN * cells);
    others_plane(bodies->all, bodies->own[own], span, planes + STARTER_OTHERS * cells);
    layers_plane(record_hazards(layout, record), span, 50,
                 planes + STARTER_HAZARDS * cells);
    fill_plane(health_value(snake), span, planes + STARTER_HEALTH * cells);
    fill_plane((uint8_t)(5 * smallest(50, snake->length)), span,
               planes + STARTER_LENGTH * cells);
    memset(planes + STARTER_TURN * cells, turn_value(record), (size_t)cells);
}

/* -- the view --------------------------------------------------------------------------------- */

static Placement placement_of(const Observation *observation, const Record *record, int seat) {
    int rows = observation->rows, columns = observation->columns;
    if (observation->view == VIEW_BOARD) {
        int below = (rows - record->height) / 2, left = (columns - record->width) / 2;
        return (Placement){below * columns + left, 1, columns};
    }
    /* Turning the board makes "right" and "up" other directions in the planes. */
    const int steps[4][2] = {{1, columns}, {-1, -columns}, {-columns, 1}, {columns, -1}};
    int facing = observation->view == VIEW_FACING ? record->facing[seat] : UP;
    const Snake *snake = &record->snakes[seat];
    Placement placement = {0, steps[facing][0], steps[facing][1]};
    placement.base = (rows / 2) * columns + columns / 2 - snake->x * placement.step_x -
                     snake->y * placement.step_y;
    return placement;
}

/* What a plane holds outside the board: planes that are the same all over go on there. */
static uint8_t outside_value(int values, int plane, const uint8_t *board) {
    if (values == VALUES_PLANES) {
        int constant = plane == TURN_PLANE || plane >= HEALTH_PLANE;
        return constant ? board[0] : 0;
    }
    return plane >= STARTER_HEALTH ? board[0] : OUTSIDE;
}

static void place(const Placement *placement, const uint8_t *board, int width, int height,
                  uint8_t *out) {
    for (int y = 0; y < height; y++) {
        uint8_t *row = out + placement->base + y * placement->step_y;
        if (placement->step_x == 1) {
            memcpy(row, board + y * width, (size_t)width);
            continue;
        }
        for (int x = 0; x < width; x++) row[x * placement->step_x] = board[y * width + x];
    }
}

INLINE void paint(int values, const Layout *layout, const Record *record, const Bodies *bodies,
                  int seat, uint8_t *planes) {
    int cells = record->width * record->height;
    int span = span_of(cells);
    if (values == VALUES_PLANES)
        paint_planes(layout, record, bodies, seat, cells, span, planes);
    else
        paint_starter_planes(layout, record, bodies, seat, cells, span, planes);
}

INLINE void observe_seat(const Observation *observation, const Layout *layout,
                         const Record *record, const Bodies *bodies, int seat, uint8_t *out) {
    int values = observation->values, cells = record->width * record->height;
    if (observation->view == VIEW_BOARD && observation->rows == record->height &&
        observation->columns == record->width) {
        paint(values, layout, record, bodies, seat, out);
        return;
    }
    uint8_t board[MAX_PLANES * MAX_CELLS + BLOCK];
    paint(values, layout, record, bodies, seat, board);
    Placement placement = placement_of(observation, record, seat);
    int size = observation->rows * observation->columns;
    for (int plane = 0; plane < observation_planes(values); plane++) {
        const uint8_t *from = board + plane * cells;
        memset(out + plane * size, outside_value(values, plane, from), (size_t)size);
        place(&placement, from, record->width, record->height, out + plane * size);
    }
}

INLINE void observe(const Observation *observation, const Layout *layout, const Record *record,
                    uint8_t *out) {
    Bodies bodies;
    int cells = record->width * record->height;
    make_bodies(layout, record, observation->values, span_of(cells), &bodies);
    size_t size = observation_size(observation);
    size_t frame = size / (size_t)observation->frames;
    for (int seat = 0; seat < layout->max_snakes; seat++, out += size) {
        if (seat >= record->num_snakes || !record->snakes[seat].alive) {
            memset(out, 0, size);
            continue;
        }
        if (size > frame && record->turn == 0) memset(out + frame, 0, size - frame);
        if (size > frame && record->turn != 0) memmove(out + frame, out, size - frame);
        observe_seat(observation, layout, record, &bodies, seat, out);
    }
}

/* x86-64 promises vectors of 16 bytes; nearly every such processor has 32, and the loops above make
 * good use of them. So they are compiled twice, and the processor is asked. */
#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2"))) static void observe_avx2(const Observation *observation,
                                                         const Layout *layout,
                                                         const Record *record, uint8_t *out) {
    observe(observation, layout, record, out);
}
#endif

void observe_game(const Observation *observation, const Layout *layout, const Record *record,
                  uint8_t *out) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx2")) {
        observe_avx2(observation, layout, record, out);
        return;
    }
#endif
    observe(observation, layout, record, out);
}
