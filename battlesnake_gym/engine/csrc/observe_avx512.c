/* The default observation, `planes` of the board unturned, for processors with AVX-512.
 *
 * The loops of observe.c look at every cell once for each snake. Here numbers of the snakes are in
 * registers and are looked up by the seat in a cell's mark: so one look is enough for all. */
#include "observe.h"

#ifdef X86_VECTORS

#include <immintrin.h>

enum { LANES = 32, BLOCK = 2 * LANES, MAX_BLOCKS = (MAX_CELLS + BLOCK - 1) / BLOCK };
enum { SEATS_AT_ONCE = 4 }; /* as many snakes of a record fill a register */
_Static_assert(SEATS_AT_ONCE * sizeof(Snake) == sizeof(__m512i), "four snakes are a register");
_Static_assert(offsetof(Snake, length) == 4 && offsetof(Snake, extent) == 8,
               "of a snake's four numbers, the second is its length, half of the third its extent");

/* Numbers of all seats; those of seats that are not taken are of no use, and no mark names them. */
typedef struct {
    __m512i lengths;        /* of 32 bits */
    __m512i extents, tails; /* of 16 bits, in the lower half, as the next; tails: their marks */
    __m512i turns;          /* until the tail's cell is free */
} Seats;

/* 64 cells as all snakes see them: whose they are, what bodies show there, where heads are. */
typedef struct {
    __m512i seats, bodies;
    __mmask64 heads;
    int start;
} Block;

/* A board in blocks, of which the last overlaps the one before. */
typedef struct {
    int count, size; /* size: cells */
    Block blocks[MAX_BLOCKS];
} Board;

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define INLINE static inline __attribute__((always_inline)) AVX512

INLINE __m512i lower_half(__m512i numbers) {
    return _mm512_zextsi256_si512(_mm512_cvtepi32_epi16(numbers));
}

INLINE Seats look_at_seats(const Record *record, int max_snakes) {
    const __m512i second = _mm512_set4_epi32(13, 9, 5, 1), third = _mm512_set4_epi32(14, 10, 6, 2);
    const __m512i seat = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i lengths = _mm512_setzero_si512(), extents = lengths;
    for (int first = 0; first < max_snakes; first += SEATS_AT_ONCE) {
        __mmask16 lanes = (__mmask16)(0xF << first);
        __m512i snakes = _mm512_loadu_si512(record->snakes + first);
        lengths = _mm512_mask_permutexvar_epi32(lengths, lanes, second, snakes);
        extents = _mm512_mask_permutexvar_epi32(extents, lanes, third, snakes);
    }
    extents = _mm512_and_si512(extents, _mm512_set1_epi32(0xFFFF));
    __m512i heads =
        _mm512_add_epi32(_mm512_slli_epi32(seat, CLOCK_BITS), _mm512_set1_epi32(record->clock));
    __m512i turns = _mm512_min_epi32(_mm512_sub_epi32(lengths, extents), _mm512_set1_epi32(FAR));
    return (Seats){
        .lengths = lengths,
        .extents = lower_half(extents),
        .tails = lower_half(
            _mm512_sub_epi32(_mm512_add_epi32(heads, _mm512_set1_epi32(1)), extents)),
        .turns = lower_half(_mm512_add_epi32(turns, _mm512_set1_epi32(1))),
    };
}

/* 32 cells by their marks: whose they are, and what bodies show there; numbers of 16 bits. */
typedef struct {
    __m512i seats, bodies;
} Cells;

INLINE Cells look_at_cells(const uint16_t *marks, const Seats *seats) {
    const __m512i one = _mm512_set1_epi16(1), far = _mm512_set1_epi16(FAR);
    __m512i mark = _mm512_loadu_si512(marks);
    __m512i seat = _mm512_srli_epi16(mark, CLOCK_BITS);
    __m512i extent = _mm512_permutexvar_epi16(seat, seats->extents);
    __m512i from_tail = _mm512_sub_epi16(mark, _mm512_permutexvar_epi16(seat, seats->tails));
    __m512i turns = _mm512_add_epi16(from_tail, _mm512_permutexvar_epi16(seat, seats->turns));
    __mmask32 is_body = _mm512_cmplt_epu16_mask(from_tail, extent);
    __mmask32 is_head = _mm512_cmpeq_epi16_mask(_mm512_add_epi16(from_tail, one), extent);
    __mmask32 is_leaving = _mm512_cmpeq_epi16_mask(turns, one);
    __m512i four = _mm512_slli_epi16(_mm512_min_epu16(turns, far), 2);
    __m512i shown = _mm512_add_epi16(four, _mm512_set1_epi16(BLOCKED));
    shown = _mm512_mask_mov_epi16(shown, is_leaving, _mm512_set1_epi16(LEAVING));
    shown = _mm512_mask_mov_epi16(shown, is_head, _mm512_set1_epi16(A_HEAD));
    return (Cells){seat, _mm512_maskz_mov_epi16(is_body, shown)};
}

INLINE __m512i join(__m512i low, __m512i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(low)),
                              _mm512_cvtepi16_epi8(high), 1);
}

INLINE void look_at_block(const uint16_t *marks, const Seats *seats, Block *block) {
    Cells low = look_at_cells(marks, seats), high = look_at_cells(marks + LANES, seats);
    block->seats = join(low.seats, high.seats);
    block->bodies = join(low.bodies, high.bodies);
    block->heads = _mm512_cmpeq_epi8_mask(block->bodies, _mm512_set1_epi8((char)A_HEAD));
}

/* Of each seat, what its head shows to the one that looks; 0 where it is in the other plane. */
typedef struct {
    __m512i longer, shorter;
} Heads;

INLINE Heads look_at_heads(const Seats *seats, const Record *record, int own) {
    __m512i lead =
        _mm512_sub_epi32(seats->lengths, _mm512_set1_epi32(record->snakes[own].length));
    __m512i difference = _mm512_min_epi32(_mm512_abs_epi32(lead), _mm512_set1_epi32(A_HEAD));
    __m512i shown = _mm512_add_epi32(_mm512_slli_epi32(difference, A_SEGMENT_BITS),
                                     _mm512_set1_epi32(AS_LONG));
    shown = _mm512_min_epi32(shown, _mm512_set1_epi32(A_HEAD));
    __mmask16 shorter = _mm512_cmplt_epi32_mask(lead, _mm512_setzero_si512());
    __mmask16 longer = (__mmask16)~(shorter | 1u << own);
    return (Heads){_mm512_broadcast_i32x4(_mm512_maskz_cvtepi32_epi8(longer, shown)),
                   _mm512_broadcast_i32x4(_mm512_maskz_cvtepi32_epi8(shorter, shown))};
}

INLINE void fill(const Board *board, uint8_t value, uint8_t *plane) {
    __m512i values = _mm512_set1_epi8((char)value);
    for (int i = 0; i < board->count; i++)
        _mm512_storeu_si512(plane + board->blocks[i].start, values);
}

INLINE void paint_food(const Board *board, const uint8_t *food, uint8_t *plane) {
    for (int i = 0; i < board->count; i++) {
        __m512i cells = _mm512_loadu_si512(food + board->blocks[i].start);
        __mmask64 there = _mm512_test_epi8_mask(cells, cells);
        _mm512_storeu_si512(plane + board->blocks[i].start,
                            _mm512_maskz_set1_epi8(there, (char)A_FOOD));
    }
}

INLINE void paint_hazards(const Board *board, const uint8_t *hazards, uint8_t *plane) {
    const __m512i shown = _mm512_broadcast_i32x4(_mm_setr_epi8(
        0, A_LAYER, 2 * A_LAYER, (char)(3 * A_LAYER), (char)(4 * A_LAYER), (char)(5 * A_LAYER), 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0));
    for (int i = 0; i < board->count; i++) {
        __m512i layers = _mm512_min_epu8(_mm512_loadu_si512(hazards + board->blocks[i].start),
                                         _mm512_set1_epi8(MAX_LAYERS));
        _mm512_storeu_si512(plane + board->blocks[i].start, _mm512_shuffle_epi8(shown, layers));
    }
}

/* The four planes that are new with every turn. */
INLINE void paint_snakes(const Board *board, const Heads *heads, int own, uint8_t *planes) {
    __m512i own_seat = _mm512_set1_epi8((char)own);
    for (int i = 0; i < board->count; i++) {
        const Block *block = &board->blocks[i];
        __m512i seats = block->seats, bodies = block->bodies;
        __mmask64 is_own = _mm512_cmpeq_epi8_mask(seats, own_seat), head = block->heads;
        uint8_t *to = planes + block->start;
        int size = board->size;
        _mm512_storeu_si512(to, _mm512_maskz_mov_epi8(is_own, bodies));
        _mm512_storeu_si512(to + size, _mm512_maskz_mov_epi8(~is_own, bodies));
        _mm512_storeu_si512(to + 2 * size, _mm512_maskz_shuffle_epi8(head, heads->longer, seats));
        _mm512_storeu_si512(to + 3 * size, _mm512_maskz_shuffle_epi8(head, heads->shorter, seats));
    }
}

INLINE void look_at_board(const uint16_t *marks, const Seats *seats, Board *board) {
    for (int i = 0; i < board->count; i++) {
        int start = i * BLOCK < board->size - BLOCK ? i * BLOCK : board->size - BLOCK;
        look_at_block(marks + start, seats, &board->blocks[i]);
        board->blocks[i].start = start;
    }
}

INLINE void paint_planes(int blocks, const Layout *layout, const Record *before,
                         const Record *record, uint8_t *out, size_t stride) {
    const int size = record->width * record->height;
    const Seats seats = look_at_seats(record, layout->max_snakes);
    Board board;
    board.size = size;
    board.count = blocks;
    look_at_board(record_marks(layout, record), &seats, &board);
    const uint8_t *food = record_food(layout, record), *hazards = record_hazards(layout, record);
    const uint8_t turn = turn_value(record->turn);
    const bool new_food = !before || before->food_changes != record->food_changes;
    const bool new_hazards = !before || before->hazard_changes != record->hazard_changes;
    const bool new_turn = !before || turn != turn_value(before->turn);
    uint8_t nowhere[MAX_CELLS];
    for (unsigned rest = record->alive_mask; rest; rest &= rest - 1) {
        const int own = __builtin_ctz(rest);
        const Snake *snake = &record->snakes[own], *was = before ? &before->snakes[own] : NULL;
        uint8_t *planes = out + stride * (size_t)own;
        uint8_t health = health_value(snake->health), length = length_value(snake->length);
        bool new_health = !before || health != health_value(was->health);
        uint8_t *health_plane = either(new_health, planes + HEALTH_PLANE * size, nowhere);
        Heads heads = look_at_heads(&seats, record, own);
        if (!before) fill(&board, 255, planes + BOARD_PLANE * size);
        if (new_food) paint_food(&board, food, planes + FOOD_PLANE * size);
        if (new_hazards) paint_hazards(&board, hazards, planes + HAZARDS_PLANE * size);
        if (new_turn) fill(&board, turn, planes + TURN_PLANE * size);
        fill(&board, health, health_plane);
        if (!before || length != length_value(was->length))
            fill(&board, length, planes + LENGTH_PLANE * size);
        paint_snakes(&board, &heads, own, planes + OWN_BODY_PLANE * size);
    }
}

AVX512 void paint_planes_avx512(const Layout *layout, const Record *before, const Record *record,
                                uint8_t *out, size_t stride) {
    int blocks = (record->width * record->height + BLOCK - 1) / BLOCK;
    if (blocks == 2) /* 9x9 to 11x11: in registers */
        paint_planes(2, layout, before, record, out, stride);
    else
        paint_planes(blocks, layout, before, record, out, stride);
}

#endif
