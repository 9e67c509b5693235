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

/* Planes are made in whole blocks of cells. So they are read up to BLOCK - 1 entries too far (there
 * is room: PLANE_SLACK), and written as many bytes too far. */
enum { BLOCK = 32 };
typedef uint8_t Block __attribute__((vector_size(BLOCK)));
/* The same anywhere in memory. memcpy would move it in halves. */
typedef uint8_t LooseBlock __attribute__((vector_size(BLOCK), aligned(1), may_alias));

/* The number of cells in whole blocks. */
INLINE int span_of(int cells) { return (cells + BLOCK - 1) & -BLOCK; }

/* One plane of a game, as large as its board. */
typedef struct {
    _Alignas(BLOCK) uint8_t cells[MAX_CELLS + BLOCK];
} Plane;

/* What the observations of a game's snakes are made from. */
typedef struct {
    int cells, span;             /* of the board */
    int num_living, living[MAX_SNAKES + 1];
    int longest, second_longest; /* lengths; the same where two are the longest, 0 for nobody */
    Plane food, hazards, blocked, all_bodies;
    Plane bodies[MAX_SNAKES]; /* of the living */
} Scene;

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

/* -- what all snakes of a game share ---------------------------------------------------------- */

/* One snake's body: base + slope * age, at most `top`, on the cells whose age is below extent;
 * added to the bodies of all. No two bodies share a cell. */
INLINE void make_body(const uint16_t *restrict marks, int span, uint16_t head_mark,
                      uint16_t extent, int16_t base, int16_t slope, int16_t top,
                      uint8_t *restrict own, uint8_t *restrict all) {
    for (int cell = 0; cell < span; cell++) {
        /* Marks of other snakes differ in the high bits, so their age here is large. */
        uint16_t age = (uint16_t)(head_mark - marks[cell]);
        int16_t value = (int16_t)(base + slope * age);
        value = value < top ? value : top;
        value = age < extent ? value : 0;
        own[cell] = (uint8_t)value;
        all[cell] |= (uint8_t)value;
    }
}

/* `value` where `plane` is at least `least`, which is not 0. */
INLINE void make_flags(const uint8_t *restrict plane, int span, uint8_t least, uint8_t value,
                       uint8_t *restrict out) {
    for (int cell = 0; cell < span; cell++) out[cell] = plane[cell] >= least ? value : 0;
}

INLINE void make_layers(const uint8_t *restrict layers, int span, uint8_t step,
                        uint8_t *restrict out) {
    for (int cell = 0; cell < span; cell++) {
        uint8_t count = layers[cell] < MAX_LAYERS ? layers[cell] : MAX_LAYERS;
        out[cell] = (uint8_t)(count * step);
    }
}

/* Lists the living seats; without a branch for each, which the processor could not foresee. */
INLINE void find_living(const Record *record, Scene *scene) {
    scene->num_living = 0;
    for (int seat = 0; seat < record->num_snakes; seat++) {
        scene->living[scene->num_living] = seat;
        scene->num_living += record->snakes[seat].alive;
    }
}

INLINE void find_longest(const Record *record, Scene *scene) {
    int longest = 0, second_longest = 0;
    for (int i = 0; i < scene->num_living; i++) {
        int length = record->snakes[scene->living[i]].length;
        second_longest = largest(second_longest, smallest(longest, length));
        longest = largest(longest, length);
    }
    scene->longest = longest;
    scene->second_longest = second_longest;
}

INLINE void make_bodies(const Layout *layout, const Record *record, int values, Scene *scene) {
    uint8_t *all = scene->all_bodies.cells;
    memset(all, 0, (size_t)scene->span);
    for (int i = 0; i < scene->num_living; i++) {
        int seat = scene->living[i];
        const Snake *snake = &record->snakes[seat];
        uint16_t head_mark = (uint16_t)((seat << CLOCK_BITS) + record->clock);
        /* Longer than this, all cells are FAR_TURNS away: the sum stays within 16 bits. */
        int length = smallest(snake->length, snake->extent + FAR_TURNS);
        int base = values == VALUES_PLANES ? 8 * length : values == VALUES_NUM ? 5 : 50;
        int slope = values == VALUES_PLANES ? -8 : values == VALUES_NUM ? 5 : 0;
        int top = values == VALUES_PLANES ? 255 : 250;
        uint8_t *own = scene->bodies[seat].cells;
        make_body(record_marks(layout, record), scene->span, head_mark, snake->extent,
                  (int16_t)base, (int16_t)slope, (int16_t)top, own, all);
        int head = snake->y * record->width + snake->x;
        if (values == VALUES_51S) own[head] = all[head] = 250;
    }
}

INLINE void make_scene(const Layout *layout, const Record *record, int values, Scene *scene) {
    scene->cells = record->width * record->height;
    scene->span = span_of(scene->cells);
    bool starter = values != VALUES_PLANES;
    find_living(record, scene);
    find_longest(record, scene);
    make_bodies(layout, record, values, scene);
    make_flags(record_food(layout, record), scene->span, 1, starter ? 250 : 255,
               scene->food.cells);
    make_flags(scene->all_bodies.cells, scene->span, 16, 255, scene->blocked.cells);
    if (record->any_hazards)
        make_layers(record_hazards(layout, record), scene->span, starter ? 50 : 51,
                    scene->hazards.cells);
    else
        memset(scene->hazards.cells, 0, (size_t)scene->span);
}

/* -- one snake -------------------------------------------------------------------------------- */

INLINE void fill_plane(uint8_t value, int span, uint8_t *to) {
    Block block = (Block){0} + value;
    for (int start = 0; start < span; start += BLOCK) *(LooseBlock *)(to + start) = block;
}

INLINE void copy_plane(const Plane *plane, int span, uint8_t *to) {
    const LooseBlock *from = (const LooseBlock *)plane->cells;
    for (int start = 0; start < span; start += BLOCK) *(LooseBlock *)(to + start) = *from++;
}

/* The bodies of all but the own one: no two bodies share a cell. */
INLINE void others_plane(const Plane *all, const Plane *own, int span, uint8_t *to) {
    const LooseBlock *all_block = (const LooseBlock *)all->cells;
    const LooseBlock *own_block = (const LooseBlock *)own->cells;
    for (int start = 0; start < span; start += BLOCK)
        *(LooseBlock *)(to + start) = *all_block++ ^ *own_block++;
}

INLINE uint8_t turn_value(const Record *record) {
    return (uint8_t)smallest(255, record->turn / 4);
}

INLINE uint8_t health_value(const Snake *snake) {
    return (uint8_t)(smallest(MAX_HEALTH, largest(0, snake->health)) * 255 / MAX_HEALTH);
}

INLINE uint8_t length_lead(const Scene *scene, int length) {
    int longest_other = length == scene->longest ? scene->second_longest : scene->longest;
    int lead = length - longest_other;
    if (longest_other == 0 || lead >= 16) return 255;
    return (uint8_t)(lead <= -16 ? 0 : 128 + 8 * lead);
}

INLINE void paint_heads(const Record *record, const Scene *scene, int own, uint8_t *planes) {
    int length = record->snakes[own].length;
    for (int i = 0; i < scene->num_living; i++) {
        const Snake *snake = &record->snakes[scene->living[i]];
        int plane = snake->length >= length ? LONGER_HEADS_PLANE : SHORTER_HEADS_PLANE;
        plane = scene->living[i] == own ? OWN_HEAD_PLANE : plane;
        planes[plane * scene->cells + snake->y * record->width + snake->x] = 255;
    }
}

/* Planes are filled in their order: each overwrites what the one before wrote too far. The last one
 * is filled exactly. */
INLINE void paint_planes(const Record *record, const Scene *scene, int own, uint8_t *planes) {
    int cells = scene->cells, span = scene->span;
    const Snake *snake = &record->snakes[own];
    const Plane *body = &scene->bodies[own];
    fill_plane(255, span, planes + BOARD_PLANE * cells);
    copy_plane(&scene->food, span, planes + FOOD_PLANE * cells);
    copy_plane(&scene->hazards, span, planes + HAZARDS_PLANE * cells);
    copy_plane(&scene->blocked, span, planes + BLOCKED_PLANE * cells);
    fill_plane(turn_value(record), span, planes + TURN_PLANE * cells);
    fill_plane(0, span, planes + OWN_HEAD_PLANE * cells);
    fill_plane(0, span, planes + LONGER_HEADS_PLANE * cells);
    fill_plane(0, span, planes + SHORTER_HEADS_PLANE * cells);
    copy_plane(body, span, planes + OWN_BODY_PLANE * cells);
    others_plane(&scene->all_bodies, body, span, planes + OTHER_BODIES_PLANE * cells);
    fill_plane(health_value(snake), span, planes + HEALTH_PLANE * cells);
    memset(planes + LENGTH_PLANE * cells, length_lead(scene, snake->length), (size_t)cells);
    paint_heads(record, scene, own, planes);
}

INLINE void paint_starter_planes(const Record *record, const Scene *scene, int own,
                                 uint8_t *planes) {
    int cells = scene->cells, span = scene->span;
    const Snake *snake = &record->snakes[own];
    const Plane *body = &scene->bodies[own];
    uint8_t length = (uint8_t)(5 * smallest(50, snake->length));
    copy_plane(&scene->food, span, planes + STARTER_FOOD * cells);
    copy_plane(body, span, planes + STARTER_OWN * cells);
    others_plane(&scene->all_bodies, body, span, planes + STARTER_OTHERS * cells);
    copy_plane(&scene->hazards, span, planes + STARTER_HAZARDS * cells);
    fill_plane(health_value(snake), span, planes + STARTER_HEALTH * cells);
    fill_plane(length, span, planes + STARTER_LENGTH * cells);
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

/* Whether a plane is the same all over, outside the board too. */
INLINE bool is_constant(int values, int plane) {
    if (values == VALUES_PLANES) return plane == TURN_PLANE || plane >= HEALTH_PLANE;
    return plane >= STARTER_HEALTH;
}

/* Copies of a size that the compiler knows, the second overlapping the first, cost a tenth. */
INLINE void copy_row(uint8_t *to, const uint8_t *from, int width) {
    if (width >= 16) {
        memcpy(to, from, 16);
        memcpy(to + width - 16, from + width - 16, 16);
    } else if (width >= 8) {
        memcpy(to, from, 8);
        memcpy(to + width - 8, from + width - 8, 8);
    } else {
        for (int x = 0; x < width; x++) to[x] = from[x];
    }
}

INLINE void place(const Placement *placement, const uint8_t *board, int width, int height,
                  uint8_t *out) {
    for (int y = 0; y < height; y++) {
        uint8_t *row = out + placement->base + y * placement->step_y;
        if (placement->step_x == 1) {
            copy_row(row, board + y * width, width);
            continue;
        }
        for (int x = 0; x < width; x++) row[x * placement->step_x] = board[y * width + x];
    }
}

INLINE void paint(int values, const Record *record, const Scene *scene, int seat,
                  uint8_t *planes) {
    if (values == VALUES_PLANES)
        paint_planes(record, scene, seat, planes);
    else
        paint_starter_planes(record, scene, seat, planes);
}

INLINE void observe_seat(const Observation *observation, const Record *record, const Scene *scene,
                         int seat, uint8_t *out) {
    int values = observation->values;
    if (observation->view == VIEW_BOARD && observation->rows == record->height &&
        observation->columns == record->width && scene->cells >= BLOCK) {
        paint(values, record, scene, seat, out);
        return;
    }
    uint8_t board[MAX_PLANES * MAX_CELLS + BLOCK];
    paint(values, record, scene, seat, board);
    Placement placement = placement_of(observation, record, seat);
    int size = observation->rows * observation->columns;
    int outside = values == VALUES_PLANES ? 0 : OUTSIDE;
    for (int plane = 0; plane < observation_planes(values); plane++) {
        const uint8_t *from = board + plane * scene->cells;
        bool constant = is_constant(values, plane);
        memset(out + plane * size, constant ? from[0] : outside, (size_t)size);
        if (constant) continue;
        place(&placement, from, record->width, record->height, out + plane * size);
    }
}

INLINE void observe(const Observation *observation, const Layout *layout, const Record *record,
                    uint8_t *out) {
    Scene scene;
    make_scene(layout, record, observation->values, &scene);
    size_t size = observation_size(observation);
    size_t frame = size / (size_t)observation->frames;
    for (int seat = 0; seat < layout->max_snakes; seat++, out += size) {
        if (seat >= record->num_snakes || !record->snakes[seat].alive) {
            memset(out, 0, size);
            continue;
        }
        if (size > frame && record->turn == 0) memset(out + frame, 0, size - frame);
        if (size > frame && record->turn != 0) memmove(out + frame, out, size - frame);
        observe_seat(observation, record, &scene, seat, out);
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
