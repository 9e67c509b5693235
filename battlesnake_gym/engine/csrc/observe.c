/* Observation planes, as defined in battlesnake_gym/mdp/observations.py. The loops that compute the
 * planes are written for automatic vectorization by the compiler. After a turn, only changed planes
 * are written, because memory writes dominate the cost when the observations of all games exceed
 * the caches. */
#include "observe.h"

#include <stdlib.h>
#include <string.h>

#include "limited_view.h"
#include "territory.h"

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
enum { OUTSIDE = 255, MAX_PLANES = PLANES + NUM_TERRITORY_PLANES };

/* Shared data is computed in whole blocks of cells, so up to BLOCK - 1 entries behind the planes of
 * a record are read (PLANE_SLACK). Observations are written exactly: the last block of a plane
 * overlaps the previous block. */
enum { BLOCK = 64 };
_Static_assert((int)BLOCK <= (int)PLANE_SLACK, "a block may reach beyond a record");
typedef uint8_t Block __attribute__((vector_size(BLOCK)));
/* Block type without alignment, because memcpy would compile to several smaller stores. */
typedef uint8_t LooseBlock __attribute__((vector_size(BLOCK), aligned(1), may_alias));

/* Returns a number of cells rounded up to whole blocks. */
INLINE int span_of(int cells) { return (cells + BLOCK - 1) & -BLOCK; }

static Isa territory_isa = ISA_PLAIN; /* always equal to the instruction set selected below */

static void territory_planes(const Layout *layout, const Record *record, size_t stride, int size,
                             uint8_t *out) {
    int cells = record->width * record->height;
    (cells <= 128   ? territory_planes_small
     : cells <= 384 ? territory_planes_medium
                    : territory_planes_large)(territory_isa, layout, record, stride, size, out);
}

/* One plane of a game, with the size of the board. */
typedef struct {
    _Alignas(BLOCK) uint8_t cells[MAX_CELLS + BLOCK];
} Plane;

/* Data shared by the observations of all snakes of a game. */
typedef struct {
    int cells, span; /* number of board cells; the number rounded up to whole blocks */
    Plane food, hazards, all_bodies;
    Plane bodies[MAX_SNAKES]; /* planes of living snakes */
    /* Planes of `span` bytes each. */
    uint8_t territory[MAX_SNAKES * NUM_TERRITORY_PLANES * (MAX_CELLS + BLOCK)];
} Scene;

/* Position of the board in a plane: cell (x, y) is at base + y * step_y + x * step_x. */
typedef struct {
    int base, step_x, step_y;
} Placement;

int observation_planes(int values) {
    if (values == VALUES_TERRITORY) return PLANES + NUM_TERRITORY_PLANES;
    if (values == VALUES_MEMORY) return PLANES_WITH_MEMORY;
    return values == VALUES_PLANES ? PLANES : STARTER_PLANES;
}

INLINE bool is_starter(int values) { return values == VALUES_51S || values == VALUES_NUM; }

bool observation_fits(const Observation *observation, const Layout *layout) {
    int width = layout->max_width, height = layout->max_height;
    int rows = observation->rows, columns = observation->columns;
    if (observation->view == VIEW_BOARD) return rows >= height && columns >= width;
    if (observation->view == VIEW_HEAD) return rows >= 2 * height - 1 && columns >= 2 * width - 1;
    return rows == columns && rows % 2 == 1 && rows >= 2 * max_int(width, height) - 1;
}

/* Planes that may stay unchanged on a turn. All other planes are rewritten every turn. */
enum { NEW_FOOD = 1, NEW_HAZARDS = 2, NEW_BOARD = 4, ALL_NEW = 7 };

/* Returns the NEW_... planes that changed since `before`. */
INLINE int news_of(const Record *before, const Record *record) {
    if (!before) return ALL_NEW;
    return NEW_FOOD * (before->food_changes != record->food_changes) |
           NEW_HAZARDS * (before->hazard_changes != record->hazard_changes);
}

/* Encoding of a body. The cells of the body are numbered 1, 2, ..., up to `most`, from the tail for
 * `planes` and from the head for other kinds. The value of a cell is base + slope * number. */
typedef struct {
    uint16_t mark; /* mark of the cell with number 1 */
    uint16_t extent, most;
    uint8_t base;
    uint8_t leaving; /* number encoded as FREE_NEXT_TURN_VALUE; 0: none */
} Count;

INLINE int slope_of(int values) {
    return !is_starter(values) ? 4 : values == VALUES_NUM ? 5 : 50;
}

INLINE Count count_of(int values, const Record *record, int seat) {
    const Snake *snake = &record->snakes[seat];
    uint16_t extent = snake->extent, head = (uint16_t)((seat << CLOCK_BITS) + record->clock);
    if (is_starter(values))
        return (Count){head, extent, values == VALUES_NUM ? 50 : 1, 0, 0};
    int stacked = min_int(snake->length - extent, MAX_BLOCKED_TURNS - 1);
    return (Count){(uint16_t)(head - extent + 1), extent, (uint16_t)(MAX_BLOCKED_TURNS - stacked),
                   (uint8_t)(BLOCKED_VALUE + 4 * stacked), stacked == 0};
}

/* Writes the cell numbers of one body (see `Count`) in a block, and 0 for all other cells. */
INLINE void count_block(int values, const uint16_t *restrict marks, Count body,
                        uint8_t *restrict counts) {
    uint16_t last = (uint16_t)(body.most - 1);
    for (int cell = 0; cell < BLOCK; cell++) {
        /* Marks of other snakes differ in the high bits, so their distance is large. */
        uint16_t distance = (uint16_t)(is_starter(values) ? body.mark - marks[cell]
                                                          : marks[cell] - body.mark);
        uint16_t near = distance < last ? distance : last;
        uint16_t is_body = (uint16_t)-(distance < body.extent);
        counts[cell] = (uint8_t)((uint16_t)(near + 1) & is_body);
    }
}

/* Writes the plane of one body, and adds the cells of the body to the plane of all bodies, which do
 * not overlap. */
INLINE void make_body(int values, const uint16_t *restrict marks, int span, Count body,
                      uint8_t *restrict own, uint8_t *restrict all) {
    for (int start = 0; start < span; start += BLOCK, own += BLOCK, all += BLOCK) {
        _Alignas(BLOCK) uint8_t counts[BLOCK];
        count_block(values, marks + start, body, counts);
        for (int cell = 0; cell < BLOCK; cell++) {
            uint8_t count = counts[cell];
            uint8_t value = (uint8_t)(body.base + slope_of(values) * count);
            if (!is_starter(values)) value = count == body.leaving ? FREE_NEXT_TURN_VALUE : value;
            value = count ? value : 0;
            own[cell] = value;
            all[cell] |= value;
        }
    }
}

/* Writes min(layers, most) * step for every cell. */
INLINE void make_layers(const uint8_t *restrict layers, int span, uint8_t most, uint8_t step,
                        uint8_t *restrict out) {
    for (int cell = 0; cell < span; cell++) {
        uint8_t count = layers[cell] < most ? layers[cell] : most;
        out[cell] = (uint8_t)(count * step);
    }
}

/* Writes the planes of all living bodies. */
INLINE void make_bodies(int values, const Layout *layout, const Record *record, Scene *scene) {
    uint8_t *all = scene->all_bodies.cells;
    memset(all, 0, (size_t)scene->span);
    for (unsigned rest = record->alive_mask; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        uint8_t *own = scene->bodies[seat].cells;
        make_body(values, record_marks(layout, record), scene->span,
                  count_of(values, record, seat), own, all);
        if (!head_is_visible(&record->snakes[seat])) continue;
        int head = cell_at(record, record->snakes[seat].x, record->snakes[seat].y);
        if (!is_starter(values)) own[head] = all[head] = HEAD_VALUE;
        if (values == VALUES_51S) own[head] = all[head] = 250;
    }
}

/* Computes the shared data that changed on this turn. */
INLINE void make_scene(int values, const Layout *layout, const Record *record, int news,
                       Scene *scene) {
    scene->cells = record->width * record->height;
    scene->span = span_of(scene->cells);
    bool starter = is_starter(values);
    make_bodies(values, layout, record, scene);
    if (news & NEW_FOOD)
        make_layers(record_food(layout, record), scene->span, 1, starter ? 250 : FOOD_VALUE,
                    scene->food.cells);
    if (news & NEW_HAZARDS)
        make_layers(record_hazards(layout, record), scene->span, MAX_LAYERS,
                    starter ? 50 : HAZARD_LAYER_VALUE, scene->hazards.cells);
}

/* Fills `size` bytes; `size` is at least BLOCK. */
INLINE void fill_plane(uint8_t value, int size, uint8_t *to) {
    Block block = (Block){0} + value;
    for (int start = 0; start < size - BLOCK; start += BLOCK) *(LooseBlock *)(to + start) = block;
    *(LooseBlock *)(to + size - BLOCK) = block;
}

/* The operation is a macro, because a function that returns 32 bytes would need another calling
 * convention. */
#define BLOCK_AT(cells) (*(const LooseBlock *)(cells))

/* Copies a plane of `size` bytes; `size` is at least BLOCK. */
INLINE void copy_plane(const Plane *plane, int size, uint8_t *to) {
    const uint8_t *from = plane->cells;
    int last = size - BLOCK;
    for (int start = 0; start < last; start += BLOCK)
        *(LooseBlock *)(to + start) = BLOCK_AT(from + start);
    *(LooseBlock *)(to + last) = BLOCK_AT(from + last);
}

/* Writes the bodies of all other snakes as an exclusive or, because bodies do not overlap. */
INLINE void others_plane(const Plane *all, const Plane *own, int size, uint8_t *to) {
    int last = size - BLOCK;
    for (int start = 0; start < last; start += BLOCK)
        *(LooseBlock *)(to + start) = BLOCK_AT(all->cells + start) ^ BLOCK_AT(own->cells + start);
    *(LooseBlock *)(to + last) = BLOCK_AT(all->cells + last) ^ BLOCK_AT(own->cells + last);
}

/* Writes the head of another snake. */
INLINE void paint_head(const Record *record, const Snake *other, int own, int size,
                       uint8_t *planes) {
    int lead = other->length - record->snakes[own].length;
    uint8_t *heads = planes + (lead < 0 ? SHORTER_HEADS_PLANE : LONGER_HEADS_PLANE) * size;
    int shown = EQUAL_LENGTH_VALUE + ((lead < 0 ? -lead : lead) << SEGMENT_SHIFT);
    heads[cell_at(record, other->x, other->y)] = (uint8_t)min_int(255, shown);
}

/* Writes the planes that change every turn. These planes are adjacent and are written in order.
 * Most of the time is spent on reading cache lines that are only partly overwritten. */
INLINE void paint_snakes(const Record *record, const Scene *scene, int own, int size,
                         uint8_t *planes) {
    copy_plane(&scene->bodies[own], size, planes + OWN_BODY_PLANE * size);
    others_plane(&scene->all_bodies, &scene->bodies[own], size, planes + OTHER_BODIES_PLANE * size);
    fill_plane(0, 2 * size, planes + LONGER_HEADS_PLANE * size);
    for (unsigned rest = record->alive_mask & ~(1u << own); rest; rest &= rest - 1) {
        const Snake *other = &record->snakes[__builtin_ctz(rest)];
        if (head_is_visible(other)) paint_head(record, other, own, size, planes);
    }
}

/* Writes the changed planes of one snake that show neither snakes nor hidden cells, `size` bytes
 * each; `planes` must already contain the unchanged planes. */
INLINE void paint_numbers(const Record *before, const Record *record, const Scene *scene, int news,
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
    fill_plane(health, size, select_branchless(new_health, planes + HEALTH_PLANE * size, nowhere));
    if (new_board || length != length_value(was->length))
        fill_plane(length, size, planes + LENGTH_PLANE * size);
}

/* Writes the changed planes of one snake; see paint_numbers(). */
INLINE void paint_planes(const Record *before, const Record *record, const Scene *scene, int news,
                         int own, int size, uint8_t *planes) {
    paint_numbers(before, record, scene, news, own, size, planes);
    paint_snakes(record, scene, own, size, planes);
}

#include "limited_planes.h"

INLINE void paint_starter_planes(const Record *record, const Scene *scene, int news, int own,
                                 int size, uint8_t *planes) {
    const Snake *snake = &record->snakes[own];
    const Plane *body = &scene->bodies[own];
    uint8_t health = (uint8_t)(min_int(MAX_HEALTH, max_int(0, snake->health)) * 255 / MAX_HEALTH);
    uint8_t length = (uint8_t)(5 * min_int(50, snake->length));
    uint8_t turn = (uint8_t)min_int(255, record->turn / 4);
    if (news & NEW_FOOD) copy_plane(&scene->food, size, planes + STARTER_FOOD * size);
    copy_plane(body, size, planes + STARTER_OWN * size);
    others_plane(&scene->all_bodies, body, size, planes + STARTER_OTHERS * size);
    if (news & NEW_HAZARDS) copy_plane(&scene->hazards, size, planes + STARTER_HAZARDS * size);
    fill_plane(health, size, planes + STARTER_HEALTH * size);
    fill_plane(length, size, planes + STARTER_LENGTH * size);
    fill_plane(turn, size, planes + STARTER_TURN * size);
}

/* Returns the placement of the board in the planes of a snake. */

static Placement placement_of(const Observation *observation, const Record *record, int seat) {
    int rows = observation->rows, columns = observation->columns;
    if (observation->view == VIEW_BOARD) {
        int below = (rows - record->height) / 2, left = (columns - record->width) / 2;
        return (Placement){below * columns + left, 1, columns};
    }
    /* A rotation of the board changes the directions of "right" and "up". */
    const int steps[4][2] = {{1, columns}, {-1, -columns}, {-columns, 1}, {columns, -1}};
    int facing = observation->view == VIEW_FACING ? record->facing[seat] : UP;
    const Snake *snake = &record->snakes[seat];
    Placement placement = {0, steps[facing][0], steps[facing][1]};
    placement.base = (rows / 2) * columns + columns / 2 - snake->x * placement.step_x -
                     snake->y * placement.step_y;
    return placement;
}

/* Returns whether all cells of a plane have one value, including cells outside the board. */
INLINE bool is_constant(int values, int plane) {
    if (!is_starter(values)) return plane >= TURN_PLANE && plane <= LENGTH_PLANE;
    return plane >= STARTER_HEALTH;
}

/* Copies a row with two overlapping fixed-size copies, which is ten times as fast. */
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

/* Returns whether the planes have exactly the size of the board. */
INLINE bool is_whole(const Observation *observation, const Record *record) {
    return observation->view == VIEW_BOARD && observation->rows == record->height &&
           observation->columns == record->width && record->width * record->height >= BLOCK;
}

/* Paints the planes of the board into a buffer and copies the planes into the view. */
INLINE void paint_view(int values, const Observation *observation, const Record *record,
                       const Scene *scene, int seat, uint8_t *out) {
    uint8_t board[MAX_PLANES * (MAX_CELLS + BLOCK)];
    paint(values, NULL, record, scene, ALL_NEW, seat, scene->span, board);
    if (values == VALUES_TERRITORY) {
        int territory_bytes = NUM_TERRITORY_PLANES * scene->span;
        memcpy(board + PLANES * scene->span, scene->territory + seat * territory_bytes,
               (size_t)territory_bytes);
    }
    Placement placement = placement_of(observation, record, seat);
    int size = observation->rows * observation->columns;
    int outside = is_starter(values) ? OUTSIDE : 0;
    int painted = values == VALUES_MEMORY ? PLANES : observation_planes(values);
    for (int plane = 0; plane < painted; plane++) {
        const uint8_t *from = board + plane * scene->span;
        bool constant = is_constant(values, plane);
        memset(out + plane * size, constant ? from[0] : outside, (size_t)size);
        if (constant) continue;
        place(&placement, from, record->width, record->height, out + plane * size);
    }
}

/* Writes zeros for the seats eliminated on this turn, or for all eliminated seats if `before` is
 * NULL. */
INLINE void clear_the_dead(const Layout *layout, const Record *before, const Record *record,
                           size_t size, uint8_t *out) {
    unsigned shown = before ? before->alive_mask : (1u << layout->max_snakes) - 1;
    for (unsigned rest = shown & ~(unsigned)record->alive_mask; rest; rest &= rest - 1)
        memset(out + size * (size_t)__builtin_ctz(rest), 0, size);
}

/* Value of the parameter `only` that selects all living seats. */
enum { ALL_SEATS = -1 };

/* Copies the territory planes of a seat from the shared data to planes of the size of the board. */
INLINE void copy_territory(const Scene *scene, int seat, uint8_t *planes) {
    const uint8_t *from = scene->territory + seat * NUM_TERRITORY_PLANES * scene->span;
    for (int plane = 0; plane < NUM_TERRITORY_PLANES; plane++)
        memcpy(planes + plane * scene->cells, from + plane * scene->span, (size_t)scene->cells);
}

INLINE void observe_values(int values, const Observation *observation, const Layout *layout,
                           const Record *before, const Record *record, int only, uint8_t *out) {
    size_t size = observation_size(observation);
    size_t frame = (size_t)(observation_planes(values) * observation->rows * observation->columns);
    bool whole = is_whole(observation, record), all = only == ALL_SEATS;
    int news = whole && all && observation->frame_stack == 1 ? news_of(before, record) : ALL_NEW;
    Scene scene;
    make_scene(values, layout, record, news, &scene);
    if (all) clear_the_dead(layout, before, record, size, out);
    if (values == VALUES_TERRITORY && !(whole && all))
        territory_planes(layout, record, (size_t)(NUM_TERRITORY_PLANES * scene.span), scene.span,
                         scene.territory);
    for (unsigned rest = all ? record->alive_mask : 1u << only; rest; rest &= rest - 1) {
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
        if (values == VALUES_TERRITORY && whole && !all)
            copy_territory(&scene, seat, seen + PLANES * scene.cells);
    }
    if (values == VALUES_TERRITORY && whole && all)
        territory_planes(layout, record, size, scene.cells, out + PLANES * scene.cells);
}

/* Prefetches the first cache lines and the last cache line of a plane; the processor prefetches the
 * lines between them. */
INLINE void prefetch_plane(const uint8_t *plane, int size) {
    enum { LINE = 64 };
    __builtin_prefetch(plane, 1);
    __builtin_prefetch(plane + LINE, 1);
    __builtin_prefetch(plane + size - 1, 1);
}

void prefetch_planes(const Observation *observation, const Record *record, uint8_t *out) {
    if (observation->values != VALUES_PLANES || observation->view != VIEW_BOARD) return;
    int size = observation->rows * observation->columns;
    size_t stride = (size_t)(PLANES * size * observation->frame_stack);
    bool new_turn = turn_will_change(record->turn);
    for (unsigned rest = record->alive_mask; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        uint8_t *planes = out + stride * (size_t)seat;
        bool new_health = health_will_change(record->snakes[seat].health);
        if (new_turn) prefetch_plane(planes + TURN_PLANE * size, size);
        prefetch_plane(select_branchless(new_health, planes + HEALTH_PLANE * size,
                                         planes + OWN_BODY_PLANE * size),
                       size);
    }
}

/* Writes the planes of a game with limited view on a whole board. */
INLINE void observe_limited_planes(const Observation *observation, const Game *game,
                                   const Record *before, uint8_t *out) {
    const Record *record = game->record;
    size_t size = observation_size(observation);
    int news = news_of(before, record) | NEW_FOOD;
    Scene scene;
    make_scene(VALUES_PLANES, game->layout, record, news, &scene);
    for (unsigned rest = record->alive_mask; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        paint_limited_planes(game, before, &scene, news, seat, scene.cells,
                             out + size * (size_t)seat);
    }
}

/* Writes the observations of one game, or of the seat `only`; each kind of planes gets specialized
 * code. If `limited` is set, the function writes what all seats of this game see. */
INLINE void observe(const Observation *observation, const Layout *layout, const Record *before,
                    const Record *record, int only, const Game *limited, uint8_t *out) {
    if (limited)
        observe_limited_planes(observation, limited, before, out);
    else if (observation->values == VALUES_PLANES)
        observe_values(VALUES_PLANES, observation, layout, before, record, only, out);
    else if (observation->values == VALUES_MEMORY)
        observe_values(VALUES_MEMORY, observation, layout, before, record, only, out);
    else if (observation->values == VALUES_TERRITORY)
        observe_values(VALUES_TERRITORY, observation, layout, before, record, only, out);
    else if (observation->values == VALUES_51S)
        observe_values(VALUES_51S, observation, layout, before, record, only, out);
    else
        observe_values(VALUES_NUM, observation, layout, before, record, only, out);
}

typedef void Observe(const Observation *observation, const Layout *layout, const Record *before,
                     const Record *record, int only, const Game *limited, uint8_t *out);

/* X86-64 guarantees vectors of 16 bytes; nearly all processors have 32-byte vectors and many have
 * 64-byte vectors. The loops above are compiled for each size, and the import selects the largest
 * size that the processor supports. */
static void observe_plain(const Observation *observation, const Layout *layout,
                          const Record *before, const Record *record, int only,
                          const Game *limited, uint8_t *out) {
    observe(observation, layout, before, record, only, limited, out);
}

#ifdef X86_VECTORS
__attribute__((target("avx2"))) static void observe_avx2(
    const Observation *observation, const Layout *layout, const Record *before,
    const Record *record, int only, const Game *limited, uint8_t *out) {
    observe(observation, layout, before, record, only, limited, out);
}

#ifdef __clang__
#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl"), min_vector_width(512)))
#else
#define WIDE __attribute__((target("avx512f,avx512bw,avx512vl,prefer-vector-width=512")))
#endif
WIDE static void observe_avx512(const Observation *observation, const Layout *layout,
                                const Record *before, const Record *record, int only,
                                const Game *limited, uint8_t *out) {
    observe(observation, layout, before, record, only, limited, out);
}
#endif

static Observe *selected = observe_plain;

bool set_observation_isa(const char *isa) {
    bool best = !strcmp(isa, "best");
    Observe *found = best || !strcmp(isa, "plain") ? observe_plain : NULL;
#ifdef X86_VECTORS
    if (cpu_has(HAS_AVX2) && (best || !strcmp(isa, "avx2"))) found = observe_avx2;
    if (cpu_has(HAS_AVX512) && (best || !strcmp(isa, "avx512"))) found = observe_avx512;
#endif
    if (found) selected = found;
    fill_diagonals();
#ifdef X86_VECTORS
    territory_isa = selected == observe_avx512 ? ISA_AVX512
                    : selected == observe_avx2 ? ISA_AVX2
                                               : ISA_PLAIN;
#endif
    return found;
}

const char *get_observation_isa(void) {
#ifdef X86_VECTORS
    if (selected == observe_avx512) return "avx512";
    if (selected == observe_avx2) return "avx2";
#endif
    return "plain";
}

/* Updates the memory planes of the snake at `seat`, which sees the cells within `radius` and all
 * cells with food in its planes. If `is_new`, the memory is empty before the update. */
static void update_memory(const Observation *observation, const Record *record, int seat,
                          int radius, bool is_new, uint8_t *planes) {
    const Snake *own = &record->snakes[seat];
    Placement placement = placement_of(observation, record, seat);
    int size = observation->rows * observation->columns;
    const uint8_t *food = planes + FOOD_PLANE * size;
    const uint8_t *bodies = planes + OTHER_BODIES_PLANE * size;
    uint8_t *seen_food = planes + SEEN_FOOD_PLANE * size;
    uint8_t *seen_bodies = planes + SEEN_BODIES_PLANE * size;
    uint8_t *recency = planes + RECENCY_PLANE * size;
    if (is_new) memset(seen_food, 0, (size_t)((PLANES_WITH_MEMORY - PLANES) * size));
    for (int y = 0; y < record->height; y++) {
        int reach = radius - abs(y - own->y);
        for (int x = 0; x < record->width; x++) {
            int cell = placement.base + y * placement.step_y + x * placement.step_x;
            if (abs(x - own->x) <= reach || food[cell]) {
                seen_food[cell] = food[cell];
                seen_bodies[cell] = bodies[cell];
                recency[cell] = MAX_RECENCY;
            } else if (recency[cell]) {
                recency[cell] = (uint8_t)max_int(MIN_RECENCY, recency[cell] - RECENCY_STEP);
            }
        }
    }
}

/* Updates the memory planes of all living snakes, if the observation has such planes. */
static void update_memories(const Observation *observation, const Record *before,
                            const Record *record, int radius, uint8_t *out) {
    if (observation->values != VALUES_MEMORY) return;
    for (unsigned rest = record->alive_mask; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        update_memory(observation, record, seat, radius, !before,
                      out + observation_size(observation) * (size_t)seat);
    }
}

void observe_game(const Observation *observation, const Layout *layout, const Record *before,
                  const Record *record, uint8_t *out) {
    if (before && before->turn == record->turn) return; /* no turn was played */
    selected(observation, layout, before, record, ALL_SEATS, NULL, out);
    update_memories(observation, before, record, record->width + record->height, out);
}

/* Writes the observations of all seats of one game with limited view from one record per seat. */
static void observe_limited_records(const Observation *observation, const Game *game,
                                    const Record *before, uint8_t *out) {
    RecordBuffer view;
    for (unsigned rest = game->record->alive_mask; rest; rest &= rest - 1) {
        int seat = __builtin_ctz(rest);
        limit_view(game, seat, &view.record);
        selected(observation, game->layout, before, &view.record, seat, NULL, out);
    }
}

void observe_limited_game(const Observation *observation, const Game *game, const Record *before,
                          uint8_t *out) {
    const Record *record = game->record;
    if (before && before->turn == record->turn) return; /* no turn was played */
    clear_the_dead(game->layout, before, record, observation_size(observation), out);
    int values = observation->values;
    if ((values == VALUES_PLANES || values == VALUES_MEMORY) && observation->frame_stack == 1 &&
        is_whole(observation, record))
        selected(observation, game->layout, before, record, ALL_SEATS, game, out);
    else
        observe_limited_records(observation, game, before, out);
    update_memories(observation, before, record, game->rules->view_reach - 1, out);
}
