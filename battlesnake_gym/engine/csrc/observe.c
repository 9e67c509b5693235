/* The definition is in observations.py. Here planes are made by loops that the compiler turns
 * into vector code; and after a turn only those are written that it has changed, because writing
 * takes longer than anything else once the observations of all games outgrow the caches. */
#include "observe.h"

#include <string.h>

#include "reach.h"

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

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
enum { OUTSIDE = 255, MAX_PLANES = PLANES + REACH_PLANES };

/* What a game shares is made in whole blocks of cells: so the planes of its record are read up to
 * BLOCK - 1 entries too far (there is room: PLANE_SLACK). What a snake sees is written to the byte:
 * the last block of a plane overlaps the one before. */
enum { BLOCK = 64 };
_Static_assert((int)BLOCK <= (int)PLANE_SLACK, "a block may reach beyond a record");
typedef uint8_t Block __attribute__((vector_size(BLOCK)));
/* The same anywhere in memory. memcpy would move it in parts. */
typedef uint8_t LooseBlock __attribute__((vector_size(BLOCK), aligned(1), may_alias));

/* The number of cells in whole blocks. */
INLINE int span_of(int cells) { return (cells + BLOCK - 1) & -BLOCK; }

static Vectors reach_by = WITHOUT_VECTORS; /* as the code chosen at the end of this file */

static void reach_planes(const Layout *layout, const Record *record, size_t stride, int size,
                         uint8_t *out) {
    int cells = record->width * record->height;
    (cells <= 128   ? reach_planes_small
     : cells <= 384 ? reach_planes_medium
                    : reach_planes_large)(reach_by, layout, record, stride, size, out);
}

/* One plane of a game, as large as its board. */
typedef struct {
    _Alignas(BLOCK) uint8_t cells[MAX_CELLS + BLOCK];
} Plane;

/* What the observations of a game's snakes are made from. */
typedef struct {
    int cells, span; /* of the board; span: in whole blocks */
    Plane food, hazards, all_bodies;
    Plane bodies[MAX_SNAKES]; /* of the living */
    uint8_t reach[MAX_SNAKES * REACH_PLANES * (MAX_CELLS + BLOCK)]; /* planes of `span` */
} Scene;

/* Where the board's cell (x, y) goes in a plane: base + y * step_y + x * step_x. */
typedef struct {
    int base, step_x, step_y;
} Placement;

int observation_planes(int values) {
    if (values == VALUES_REACH) return PLANES + REACH_PLANES;
    return values == VALUES_PLANES ? PLANES : STARTER_PLANES;
}

INLINE bool is_starter(int values) { return values == VALUES_51S || values == VALUES_NUM; }

bool observation_fits(const Observation *observation, const Layout *layout) {
    int width = layout->max_width, height = layout->max_height;
    int rows = observation->rows, columns = observation->columns;
    if (observation->view == VIEW_BOARD) return rows >= height && columns >= width;
    if (observation->view == VIEW_HEAD) return rows >= 2 * height - 1 && columns >= 2 * width - 1;
    return rows == columns && rows % 2 == 1 && rows >= 2 * largest(width, height) - 1;
}

/* -- what a turn changed ---------------------------------------------------------------------- */

/* The planes that a turn may leave as they are. All others are new with every turn. */
enum { NEW_FOOD = 1, NEW_HAZARDS = 2, NEW_BOARD = 4, ALL_NEW = 7 };

INLINE int news_of(const Record *before, const Record *record) {
    if (!before) return ALL_NEW;
    return NEW_FOOD * (before->food_changes != record->food_changes) |
           NEW_HAZARDS * (before->hazard_changes != record->hazard_changes);
}

/* -- what all snakes of a game share ---------------------------------------------------------- */

/* How a body is shown. Its cells are counted 1, 2, ... up to `most`, from the tail for `planes`, else
 * from the head, and show base + slope * count. */
typedef struct {
    uint16_t mark; /* of the cell that is 1 */
    uint16_t extent, most;
    uint8_t base;
    uint8_t leaving; /* the count that shows LEAVING instead; 0: none does */
} Count;

INLINE int slope_of(int values) {
    return !is_starter(values) ? 4 : values == VALUES_NUM ? 5 : 50;
}

INLINE Count count_of(int values, const Record *record, int seat) {
    const Snake *snake = &record->snakes[seat];
    uint16_t extent = snake->extent, head = (uint16_t)((seat << CLOCK_BITS) + record->clock);
    if (is_starter(values))
        return (Count){head, extent, values == VALUES_NUM ? 50 : 1, 0, 0};
    int stacked = smallest(snake->length - extent, FAR - 1);
    return (Count){(uint16_t)(head - extent + 1), extent, (uint16_t)(FAR - stacked),
                   (uint8_t)(BLOCKED + 4 * stacked), stacked == 0};
}

/* Counts the cells of one body within a block; 0 elsewhere. */
INLINE void count_block(int values, const uint16_t *restrict marks, Count body,
                        uint8_t *restrict counts) {
    uint16_t last = (uint16_t)(body.most - 1);
    for (int cell = 0; cell < BLOCK; cell++) {
        /* Marks of other snakes differ in the high bits, so the distance is large. */
        uint16_t distance = (uint16_t)(is_starter(values) ? body.mark - marks[cell]
                                                          : marks[cell] - body.mark);
        uint16_t near = distance < last ? distance : last;
        uint16_t is_body = (uint16_t)-(distance < body.extent);
        counts[cell] = (uint8_t)((uint16_t)(near + 1) & is_body);
    }
}

/* The plane of one body, and its cells in the plane of all: no two bodies share a cell. */
INLINE void make_body(int values, const uint16_t *restrict marks, int span, Count body,
                      uint8_t *restrict own, uint8_t *restrict all) {
    for (int start = 0; start < span; start += BLOCK, own += BLOCK, all += BLOCK) {
        _Alignas(BLOCK) uint8_t counts[BLOCK];
        count_block(values, marks + start, body, counts);
        for (int cell = 0; cell < BLOCK; cell++) {
            uint8_t count = counts[cell];
            uint8_t value = (uint8_t)(body.base + slope_of(values) * count);
            if (!is_starter(values)) value = count == body.leaving ? LEAVING : value;
            value = count ? value : 0;
            own[cell] = value;
            all[cell] |= value;
        }
    }
}

INLINE void make_layers(const uint8_t *restrict layers, int span, uint8_t most, uint8_t step,
                        uint8_t *restrict out) {
    for (int cell = 0; cell < span; cell++) {
        uint8_t count = layers[cell] < most ? layers[cell] : most;
        out[cell] = (uint8_t)(count * step);
    }
}

INLINE void make_bodies(int values, const Layout *layout, const Record *record, Scene *scene) {
    uint8_t *all = scene->all_bodies.cells;
    memset(all, 0, (size_t)scene->span);
    for (unsigned rest = record->alive_mask; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        uint8_t *own = scene->bodies[seat].cells;
        make_body(values, record_marks(layout, record), scene->span,
                  count_of(values, record, seat), own, all);
        int head = cell_at(record, record->snakes[seat].x, record->snakes[seat].y);
        if (!is_starter(values)) own[head] = all[head] = A_HEAD;
        if (values == VALUES_51S) own[head] = all[head] = 250;
    }
}

INLINE void make_scene(int values, const Layout *layout, const Record *record, int news,
                       Scene *scene) {
    scene->cells = record->width * record->height;
    scene->span = span_of(scene->cells);
    bool starter = is_starter(values);
    make_bodies(values, layout, record, scene);
    if (news & NEW_FOOD)
        make_layers(record_food(layout, record), scene->span, 1, starter ? 250 : A_FOOD,
                    scene->food.cells);
    if (news & NEW_HAZARDS)
        make_layers(record_hazards(layout, record), scene->span, MAX_LAYERS,
                    starter ? 50 : A_LAYER, scene->hazards.cells);
}

/* -- one snake -------------------------------------------------------------------------------- */

/* `size` bytes, at least BLOCK of them; so in the next two. */
INLINE void fill_plane(uint8_t value, int size, uint8_t *to) {
    Block block = (Block){0} + value;
    for (int start = 0; start < size - BLOCK; start += BLOCK) *(LooseBlock *)(to + start) = block;
    *(LooseBlock *)(to + size - BLOCK) = block;
}

/* Not a function: 32 bytes as a return value need another convention for calls. */
#define BLOCK_AT(cells) (*(const LooseBlock *)(cells))

INLINE void copy_plane(const Plane *plane, int size, uint8_t *to) {
    const uint8_t *from = plane->cells;
    int last = size - BLOCK;
    for (int start = 0; start < last; start += BLOCK)
        *(LooseBlock *)(to + start) = BLOCK_AT(from + start);
    *(LooseBlock *)(to + last) = BLOCK_AT(from + last);
}

/* The bodies of all but the seat's own: no two bodies share a cell. */
INLINE void others_plane(const Plane *all, const Plane *own, int size, uint8_t *to) {
    int last = size - BLOCK;
    for (int start = 0; start < last; start += BLOCK)
        *(LooseBlock *)(to + start) = BLOCK_AT(all->cells + start) ^ BLOCK_AT(own->cells + start);
    *(LooseBlock *)(to + last) = BLOCK_AT(all->cells + last) ^ BLOCK_AT(own->cells + last);
}

/* The planes that are new with every turn. They lie side by side and are written in order: most of
 * what this costs is memory that must be read first because only a part of it is written. */
INLINE void paint_snakes(const Record *record, const Scene *scene, int own, int size,
                         uint8_t *planes) {
    uint8_t *longer_heads = planes + LONGER_HEADS_PLANE * size;
    uint8_t *shorter_heads = planes + SHORTER_HEADS_PLANE * size;
    copy_plane(&scene->bodies[own], size, planes + OWN_BODY_PLANE * size);
    others_plane(&scene->all_bodies, &scene->bodies[own], size, planes + OTHER_BODIES_PLANE * size);
    fill_plane(0, 2 * size, longer_heads);
    for (unsigned rest = record->alive_mask & ~(1u << own); rest; rest &= rest - 1) {
        const Snake *other = &record->snakes[__builtin_ctz(rest)];
        int lead = other->length - record->snakes[own].length;
        uint8_t *heads = lead < 0 ? shorter_heads : longer_heads;
        int shown = AS_LONG + ((lead < 0 ? -lead : lead) << A_SEGMENT_BITS);
        heads[cell_at(record, other->x, other->y)] = (uint8_t)smallest(255, shown);
    }
}

/* Planes of `size` bytes each. Those that are not new hold what they are to hold. */
INLINE void paint_planes(const Record *before, const Record *record, const Scene *scene, int news,
                         int own, int size, uint8_t *planes) {
    const Snake *snake = &record->snakes[own], *was = before ? &before->snakes[own] : snake;
    bool new_board = news & NEW_BOARD;
    uint8_t turn = turn_value(record->turn), health = health_value(snake->health);
    uint8_t length = length_value(snake->length);
    uint8_t nowhere[MAX_CELLS];
    bool new_health = new_board || health != health_value(was->health);
    if (new_board) fill_plane(255, size, planes + BOARD_PLANE * size);
    if (news & NEW_FOOD) copy_plane(&scene->food, size, planes + FOOD_PLANE * size);
    if (news & NEW_HAZARDS) copy_plane(&scene->hazards, size, planes + HAZARDS_PLANE * size);
    if (new_board || turn != turn_value(before->turn))
        fill_plane(turn, size, planes + TURN_PLANE * size);
    fill_plane(health, size, either(new_health, planes + HEALTH_PLANE * size, nowhere));
    if (new_board || length != length_value(was->length))
        fill_plane(length, size, planes + LENGTH_PLANE * size);
    paint_snakes(record, scene, own, size, planes);
}

INLINE void paint_starter_planes(const Record *record, const Scene *scene, int news, int own,
                                 int size, uint8_t *planes) {
    const Snake *snake = &record->snakes[own];
    const Plane *body = &scene->bodies[own];
    uint8_t health = (uint8_t)(smallest(MAX_HEALTH, largest(0, snake->health)) * 255 / MAX_HEALTH);
    uint8_t length = (uint8_t)(5 * smallest(50, snake->length));
    uint8_t turn = (uint8_t)smallest(255, record->turn / 4);
    if (news & NEW_FOOD) copy_plane(&scene->food, size, planes + STARTER_FOOD * size);
    copy_plane(body, size, planes + STARTER_OWN * size);
    others_plane(&scene->all_bodies, body, size, planes + STARTER_OTHERS * size);
    if (news & NEW_HAZARDS) copy_plane(&scene->hazards, size, planes + STARTER_HAZARDS * size);
    fill_plane(health, size, planes + STARTER_HEALTH * size);
    fill_plane(length, size, planes + STARTER_LENGTH * size);
    fill_plane(turn, size, planes + STARTER_TURN * size);
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
    if (!is_starter(values)) return plane >= TURN_PLANE && plane <= LENGTH_PLANE;
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

INLINE void paint(int values, const Record *before, const Record *record, const Scene *scene,
                  int news, int seat, int size, uint8_t *planes) {
    if (is_starter(values))
        paint_starter_planes(record, scene, news, seat, size, planes);
    else
        paint_planes(before, record, scene, news, seat, size, planes);
}

/* Whether the planes of a game are those of its board, unchanged. */
INLINE bool is_whole(const Observation *observation, const Record *record) {
    return observation->view == VIEW_BOARD && observation->rows == record->height &&
           observation->columns == record->width && record->width * record->height >= BLOCK;
}

/* Paints the board beside, and sets it into the planes. */
INLINE void paint_view(int values, const Observation *observation, const Record *record,
                       const Scene *scene, int seat, uint8_t *out) {
    uint8_t board[MAX_PLANES * (MAX_CELLS + BLOCK)];
    paint(values, NULL, record, scene, ALL_NEW, seat, scene->span, board);
    if (values == VALUES_REACH) {
        int reach = REACH_PLANES * scene->span;
        memcpy(board + PLANES * scene->span, scene->reach + seat * reach, (size_t)reach);
    }
    Placement placement = placement_of(observation, record, seat);
    int size = observation->rows * observation->columns;
    int outside = is_starter(values) ? OUTSIDE : 0;
    for (int plane = 0; plane < observation_planes(values); plane++) {
        const uint8_t *from = board + plane * scene->span;
        bool constant = is_constant(values, plane);
        memset(out + plane * size, constant ? from[0] : outside, (size_t)size);
        if (constant) continue;
        place(&placement, from, record->width, record->height, out + plane * size);
    }
}

/* Zeros for the seats that died in this turn; without a turn before, for all dead seats. */
INLINE void clear_the_dead(const Layout *layout, const Record *before, const Record *record,
                           size_t size, uint8_t *out) {
    unsigned shown = before ? before->alive_mask : (1u << layout->max_snakes) - 1;
    for (unsigned rest = shown & ~(unsigned)record->alive_mask; rest; rest &= rest - 1)
        memset(out + size * (size_t)__builtin_ctz(rest), 0, size);
}

INLINE void observe_values(int values, const Observation *observation, const Layout *layout,
                           const Record *before, const Record *record, uint8_t *out) {
    size_t size = observation_size(observation);
    size_t frame = (size_t)(observation_planes(values) * observation->rows * observation->columns);
    bool whole = is_whole(observation, record);
    int news = whole && observation->frames == 1 ? news_of(before, record) : ALL_NEW;
    Scene scene;
    make_scene(values, layout, record, news, &scene);
    clear_the_dead(layout, before, record, size, out);
    if (values == VALUES_REACH && !whole)
        reach_planes(layout, record, (size_t)(REACH_PLANES * scene.span), scene.span,
                     scene.reach);
    for (unsigned rest = record->alive_mask; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        uint8_t *seen = out + size * (size_t)seat;
        if (!before)
            memset(seen + frame, 0, size - frame);
        else if (size > frame)
            memmove(seen + frame, seen, size - frame);
        if (whole)
            paint(values, before, record, &scene, news, seat, scene.cells, seen);
        else
            paint_view(values, observation, record, &scene, seat, seen);
    }
    if (values == VALUES_REACH && whole)
        reach_planes(layout, record, size, scene.cells, out + PLANES * scene.cells);
}

/* -- memory ----------------------------------------------------------------------------------- */

/* Its first lines and its last: what lies between them on large boards follows by itself. */
INLINE void fetch_plane(const uint8_t *plane, int size) {
    enum { LINE = 64 };
    __builtin_prefetch(plane, 1);
    __builtin_prefetch(plane + LINE, 1);
    __builtin_prefetch(plane + size - 1, 1);
}

void fetch_planes(const Observation *observation, const Record *record, uint8_t *out) {
    if (observation->values != VALUES_PLANES || observation->view != VIEW_BOARD) return;
    int size = observation->rows * observation->columns;
    size_t stride = (size_t)(PLANES * size * observation->frames);
    bool new_turn = turn_will_change(record->turn);
    for (unsigned rest = record->alive_mask; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        uint8_t *planes = out + stride * (size_t)seat;
        bool new_health = health_will_change(record->snakes[seat].health);
        if (new_turn) fetch_plane(planes + TURN_PLANE * size, size);
        fetch_plane(either(new_health, planes + HEALTH_PLANE * size, planes + OWN_BODY_PLANE * size),
                    size);
    }
}

/* -- the code that the processor has ---------------------------------------------------------- */

/* Code of its own for each kind of values. */
INLINE void observe(const Observation *observation, const Layout *layout, const Record *before,
                    const Record *record, uint8_t *out) {
    if (observation->values == VALUES_PLANES)
        observe_values(VALUES_PLANES, observation, layout, before, record, out);
    else if (observation->values == VALUES_REACH)
        observe_values(VALUES_REACH, observation, layout, before, record, out);
    else if (observation->values == VALUES_51S)
        observe_values(VALUES_51S, observation, layout, before, record, out);
    else
        observe_values(VALUES_NUM, observation, layout, before, record, out);
}

typedef void Observe(const Observation *observation, const Layout *layout, const Record *before,
                     const Record *record, uint8_t *out);

/* x86-64 promises vectors of 16 bytes; nearly every such processor has 32, many have 64, and the
 * loops above make good use of them. So they are compiled for each, and the processor is asked. */
static void observe_plain(const Observation *observation, const Layout *layout,
                          const Record *before, const Record *record, uint8_t *out) {
    observe(observation, layout, before, record, out);
}

#ifdef X86_VECTORS
__attribute__((target("avx2"))) static void observe_avx2(
    const Observation *observation, const Layout *layout, const Record *before,
    const Record *record, uint8_t *out) {
    observe(observation, layout, before, record, out);
}

#ifdef __clang__
#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl"), min_vector_width(512)))
#else
#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl,prefer-vector-width=512")))
#endif
WIDE static void observe_avx512(const Observation *observation, const Layout *layout,
                                const Record *before, const Record *record, uint8_t *out) {
    observe(observation, layout, before, record, out);
}
#endif

static Observe *chosen = observe_plain;

bool observe_by(const char *vectors) {
    bool best = !strcmp(vectors, "best");
    Observe *found = best || !strcmp(vectors, "plain") ? observe_plain : NULL;
#ifdef X86_VECTORS
    if (processor_has(HAS_AVX2) && (best || !strcmp(vectors, "avx2"))) found = observe_avx2;
    if (processor_has(HAS_AVX512) && (best || !strcmp(vectors, "avx512"))) found = observe_avx512;
#endif
    if (found) chosen = found;
#ifdef X86_VECTORS
    reach_by = chosen == observe_avx512 ? WITH_AVX512
              : chosen == observe_avx2 ? WITH_AVX2
                                       : WITHOUT_VECTORS;
#endif
    return found;
}

const char *observes_by(void) {
#ifdef X86_VECTORS
    if (chosen == observe_avx512) return "avx512";
    if (chosen == observe_avx2) return "avx2";
#endif
    return "plain";
}

void observe_game(const Observation *observation, const Layout *layout, const Record *before,
                  const Record *record, uint8_t *out) {
    if (before && before->turn == record->turn) return; /* nothing was played */
    chosen(observation, layout, before, record, out);
}
