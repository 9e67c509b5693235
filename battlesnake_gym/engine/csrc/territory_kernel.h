/* Territory planes on boards of up to 64 * WORDS cells, as defined in
 * battlesnake_gym/mdp/observations.py. This template is included after view_kernel.h by files that
 * define TERRITORY, the name of the entry function.
 *
 * The four moves of a seat require four floods that differ only in the seat's first cell; each
 * flood uses one vector lane. The turn on which a cell is reached is stored as LEVELS sets, one
 * per bit of the plane value. This format is cheaper than a byte per cell. */
#include "territory.h"

#pragma GCC diagnostic ignored "-Wpsabi" /* all functions with vector arguments are inlined */

typedef uint64_t Lanes __attribute__((vector_size(32)));
#define WORD Lanes
#define SET Four
#define WITH(name) four_##name
#include "bitset_template.h"

static const Rules standard_rules; /* observations do not depend on the rules */

/* A cell value is level << 3 | 7. The level is 31 for cells reached on the next turn, and decreases
 * by 1 per turn down to 1. */
enum { LEVELS = 5, FIRST_LEVEL = 31 };
_Static_assert(TERRITORY_MAX == (FIRST_LEVEL << 3 | 7) && TERRITORY_STEP == 1 << 3 &&
                   TERRITORY_MIN == (1 << 3 | 7),
               "");

/* Copies a word to every lane. */
ALWAYS Lanes in_all(uint64_t word) { return (Lanes){0} + word; }

/* Copies a set to every lane. */
ALWAYS Four in_all_words(const Bits *cells) {
    Four r;
    for (int i = 0; i < WORDS; i++) r.w[i] = in_all(cells->w[i]);
    return r;
}

/* Starting fronts of the living snakes, and words of all ones for each opponent to which a snake
 * loses a contested cell. */
typedef struct {
    int count, seats[MAX_SNAKES];
    Bits fronts[MAX_SNAKES];
    uint64_t yields[MAX_SNAKES][MAX_SNAKES];
} Start;

/* Fills the starting fronts. */
static void init_race_starts(const View *view, Start *start) {
    const Snake *snakes = view->record->snakes;
    start->count = 0;
    for (unsigned rest = view->record->alive_mask; rest; rest &= rest - 1)
        start->seats[start->count++] = __builtin_ctz(rest);
    for (int i = 0; i < start->count; i++) {
        start->fronts[i] = view->exits[start->seats[i]];
        for (int j = 0; j < start->count; j++)
            start->yields[i][j] =
                -(uint64_t)(snakes[start->seats[j]].length >= snakes[start->seats[i]].length);
    }
}

/* Advances all floods by one turn, like race_settle() and race_spread(), in every lane. */
ALWAYS void advance_race(const View *view, const Start *start, int count, int next, Four *fronts,
                         Four *won, Four *settled) {
    const Bits *closed = blocked_cells(view, next);
    Four open;
    for (int word = 0; word < WORDS; word++) {
        for (int i = 0; i < count; i++) {
            Lanes lost = {0};
            for (int j = 0; j < count; j++)
                if (j != i) lost |= fronts[j].w[word] & in_all(start->yields[i][j]);
            won[i].w[word] = fronts[i].w[word] & ~lost;
            settled->w[word] |= fronts[i].w[word];
        }
        open.w[word] = in_all(view->everything.w[word] & ~closed->w[word]) & ~settled->w[word];
    }
    Four west = in_all_words(&view->west), east = in_all_words(&view->east);
    for (int i = 0; i < count; i++)
        fronts[i] = four_beside(won[i], open, west, east, view->record->width, 0, 0);
}

/* Records the level of the cells won on a turn. */
ALWAYS void record_levels(const Four *won, int turn, Four levels[LEVELS]) {
    int level = turn < FIRST_LEVEL ? FIRST_LEVEL + 1 - turn : 1;
    for (int bit = 0; bit < LEVELS; bit++) {
        Lanes is_in = in_all(-(uint64_t)(level >> bit & 1));
        for (int word = 0; word < WORDS; word++) levels[bit].w[word] |= won->w[word] & is_in;
    }
}

/* Returns whether the set of any lane is not empty. */
ALWAYS bool is_any(const Four *cells) {
    Lanes any = {0};
    for (int word = 0; word < WORDS; word++) any |= cells->w[word];
    return (any[0] | any[1] | any[2] | any[3]) != 0;
}

/* Sets the first cells of all snakes. In each lane, snake `own` makes a different move, unless
 * `own` is NOWHERE. */
ALWAYS void init_fronts(const View *view, const Start *start, int own, Four *fronts) {
    for (int i = 0; i < start->count; i++)
        for (int word = 0; word < WORDS; word++)
            fronts[i].w[word] = in_all(start->fronts[i].w[word]);
    if (own == NOWHERE) return;
    int targets[4];
    Bits to[4];
    move_targets(&standard_rules, view->record, start->seats[own], targets);
    for (int move = 0; move < 4; move++) to[move] = bits_of(targets[move]);
    for (int word = 0; word < WORDS; word++)
        fronts[own].w[word] &= (Lanes){to[0].w[word], to[1].w[word], to[2].w[word], to[3].w[word]};
}

/* Computes the territory of snake `own` for each of its moves, with one move per lane. */
ALWAYS void race_of_moves(const View *view, const Start *start, int count, int own,
                          Four levels[LEVELS]) {
    Four fronts[MAX_SNAKES], won[MAX_SNAKES], settled = {0}, seen[LEVELS] = {0};
    init_fronts(view, start, own, fronts);
    for (int turn = 1; is_any(&fronts[own]); turn++) {
        advance_race(view, start, count, turn + 1, fronts, won, &settled);
        record_levels(&won[own], turn, seen);
    }
    memcpy(levels, seen, sizeof seen);
}

/* Computes the territory of every snake, assuming that every move is possible. Every lane holds the
 * same result. */
ALWAYS void race_of_all(const View *view, const Start *start, int count,
                        Four levels[MAX_SNAKES][LEVELS]) {
    Four fronts[MAX_SNAKES], won[MAX_SNAKES], settled = {0}, any;
    init_fronts(view, start, NOWHERE, fronts);
    memset(levels, 0, (size_t)count * sizeof *levels);
    int turn = 1;
    do {
        advance_race(view, start, count, turn + 1, fronts, won, &settled);
        any = fronts[0];
        for (int i = 0; i < count; i++) {
            record_levels(&won[i], turn, levels[i]);
            for (int word = 0; word < WORDS; word++) any.w[word] |= fronts[i].w[word];
        }
        turn++;
    } while (is_any(&any));
}

typedef uint64_t Rows __attribute__((vector_size(64))); /* eight cells per row */

/* Transposes the 8x8 bit matrix of each row (Hacker's Delight, 7-3). */
ALWAYS void transpose_rows(Rows *rows) {
    Rows x = *rows, t = (x ^ (x >> 7)) & 0x00AA00AA00AA00AAull;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000CCCC0000CCCCull;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x00000000F0F0F0F0ull;
    *rows = x ^ t ^ (t << 28);
}

/* Writes the plane values of 64 cells. */
ALWAYS void write_word(const uint64_t levels[LEVELS], uint8_t *plane) {
    const Rows eights = {0, 8, 16, 24, 32, 40, 48, 56};
    uint64_t any = 0;
    for (int bit = 0; bit < LEVELS; bit++) any |= levels[bit];
    Rows rows = (any >> eights & 255) * 0x010101;
    for (int bit = 0; bit < LEVELS; bit++) rows |= (levels[bit] >> eights & 255) << 8 * (3 + bit);
    transpose_rows(&rows);
    memcpy(plane, &rows, sizeof rows);
}

/* Writes one lane of `levels` as `size` bytes, at least 64; the last 64 bytes overlap the previous
 * bytes. */
ALWAYS void write_lane(const Four levels[LEVELS], int lane, int cells, int size, uint8_t *plane) {
    for (int i = 0; 64 * i < cells; i++) {
        uint64_t word[LEVELS];
        int start = min_int(64 * i, size - 64), back = 64 * i - start;
        for (int bit = 0; bit < LEVELS; bit++) {
            word[bit] = levels[bit].w[i][lane];
            if (back) word[bit] = word[bit] << back | levels[bit].w[i - 1][lane] >> (64 - back);
        }
        write_word(word, plane + start);
    }
}

/* Writes the planes of all living seats. */
ALWAYS void territory_all(const Layout *layout, const Record *record, size_t stride, int size,
                          uint8_t *out) {
    View view;
    view_init(&view, layout, &standard_rules, record);
    prepare_view(&view);
    Start start;
    init_race_starts(&view, &start);
    int count = start.count;
    if (!count) return;
    Four levels[MAX_SNAKES][LEVELS], every[LEVELS] = {0}, by_move[LEVELS];
    /* The common numbers of snakes use specialized code. */
    if (WORDS == 2 && count == 2) race_of_all(&view, &start, 2, levels);
    else if (WORDS == 2 && count == 4) race_of_all(&view, &start, 4, levels);
    else race_of_all(&view, &start, count, levels);
    for (int i = 0; i < count; i++)
        for (int bit = 0; bit < LEVELS; bit++)
            for (int word = 0; word < WORDS; word++) every[bit].w[word] |= levels[i][bit].w[word];
    for (int i = 0; i < count; i++) {
        uint8_t *planes = out + (size_t)start.seats[i] * stride;
        write_lane(levels[i], 0, view.cells, size, planes);
        for (int bit = 0; bit < LEVELS; bit++)
            for (int word = 0; word < WORDS; word++) levels[i][bit].w[word] ^= every[bit].w[word];
        write_lane(levels[i], 0, view.cells, size, planes + size);
        if (WORDS == 2 && count == 2)
            race_of_moves(&view, &start, 2, i, by_move);
        else if (WORDS == 2 && count == 4)
            race_of_moves(&view, &start, 4, i, by_move);
        else
            race_of_moves(&view, &start, count, i, by_move);
        for (int move = 0; move < 4; move++)
            write_lane(by_move, move, view.cells, size, planes + (2 + move) * size);
    }
}

/* The following functions compile territory_all() for each instruction set. */
static void territory_plain(const Layout *layout, const Record *record, size_t stride, int size,
                            uint8_t *out) {
    territory_all(layout, record, stride, size, out);
}

#ifdef X86_VECTORS
__attribute__((target("avx2"))) static void territory_avx2(const Layout *layout,
                                                           const Record *record, size_t stride,
                                                           int size, uint8_t *out) {
    territory_all(layout, record, stride, size, out);
}

__attribute__((target("avx512f,avx512bw,avx512vl"))) static void territory_avx512(
    const Layout *layout, const Record *record, size_t stride, int size, uint8_t *out) {
    territory_all(layout, record, stride, size, out);
}
#else
#define territory_avx2 territory_plain
#define territory_avx512 territory_plain
#endif

/* Implements TerritoryFunction. */
void TERRITORY(Isa isa, const Layout *layout, const Record *record, size_t stride, int size,
               uint8_t *out) {
    (isa == ISA_AVX512 ? territory_avx512
     : isa == ISA_AVX2 ? territory_avx2
                       : territory_plain)(layout, record, stride, size, out);
}
