/* Who reaches which cells first, and how soon, on boards of up to 64 * WORDS cells: the planes that
 * battlesnake_gym/see/observations.py defines. Included behind view_body.h by the files that define REACH,
 * the name of the whole.
 *
 * A seat's four moves make four races that differ in its own first cells alone, so they are run side by
 * side, a lane for each. When a cell is reached is kept as LEVELS sets, the bits of a number that its
 * byte then shows: they cost less than a byte for each cell. */
#include "reach.h"

#pragma GCC diagnostic ignored "-Wpsabi" /* all that hand over lanes are inlined */

typedef uint64_t Lanes __attribute__((vector_size(32)));
#define WORD Lanes
#define SET Four
#define WITH(name) four_##name
#include "words.h"

static const Rules plain; /* a position does not say by which rules it is played */

/* A cell shows level << 3 | 7; 31 on the coming turn, one less for each later one, at least 1. */
enum { LEVELS = 5, FIRST_LEVEL = 31 };
_Static_assert(SOONEST == (FIRST_LEVEL << 3 | 7) && TURN_LATER == 1 << 3 && LATEST == (1 << 3 | 7), "");

ALWAYS Lanes in_all(uint64_t word) { return (Lanes){0} + word; }

ALWAYS Four in_all_words(const Bits *cells) {
    Four r;
    for (int i = 0; i < WORDS; i++) r.w[i] = in_all(cells->w[i]);
    return r;
}

/* Where the living snakes start, and whom they do not beat to a cell: all bits of words that are. */
typedef struct {
    int count, seats[MAX_SNAKES];
    Bits fronts[MAX_SNAKES];
    uint64_t yields[MAX_SNAKES][MAX_SNAKES];
} Start;

static void get_ready(const View *view, Start *start) {
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

/* As race_settle and race_spread: from the fronts of one turn to those of turn `next`. */
ALWAYS void race_on(const View *view, const Start *start, int count, int next, Four *fronts,
                    Four *won, Four *settled) {
    const Bits *closed = taken(view, next);
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

ALWAYS void note_levels(const Four *won, int turn, Four levels[LEVELS]) {
    int level = turn < FIRST_LEVEL ? FIRST_LEVEL + 1 - turn : 1;
    for (int bit = 0; bit < LEVELS; bit++) {
        Lanes is_in = in_all(-(uint64_t)(level >> bit & 1));
        for (int word = 0; word < WORDS; word++) levels[bit].w[word] |= won->w[word] & is_in;
    }
}

ALWAYS bool is_any(const Four *cells) {
    Lanes any = {0};
    for (int word = 0; word < WORDS; word++) any |= cells->w[word];
    return (any[0] | any[1] | any[2] | any[3]) != 0;
}

/* The snakes' first cells; snake `own` goes in each lane another way, if it is one of them. */
ALWAYS void line_up(const View *view, const Start *start, int own, Four *fronts) {
    for (int i = 0; i < start->count; i++)
        for (int word = 0; word < WORDS; word++)
            fronts[i].w[word] = in_all(start->fronts[i].w[word]);
    if (own == NOWHERE) return;
    int targets[4];
    Bits to[4];
    move_targets(&plain, view->record, start->seats[own], targets);
    for (int move = 0; move < 4; move++) to[move] = bits_of(targets[move]);
    for (int word = 0; word < WORDS; word++)
        fronts[own].w[word] &= (Lanes){to[0].w[word], to[1].w[word], to[2].w[word], to[3].w[word]};
}

/* What snake `own` wins first in each of its lanes. */
ALWAYS void race_of_moves(const View *view, const Start *start, int count, int own,
                          Four levels[LEVELS]) {
    Four fronts[MAX_SNAKES], won[MAX_SNAKES], settled = {0}, seen[LEVELS] = {0};
    line_up(view, start, own, fronts);
    for (int turn = 1; is_any(&fronts[own]); turn++) {
        race_on(view, start, count, turn + 1, fronts, won, &settled);
        note_levels(&won[own], turn, seen);
    }
    memcpy(levels, seen, sizeof seen);
}

/* What each snake wins first when all go wherever they like: in every lane the same. */
ALWAYS void race_of_all(const View *view, const Start *start, int count,
                        Four levels[MAX_SNAKES][LEVELS]) {
    Four fronts[MAX_SNAKES], won[MAX_SNAKES], settled = {0}, any;
    line_up(view, start, NOWHERE, fronts);
    memset(levels, 0, (size_t)count * sizeof *levels);
    int turn = 1;
    do {
        race_on(view, start, count, turn + 1, fronts, won, &settled);
        any = fronts[0];
        for (int i = 0; i < count; i++) {
            note_levels(&won[i], turn, levels[i]);
            for (int word = 0; word < WORDS; word++) any.w[word] |= fronts[i].w[word];
        }
        turn++;
    } while (is_any(&any));
}

typedef uint64_t Rows __attribute__((vector_size(64))); /* each of eight cells */

/* The bits of each row as a matrix, turned around (Hacker's Delight, 7-3). */
ALWAYS void turn_around(Rows *rows) {
    Rows x = *rows, t = (x ^ (x >> 7)) & 0x00AA00AA00AA00AAull;
    x ^= t ^ (t << 7);
    t = (x ^ (x >> 14)) & 0x0000CCCC0000CCCCull;
    x ^= t ^ (t << 14);
    t = (x ^ (x >> 28)) & 0x00000000F0F0F0F0ull;
    *rows = x ^ t ^ (t << 28);
}

/* Shows 64 cells. */
ALWAYS void show_word(const uint64_t levels[LEVELS], uint8_t *plane) {
    const Rows eights = {0, 8, 16, 24, 32, 40, 48, 56};
    uint64_t any = 0;
    for (int bit = 0; bit < LEVELS; bit++) any |= levels[bit];
    Rows rows = (any >> eights & 255) * 0x010101;
    for (int bit = 0; bit < LEVELS; bit++) rows |= (levels[bit] >> eights & 255) << 8 * (3 + bit);
    turn_around(&rows);
    memcpy(plane, &rows, sizeof rows);
}

/* Shows one lane of `levels` in `size` bytes, at least 64; the last 64 overlap those before. */
ALWAYS void show_lane(const Four levels[LEVELS], int lane, int cells, int size,
                      uint8_t *plane) {
    for (int i = 0; 64 * i < cells; i++) {
        uint64_t word[LEVELS];
        int start = smallest(64 * i, size - 64), back = 64 * i - start;
        for (int bit = 0; bit < LEVELS; bit++) {
            word[bit] = levels[bit].w[i][lane];
            if (back) word[bit] = word[bit] << back | levels[bit].w[i - 1][lane] >> (64 - back);
        }
        show_word(word, plane + start);
    }
}

ALWAYS void reach_all(const Layout *layout, const Record *record, size_t stride,
                      int size, uint8_t *out) {
    View view;
    view_begin(&view, layout, &plain, record);
    look(&view);
    Start start;
    get_ready(&view, &start);
    int count = start.count;
    if (!count) return;
    Four levels[MAX_SNAKES][LEVELS], every[LEVELS] = {0}, ways[LEVELS];
    /* For the usual numbers of snakes, code of their own. */
    if (WORDS == 2 && count == 2) race_of_all(&view, &start, 2, levels);
    else if (WORDS == 2 && count == 4) race_of_all(&view, &start, 4, levels);
    else race_of_all(&view, &start, count, levels);
    for (int i = 0; i < count; i++)
        for (int bit = 0; bit < LEVELS; bit++)
            for (int word = 0; word < WORDS; word++) every[bit].w[word] |= levels[i][bit].w[word];
    for (int i = 0; i < count; i++) {
        uint8_t *planes = out + (size_t)start.seats[i] * stride;
        show_lane(levels[i], 0, view.cells, size, planes);
        for (int bit = 0; bit < LEVELS; bit++)
            for (int word = 0; word < WORDS; word++) levels[i][bit].w[word] ^= every[bit].w[word];
        show_lane(levels[i], 0, view.cells, size, planes + size);
        if (WORDS == 2 && count == 2) race_of_moves(&view, &start, 2, i, ways);
        else if (WORDS == 2 && count == 4) race_of_moves(&view, &start, 4, i, ways);
        else race_of_moves(&view, &start, count, i, ways);
        for (int move = 0; move < 4; move++)
            show_lane(ways, move, view.cells, size, planes + (2 + move) * size);
    }
}

static void reach_plain(const Layout *layout, const Record *record, size_t stride, int size,
                        uint8_t *out) {
    reach_all(layout, record, stride, size, out);
}

#ifdef X86_VECTORS
__attribute__((target("avx2"))) static void reach_avx2(const Layout *layout, const Record *record,
                                                       size_t stride, int size, uint8_t *out) {
    reach_all(layout, record, stride, size, out);
}

__attribute__((target("avx512f,avx512bw,avx512vl"))) static void reach_avx512(
    const Layout *layout, const Record *record, size_t stride, int size, uint8_t *out) {
    reach_all(layout, record, stride, size, out);
}
#else
#define reach_avx2 reach_plain
#define reach_avx512 reach_plain
#endif

void REACH(Vectors vectors, const Layout *layout, const Record *record, size_t stride, int size,
           uint8_t *out) {
    (vectors == WITH_AVX512 ? reach_avx512
     : vectors == WITH_AVX2 ? reach_avx2
                            : reach_plain)(layout, record, stride, size, out);
}
