/* The planes of `planes` that every turn makes anew, for processors with AVX-512.
 *
 * The loops of observe.c look at every cell once for each snake. Here numbers of the snakes stand in
 * registers and are looked up by the seat in a cell's mark: so one look is enough for all. */
#include "observe.h"

#ifdef OBSERVE_AVX512

#include <immintrin.h>

enum { LANES = 32, BLOCK = 2 * LANES, MAX_BLOCKS = (MAX_CELLS + BLOCK - 1) / BLOCK };
enum { SEATS_AT_ONCE = 4 }; /* as many snakes of a record fill a register */
_Static_assert(SEATS_AT_ONCE * sizeof(Snake) == sizeof(__m512i), "four snakes are a register");
_Static_assert(offsetof(Snake, length) == 4 && offsetof(Snake, extent) == 8,
               "lengths are the second, extents the lower half of the third of four numbers");

/* Numbers of all seats; those of seats that are not taken are of no use, and no mark names them. */
typedef struct {
    __m512i lengths;        /* of 32 bits */
    __m512i extents, tails; /* of 16 bits, in the lower half, as the next; tails: their marks */
    __m512i turns;          /* until the tail's cell is free */
} Seats;

/* Cells of a board as all snakes see them: whose they are, what bodies show, where heads are. */
typedef struct {
    __m512i seats[MAX_BLOCKS], bodies[MAX_BLOCKS];
    __mmask64 heads[MAX_BLOCKS];
    int starts[MAX_BLOCKS], count;
} Blocks;

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define INLINE static inline __attribute__((always_inline)) AVX512

INLINE __m512i lower_half(__m512i numbers) {
    return _mm512_zextsi256_si512(_mm512_cvtepi32_epi16(numbers));
}

INLINE Seats look_at_seats(const Record *record, int max_snakes) {
    const __m512i one_of_four = _mm512_set4_epi32(12, 8, 4, 0);
    const __m512i seat = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i lengths = _mm512_setzero_si512(), extents = lengths;
    for (int first = 0; first < max_snakes; first += SEATS_AT_ONCE) {
        __mmask16 lanes = (__mmask16)(0xF << first);
        __m512i snakes = _mm512_loadu_si512(record->snakes + first);
        lengths = _mm512_mask_permutexvar_epi32(
            lengths, lanes, _mm512_add_epi32(one_of_four, _mm512_set1_epi32(1)), snakes);
        extents = _mm512_mask_permutexvar_epi32(
            extents, lanes, _mm512_add_epi32(one_of_four, _mm512_set1_epi32(2)), snakes);
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

INLINE void look_at_block(const uint16_t *marks, const Seats *seats, int block, Blocks *blocks) {
    Cells low = look_at_cells(marks, seats), high = look_at_cells(marks + LANES, seats);
    __m512i bodies = join(low.bodies, high.bodies);
    blocks->seats[block] = join(low.seats, high.seats);
    blocks->bodies[block] = bodies;
    blocks->heads[block] = _mm512_cmpeq_epi8_mask(bodies, _mm512_set1_epi8((char)A_HEAD));
}

/* Of each seat, what its head shows to the one that looks; 0 where it stands in the other plane. */
typedef struct {
    __m512i longer, shorter;
} Heads;

INLINE Heads look_at_heads(const Seats *seats, const Record *record, int own) {
    __m512i lead =
        _mm512_sub_epi32(seats->lengths, _mm512_set1_epi32(record->snakes[own].length));
    __m512i difference = _mm512_min_epi32(_mm512_abs_epi32(lead), _mm512_set1_epi32(16));
    __m512i shown =
        _mm512_add_epi32(_mm512_slli_epi32(difference, 3), _mm512_set1_epi32(BLOCKED));
    shown = _mm512_min_epi32(shown, _mm512_set1_epi32(A_HEAD));
    __mmask16 shorter = _mm512_cmplt_epi32_mask(lead, _mm512_setzero_si512());
    __mmask16 longer = (__mmask16)~(shorter | 1u << own);
    return (Heads){_mm512_broadcast_i32x4(_mm512_maskz_cvtepi32_epi8(longer, shown)),
                   _mm512_broadcast_i32x4(_mm512_maskz_cvtepi32_epi8(shorter, shown))};
}

INLINE void paint_snake(const Blocks *blocks, const Heads *heads, int own, int size, uint8_t *out) {
    __m512i own_seat = _mm512_set1_epi8((char)own);
    for (int block = 0; block < blocks->count; block++) {
        __m512i seats = blocks->seats[block], bodies = blocks->bodies[block];
        __mmask64 is_own = _mm512_cmpeq_epi8_mask(seats, own_seat), head = blocks->heads[block];
        uint8_t *to = out + blocks->starts[block];
        _mm512_storeu_si512(to, _mm512_maskz_mov_epi8(is_own, bodies));
        _mm512_storeu_si512(to + size, _mm512_maskz_mov_epi8(~is_own, bodies));
        _mm512_storeu_si512(to + 2 * size, _mm512_maskz_shuffle_epi8(head, heads->longer, seats));
        _mm512_storeu_si512(to + 3 * size, _mm512_maskz_shuffle_epi8(head, heads->shorter, seats));
    }
}

AVX512 void paint_snakes_avx512(const Layout *layout, const Record *record, uint8_t *out,
                                size_t stride) {
    const uint16_t *marks = record_marks(layout, record);
    int size = record->width * record->height;
    Seats seats = look_at_seats(record, layout->max_snakes);
    Blocks blocks;
    blocks.count = (size + BLOCK - 1) / BLOCK;
    for (int block = 0; block < blocks.count; block++) {
        int start = block * BLOCK < size - BLOCK ? block * BLOCK : size - BLOCK;
        blocks.starts[block] = start;
        look_at_block(marks + start, &seats, block, &blocks);
    }
    for (unsigned rest = record->alive_mask; rest; rest &= rest - 1) {
        int own = __builtin_ctz(rest);
        Heads heads = look_at_heads(&seats, record, own);
        paint_snake(&blocks, &heads, own, size, out + stride * (size_t)own);
    }
}

#endif
