/* Who reaches which cells first, and how soon, on boards of up to 64 * WORDS cells: the planes that
 * battlesnake_gym/observations.py defines. Included behind view_body.h by the files that define REACH,
 * the name of the whole. */
#include "reach.h"

static void show(Bits cells, int turn, uint8_t *plane) {
    int value = SOONEST - TURN_LATER * (turn - 1);
    for (int i = 0; i < WORDS; i++)
        for (uint64_t rest = cells.w[i]; rest; rest &= rest - 1)
            plane[64 * i + __builtin_ctzll(rest)] = (uint8_t)(value > LATEST ? value : LATEST);
}

/* All snakes spread at once, `own` from the cells of `front`; what it reaches before all others is
 * shown in `mine`, what another one does in `theirs`, if that is not NULL. */
static void show_reach(const View *view, int own, Bits front, uint8_t *mine, uint8_t *theirs) {
    const Record *record = view->record;
    Bits fronts[MAX_SNAKES], won[MAX_SNAKES], settled = {{0}};
    int seats[MAX_SNAKES], lengths[MAX_SNAKES], count = 0;
    for (int seat = 0; seat < record->num_snakes; seat++) {
        if (!record->snakes[seat].alive) continue;
        seats[count] = seat;
        lengths[count] = record->snakes[seat].length;
        fronts[count++] = seat == own ? front : view->exits[seat];
    }
    for (int turn = 1;; turn++) {
        bool any = false;
        for (int i = 0; i < count; i++) {
            won[i] = fronts[i];
            for (int j = 0; j < count; j++)
                if (j != i && lengths[j] >= lengths[i]) won[i] = bits_minus(won[i], fronts[j]);
            settled = bits_or(settled, fronts[i]);
            any |= bits_any(fronts[i]);
            uint8_t *plane = seats[i] == own ? mine : theirs;
            if (plane) show(won[i], turn, plane);
        }
        if (!any) return;
        Bits closed = bits_or(settled, *taken(view, turn + 1));
        for (int i = 0; i < count; i++) fronts[i] = bits_minus(spread(view, won[i]), closed);
    }
}

void REACH(const Layout *layout, const Record *record, uint8_t *out) {
    static const Rules plain; /* a position does not tell by which rules it is played */
    static const int step_x[4] = {0, 0, -1, 1}, step_y[4] = {1, -1, 0, 0};
    View view;
    view.layout = layout;
    view.rules = &plain;
    view.record = record;
    view.cells = record->width * record->height;
    view.ready = false;
    look(&view);
    for (int seat = 0; seat < record->num_snakes; seat++, out += REACH_PLANES * view.cells) {
        const Snake *snake = &record->snakes[seat];
        if (!snake->alive) continue;
        memset(out, 0, (size_t)(REACH_PLANES * view.cells));
        show_reach(&view, seat, view.exits[seat], out, out + view.cells);
        for (int move = 0; move < 4; move++) {
            int x = snake->x + step_x[move], y = snake->y + step_y[move];
            if ((unsigned)x >= record->width || (unsigned)y >= record->height) continue;
            Bits target = bits_and(bits_of(cell_of(record, x, y)), view.exits[seat]);
            if (bits_any(target))
                show_reach(&view, seat, target, out + (2 + move) * view.cells, NULL);
        }
    }
}
