/* Who reaches which cells first, and how soon, on boards of up to 64 * WORDS cells: the planes that
 * battlesnake_gym/see/observations.py defines. Included behind view_body.h by the files that define REACH,
 * the name of the whole. */
#include "reach.h"

static void show(Bits cells, int turn, uint8_t *plane) {
    int value = SOONEST - TURN_LATER * (turn - 1);
    for (int i = 0; i < WORDS; i++)
        for (uint64_t rest = cells.w[i]; rest; rest &= rest - 1)
            plane[64 * i + __builtin_ctzll(rest)] = (uint8_t)(value > LATEST ? value : LATEST);
}

/* `own` spreads from the cells of `front`; what it reaches before all others is shown in `mine`, what
 * another one does in `theirs`, if that is not NULL. */
static void show_reach(const View *view, int own, Bits front, uint8_t *mine, uint8_t *theirs) {
    Race race;
    race_begin(&race, view, own, front);
    for (int turn = 1; race_settle(&race, view); turn++) {
        for (int i = 0; i < race.count; i++) {
            uint8_t *plane = race.seats[i] == own ? mine : theirs;
            if (plane) show(race.won[i], turn, plane);
        }
        race_spread(&race, view, turn + 1);
    }
}

void REACH(const Layout *layout, const Record *record, uint8_t *out) {
    static const Rules plain; /* a position does not say by which rules it is played */
    View view;
    view_begin(&view, layout, &plain, record);
    look(&view);
    for (int seat = 0; seat < record->num_snakes; seat++, out += REACH_PLANES * view.cells) {
        if (!record->snakes[seat].alive) continue;
        int targets[4];
        move_targets(&plain, record, seat, targets);
        memset(out, 0, (size_t)(REACH_PLANES * view.cells));
        show_reach(&view, seat, view.exits[seat], out, out + view.cells);
        for (int move = 0; move < 4; move++) {
            Bits target = bits_and(bits_of(targets[move]), view.exits[seat]);
            if (bits_any(target))
                show_reach(&view, seat, target, out + (2 + move) * view.cells, NULL);
        }
    }
}
