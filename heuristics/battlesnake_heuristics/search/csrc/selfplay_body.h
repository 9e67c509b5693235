/* Whole games in C: the search's own positions hold the game, and food appears as in the rules. */
#include "selfplay.h"

typedef struct {
    const GamePlan *plan;
    Search *field;          /* the game: its rings hold the bodies, by seat */
    Search *mind;           /* thinks; its snakes are numbered from the one that moves */
    Question ask, seen;     /* of the game, and of the snake that thinks */
    int32_t lengths[MAX_SNAKES], health[MAX_SNAKES];
    uint16_t bodies[MAX_SNAKES * MAX_CELLS];
    uint8_t food[MAX_CELLS];
    Position at;
    uint64_t random;
    int turn, random_share;
} SelfPlay;

static uint32_t draw(SelfPlay *game, uint32_t below) {
    return (uint32_t)((draw_key(&game->random) >> 32) * below >> 32);
}

/* ---- the board ---- */

static void set_hazards(SelfPlay *game) {
    const GamePlan *plan = game->plan;
    int shrinks = 0, cells = game->field->cells;
    if (plan->shrink_every) shrinks = (plan->turn + game->turn) / plan->shrink_every;
    const uint8_t *hazards = plan->start.hazards + smaller(shrinks, plan->planes - 1) * cells;
    if (hazards == game->ask.hazards) return;
    game->ask.hazards = game->seen.hazards = hazards;
    Bits set = bits_none();
    for (int cell = 0; cell < cells; cell++)
        if (hazards[cell]) bits_add(&set, cell);
    game->field->hazard = game->mind->hazard = set;
}

/* Food comes where there is none, or by chance: neither on snakes or food, nor beside a head. */
static int spawn_food(SelfPlay *game) {
    const Search *field = game->field;
    Position *at = &game->at;
    if (bits_any(at->food) && (int)draw(game, 100) + 1 >= game->plan->food_chance) return -1;
    Bits heads = bits_none();
    for (int s = 0; s < game->ask.snakes; s++)
        if (at->snake[s].alive) bits_add(&heads, head_of(field, at, s));
    Bits beside = bits_beside(heads, field->board, field->left_column, field->right_column,
                              game->ask.width, game->ask.height, 0);
    Bits open = bits_minus(bits_minus(field->board, at->occupied), bits_or(at->food, beside));
    int count = bits_count(open);
    if (!count) return -1;
    int skip = draw(game, count), cell = 0;
    while (!bits_has(&open, cell) || skip-- > 0) cell++;
    bits_add(&at->food, cell);
    at->hash ^= field->food_key[cell];
    return cell;
}

/* ---- one snake's turn ---- */

/* Writes the position as snake `seat` sees it, itself first and without the dead. */
static void see(SelfPlay *game, int seat) {
    Question *seen = &game->seen;
    uint16_t *cells = game->bodies;
    seen->snakes = 0;
    for (int cell = 0; cell < game->field->cells; cell++)
        game->food[cell] = bits_has(&game->at.food, cell);
    for (int i = 0; i < game->ask.snakes; i++) {
        int s = i == 0 ? seat : i <= seat ? i - 1 : i;
        const Body *body = &game->at.snake[s];
        if (!body->alive) continue;
        for (int k = 0; k < body->length - body->stacked; k++)
            *cells++ = segment(game->field, s, body->head - k);
        for (int k = 0; k < body->stacked; k++) *cells++ = segment(game->field, s, body->tail);
        game->lengths[seen->snakes] = body->length;
        game->health[seen->snakes++] = body->health;
    }
}

static int think_for(SelfPlay *game, int seat, const Position *root, Row *row) {
    Search *mind = game->mind;
    Question *seen = &game->seen;
    Answer answer;
    const Player *player = game->plan->player[seat];
    int extra = game->plan->careful - game->turn;
    seen->weights = player->weights;
    seen->network = player->network;
    seen->nodes = player->nodes << (extra > 0 ? extra : 0);
    seen->seconds = player->seconds;
    seen->decoupled = player->decoupled;
    if (seen->nodes) mind->table_mask = table_size(seen->nodes) - 1;
    memset(mind->table, 0, (mind->table_mask + 1) * sizeof(Entry));
    memset(mind->refutation, 0, sizeof mind->refutation);
    for (int s = 0; s < seen->snakes; s++)
        memset(mind->history[s], 0, mind->cells * sizeof mind->history[s][0]);
    mind->visited = mind->evaluated = 0;
    mind->stopped = 0;
    int failed = think(mind, root, &answer);
    row->value = answer.scores[answer.move];
    row->move = answer.move;
    return failed;
}

static uint8_t random_move(SelfPlay *game, int seat) {
    uint8_t options[4];
    int count = moves_of(game->field, &game->at, seat, 4, options);
    return options[draw(game, count)];
}

/* The move of snake `seat`, or -1 without memory. */
static int take_turn(SelfPlay *game, int seat, int opening, Row *row, GameRecord *record) {
    Position root;
    int alive[MAX_SNAKES];
    see(game, seat);
    prepare_root(game->mind, &root);
    for (int s = 0; s < root.living; s++) alive[s] = s;
    memset(row->inputs, 0, sizeof row->inputs);
    inputs_of(game->mind, &root, alive, root.living, row->inputs);
    row->seat = seat;
    row->living = root.living;
    row->turn = game->turn;
    row->value = 0;
    row->kind = MOVED_AT_RANDOM;
    if (opening) return row->move = random_move(game, seat);
    if (think_for(game, seat, &root, row)) return -1;
    record->visited += game->mind->visited;
    row->kind = SEARCHED;
    if ((int)draw(game, 65536) < game->random_share) {
        row->move = random_move(game, seat);
        row->kind = SEARCHED_IN_VAIN;
    }
    return row->move;
}

/* ---- the game ---- */

static int make_room(GameRecord *record, int more) {
    if (record->count + more <= record->room) return 1;
    int64_t room = record->room ? 2 * record->room : 256;
    Row *rows = realloc(record->rows, room * sizeof *rows);
    if (!rows) return 0;
    record->rows = rows;
    record->room = room;
    return 1;
}

static void share_points(const SelfPlay *game, const Position *before, GameRecord *record) {
    const Position *end = game->at.living ? &game->at : before;
    for (int s = 0; s < game->ask.snakes; s++)
        if (end->snake[s].alive) record->points[s] = 1.0f / end->living;
}

/* Whether `see` has room for all bodies: those that overlapped at the start may grow for ever. */
static int is_held(const SelfPlay *game) {
    for (int s = 0; s < game->ask.snakes; s++)
        if (game->at.snake[s].length > MAX_CELLS) return 0;
    return 1;
}

static int play_on(SelfPlay *game, GameRecord *record) {
    const GamePlan *plan = game->plan;
    int snakes = game->ask.snakes;
    int opening = plan->opening ? (int)draw(game, plan->opening + 1) : 0;
    Position before = game->at;
    game->random_share = draw(game, 2) ? plan->random_share : 0;
    while (game->at.living > 1 && game->turn < plan->max_turns && is_held(game)) {
        uint8_t moves[MAX_SNAKES] = {0};
        if (!make_room(record, snakes)) return -1;
        int64_t first = record->count;
        set_hazards(game);
        for (int s = 0; s < snakes; s++)
            if (game->at.snake[s].alive) {
                Row *row = &record->rows[record->count++];
                int move = take_turn(game, s, game->turn < opening, row, record);
                if (move < 0) return -1;
                moves[s] = move;
            }
        before = game->at;
        game->field->visited = 0;
        play(game->field, &before, moves, &game->at);
        int food = spawn_food(game);
        for (int64_t i = first; i < record->count; i++) record->rows[i].food = food;
        game->turn++;
    }
    record->turns = game->turn;
    record->finished = game->at.living <= 1;
    share_points(game, &before, record);
    return 0;
}

/* Room for the positions of the longest thought. */
static Entry *table_for(const GamePlan *plan, Search *mind) {
    int64_t nodes = 512, wanted;
    for (int s = 0; s < plan->start.snakes; s++) {
        const Player *player = plan->player[s];
        wanted = player->nodes ? player->nodes : player->seconds * 2e6;
        wanted <<= plan->careful;
        if (wanted > nodes) nodes = wanted;
    }
    mind->table_mask = table_size(nodes) - 1;
    return malloc((mind->table_mask + 1) * sizeof(Entry));
}

static int play_whole_game(const GamePlan *plan, GameRecord *record) {
    int failed = -1;
    SelfPlay *game = calloc(1, sizeof *game);
    if (!game) return -1;
    game->plan = plan;
    game->random = plan->seed;
    game->ask = game->seen = plan->start;
    game->seen.lengths = game->lengths;
    game->seen.health = game->health;
    game->seen.bodies = game->bodies;
    game->seen.food = game->food;
    game->seen.first_depth = 1;
    game->seen.max_depth = MAX_DEPTH;
    game->field = search_of(&game->ask);
    game->mind = search_of(&game->seen);
    if (game->mind) game->mind->table = table_for(plan, game->mind);
    if (game->field && game->mind && game->mind->table) {
        game->mind->clock = CLOCK_THREAD_CPUTIME_ID;
        prepare_root(game->field, &game->at);
        failed = play_on(game, record);
    }
    if (game->mind) free(game->mind->table);
    free(game->mind);
    free(game->field);
    free(game);
    return failed;
}

static int inputs_for(const Question *question, int16_t *inputs) {
    Position at;
    int alive[MAX_SNAKES];
    Search *search = begin(question, &at);
    if (!search) return -1;
    for (int s = 0; s < question->snakes; s++) alive[s] = s;
    memset(inputs, 0, INPUTS * sizeof *inputs);
    inputs_of(search, &at, alive, question->snakes, inputs);
    free(search);
    return 0;
}
