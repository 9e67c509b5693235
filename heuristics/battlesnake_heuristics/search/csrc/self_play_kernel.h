/* Plays self-play games. The positions of the search represent the game; food appears as in the
 * standard rules. This file is part of the template search_kernel.h. */
#include "self_play.h"

/* State of one self-play game. */
typedef struct {
    const SelfPlayConfig *config;
    Search *game_search;   /* represents the game; its rings store the bodies, by seat */
    Search *player_search; /* searches for the move of snake 0 */
    /* Request of the game, and request from the perspective of the snake to move. */
    SearchRequest game_request, player_request;
    int32_t lengths[MAX_SNAKES], health[MAX_SNAKES];
    uint16_t bodies[MAX_SNAKES * MAX_CELLS];
    uint8_t food[MAX_CELLS];
    uint8_t view_seats[MAX_SNAKES]; /* seat of each snake of player_request */
    RootChoice choices[MAX_SNAKES]; /* choices of decoupled MCTS on this turn, by seat */
    uint8_t has_choice[MAX_SNAKES]; /* by seat: 1 if choices[] is set */
    Position pos;
    uint64_t random;
    int turn, random_move_fraction;
} SelfPlay;

/* Returns a random integer in [0, below). */
static uint32_t random_below(SelfPlay *game, uint32_t below) {
    return (uint32_t)((next_random(&game->random) >> 32) * below >> 32);
}

/* Selects the hazard plane of the current turn. */
static void set_hazards(SelfPlay *game) {
    const SelfPlayConfig *config = game->config;
    int shrinks = 0, cells = game->game_search->cells;
    if (config->shrink_every)
        shrinks = max_int((config->turn + game->turn) / config->shrink_every, 0);
    const uint8_t *hazards = config->start.hazards + min_int(shrinks, config->planes - 1) * cells;
    if (hazards == game->game_request.hazards) return;
    game->game_request.hazards = game->player_request.hazards = hazards;
    Bits set = bits_none();
    for (int cell = 0; cell < cells; cell++)
        if (hazards[cell]) bits_add(&set, cell);
    game->game_search->hazard = game->player_search->hazard = set;
}

/* Adds one food with probability food_chance percent, or always if the board has no food. Food does
 * not appear on snakes, on food or beside heads. Returns the cell of the food, or -1. */
static int spawn_food(SelfPlay *game) {
    const Search *game_search = game->game_search;
    Position *pos = &game->pos;
    if (bits_any(pos->food) && (int)random_below(game, 100) + 1 >= game->config->food_chance)
        return -1;
    Bits heads = bits_none();
    for (int s = 0; s < game->game_request.snakes; s++)
        if (pos->snake[s].alive) bits_add(&heads, head_of(game_search, pos, s));
    Bits beside =
        bits_beside(heads, game_search->board, game_search->left_column, game_search->right_column,
                    game->game_request.width, game->game_request.height, 0);
    Bits open =
        bits_minus(bits_minus(game_search->board, pos->occupied), bits_or(pos->food, beside));
    int count = bits_count(open);
    if (!count) return -1;
    int skip = random_below(game, count), cell = 0;
    while (!bits_has(&open, cell) || skip-- > 0) cell++;
    bits_add(&pos->food, cell);
    pos->hash ^= game_search->food_key[cell];
    return cell;
}

/* Writes the position from the perspective of the snake at `seat`. This snake is first, and
 * eliminated snakes are omitted. */
static void fill_player_view(SelfPlay *game, int seat) {
    SearchRequest *player_request = &game->player_request;
    uint16_t *cells = game->bodies;
    player_request->snakes = 0;
    for (int cell = 0; cell < game->game_search->cells; cell++)
        game->food[cell] = bits_has(&game->pos.food, cell);
    for (int i = 0; i < game->game_request.snakes; i++) {
        int s = i == 0 ? seat : i <= seat ? i - 1 : i;
        const Body *body = &game->pos.snake[s];
        if (!body->alive) continue;
        for (int k = 0; k < body->length - body->stacked; k++)
            *cells++ = segment(game->game_search, s, body->head - k);
        for (int k = 0; k < body->stacked; k++)
            *cells++ = segment(game->game_search, s, body->tail);
        game->view_seats[player_request->snakes] = s;
        game->lengths[player_request->snakes] = body->length;
        game->health[player_request->snakes++] = body->health;
    }
}

/* Returns whether two players share one tree per turn. */
static int share_tree(const SelfPlayPlayer *a, const SelfPlayPlayer *b) {
    return a->shared_tree && a->min_decoupled_snakes && b->shared_tree && b->min_decoupled_snakes &&
           a->network == b->network && a->max_nodes == b->max_nodes &&
           a->time_limit_s == b->time_limit_s && a->root_noise == b->root_noise;
}

/* Stores the choices of a decoupled search for `seat` and for all seats that share its tree. */
static void store_choices(SelfPlay *game, int seat, const SearchResult *result) {
    const SelfPlayPlayer *const *player = game->config->player;
    for (int i = 0; i < game->player_request.snakes; i++) {
        int other = game->view_seats[i];
        if (other != seat && !share_tree(player[seat], player[other])) continue;
        game->choices[other] = result->choices[i];
        game->has_choice[other] = 1;
    }
}

/* Fills visits, value and move of the row from a choice. */
static void fill_row(const RootChoice *choice, SelfPlayRow *row) {
    uint32_t total = 0;
    for (int move = 0; move < 4; move++) total += choice->visits[move];
    for (int move = 0; move < 4 && total; move++)
        row->visits[move] = (255 * choice->visits[move] + total / 2) / total;
    row->value = choice->value;
    row->move = choice->move;
}

/* Searches for the move of the snake at `seat` with an empty transposition table, and fills in the
 * value, move and visits of the row. Returns 0, or -1 if out of memory. */
static int search_move(SelfPlay *game, int seat, const Position *root, SelfPlayRow *row) {
    Search *player_search = game->player_search;
    SearchRequest *player_request = &game->player_request;
    SearchResult result;
    const SelfPlayPlayer *player = game->config->player[seat];
    int extra = game->config->node_doublings - game->turn;
    player_request->weights = player->weights;
    player_request->network = player->network;
    player_request->max_nodes = player->max_nodes << (extra > 0 ? extra : 0);
    if (player->shared_tree && player->min_decoupled_snakes && root->living == 2 &&
        player_request->max_nodes > 1)
        player_request->max_nodes /= 2;
    player_request->time_limit_s = player->time_limit_s;
    player_request->min_decoupled_snakes = player->min_decoupled_snakes;
    player_request->all_snakes = player->shared_tree;
    player_request->root_noise = player->root_noise;
    player_request->noise_seed = player->root_noise > 0 ? next_random(&game->random) : 0;
    if (player_request->max_nodes)
        player_search->table_mask = tt_slots_for(player_request->max_nodes) - 1;
    memset(player_search->table, 0, (player_search->table_mask + 1) * sizeof(TTSlot));
    memset(player_search->killer_replies, 0, sizeof player_search->killer_replies);
    for (int s = 0; s < player_request->snakes; s++)
        memset(player_search->history[s], 0,
               player_search->cells * sizeof player_search->history[s][0]);
    player_search->nodes = player_search->leaf_evals = 0;
    player_search->stopped = 0;
    int failed = run_search(player_search, root, &result);
    if (!failed && uses_decoupled(player_search, root)) {
        store_choices(game, seat, &result);
        fill_row(&game->choices[seat], row);
    } else {
        row->move = result.move;
        /* If the limit is below the number of replies, no move has a score. */
        row->value = result.has_score[result.move] ? result.scores[result.move]
                                                   : static_eval(player_search, root);
    }
    return failed;
}

/* Returns a random non-fatal move. */
static uint8_t random_move(SelfPlay *game, int seat) {
    uint8_t options[4];
    int count = generate_moves(game->game_search, &game->pos, seat, 4, options);
    return options[random_below(game, count)];
}

/* Returns the move of the snake at `seat` and fills its row; returns -1 if out of memory. */
static int choose_move(SelfPlay *game, int seat, int is_opening, SelfPlayRow *row,
                       SelfPlayGame *record) {
    Position root;
    int alive[MAX_SNAKES];
    fill_player_view(game, seat);
    init_root(game->player_search, &root);
    for (int s = 0; s < root.living; s++) alive[s] = s;
    memset(row->inputs, 0, sizeof row->inputs);
    compute_inputs(game->player_search, &root, alive, root.living, row->inputs);
    row->seat = seat;
    row->living = root.living;
    row->turn = game->turn;
    row->value = 0;
    row->kind = ROW_RANDOM;
    memset(row->visits, 0, sizeof row->visits);
    if (is_opening) return row->move = random_move(game, seat);
    if (game->has_choice[seat]) {
        fill_row(&game->choices[seat], row);
    } else {
        if (search_move(game, seat, &root, row)) return -1;
        record->nodes += game->player_search->nodes;
    }
    row->kind = ROW_SEARCHED;
    if ((int)random_below(game, 65536) < game->random_move_fraction) {
        row->move = random_move(game, seat);
        row->kind = ROW_SEARCHED_RANDOM;
    }
    return row->move;
}

/* Reserves memory for `more` rows; returns 0 if out of memory. */
static int reserve_rows(SelfPlayGame *record, int more) {
    if (record->count + more <= record->capacity) return 1;
    int64_t capacity = record->capacity ? 2 * record->capacity : 256;
    SelfPlayRow *rows = realloc(record->rows, capacity * sizeof *rows);
    if (!rows) return 0;
    record->rows = rows;
    record->capacity = capacity;
    return 1;
}

/* Writes the points of the survivors, or of the snakes eliminated on the last turn. */
static void share_points(const SelfPlay *game, const Position *before, SelfPlayGame *record) {
    const Position *end = game->pos.living ? &game->pos : before;
    for (int s = 0; s < game->game_request.snakes; s++)
        if (end->snake[s].alive) record->points[s] = 1.0f / end->living;
}

/* Returns whether the buffers of fill_player_view() can store all bodies. Bodies that overlapped in
 * the first position may grow without limit. */
static int bodies_fit(const SelfPlay *game) {
    for (int s = 0; s < game->game_request.snakes; s++)
        if (game->pos.snake[s].length > MAX_CELLS) return 0;
    return 1;
}

/* Plays the game until it is over or reaches max_turns. Returns 0, or -1 if out of memory. */
static int play_from_position(SelfPlay *game, SelfPlayGame *record) {
    const SelfPlayConfig *config = game->config;
    int snakes = game->game_request.snakes;
    int opening_turns = config->random_opening_turns
                            ? (int)random_below(game, config->random_opening_turns + 1)
                            : 0;
    Position before = game->pos;
    if (config->first_moves) {
        game->turn = -1;
        set_hazards(game);
        make_turn(game->game_search, &before, config->first_moves, &game->pos);
        game->turn = 0;
    }
    game->random_move_fraction = random_below(game, 2) ? config->random_move_fraction : 0;
    while (game->pos.living > 1 && game->turn < config->max_turns && bodies_fit(game) &&
           (config->only_seat < 0 || game->pos.snake[config->only_seat].alive)) {
        uint8_t moves[MAX_SNAKES] = {0};
        if (!reserve_rows(record, snakes)) return -1;
        int64_t first = record->count;
        memset(game->has_choice, 0, sizeof game->has_choice);
        set_hazards(game);
        for (int s = 0; s < snakes; s++)
            if (game->pos.snake[s].alive) {
                SelfPlayRow *row = &record->rows[record->count++];
                int move = choose_move(game, s, game->turn < opening_turns, row, record);
                if (move < 0) return -1;
                moves[s] = move;
            }
        before = game->pos;
        make_turn(game->game_search, &before, moves, &game->pos);
        int food = spawn_food(game);
        for (int64_t i = first; i < record->count; i++) record->rows[i].food = food;
        game->turn++;
    }
    record->turns = game->turn;
    record->finished = game->pos.living <= 1;
    share_points(game, &before, record);
    return 0;
}

/* Allocates a transposition table for the longest search of the game; returns NULL if out of
 * memory. */
static TTSlot *new_tt_for(const SelfPlayConfig *config, Search *player_search) {
    int64_t max_nodes = 512, wanted;
    for (int s = 0; s < config->start.snakes; s++) {
        const SelfPlayPlayer *player = config->player[s];
        wanted = player->max_nodes ? player->max_nodes : player->time_limit_s * 2e6;
        wanted <<= config->node_doublings;
        if (wanted > max_nodes) max_nodes = wanted;
    }
    player_search->table_mask = tt_slots_for(max_nodes) - 1;
    return malloc((player_search->table_mask + 1) * sizeof(TTSlot));
}

/* Implements Kernel.play_game. */
static int play_whole_game(const SelfPlayConfig *config, SelfPlayGame *record) {
    int failed = -1;
    SelfPlay *game = calloc(1, sizeof *game);
    if (!game) return -1;
    game->config = config;
    game->random = config->seed;
    game->game_request = game->player_request = config->start;
    game->player_request.lengths = game->lengths;
    game->player_request.health = game->health;
    game->player_request.bodies = game->bodies;
    game->player_request.food = game->food;
    game->player_request.first_depth = 1;
    game->player_request.max_depth = MAX_DEPTH;
    game->game_search = new_search(&game->game_request);
    game->player_search = new_search(&game->player_request);
    if (game->player_search) game->player_search->table = new_tt_for(config, game->player_search);
    if (game->game_search && game->player_search && game->player_search->table) {
        game->player_search->clock = CLOCK_THREAD_CPUTIME_ID;
        init_root(game->game_search, &game->pos);
        failed = play_from_position(game, record);
    }
    if (game->player_search) free(game->player_search->table);
    free(game->player_search);
    free(game->game_search);
    free(game);
    return failed;
}

/* Implements Kernel.inputs. */
static int inputs_of_request(const SearchRequest *request, int16_t *inputs) {
    Position pos;
    int alive[MAX_SNAKES];
    Search *search = new_search_at_root(request, &pos);
    if (!search) return -1;
    for (int s = 0; s < request->snakes; s++) alive[s] = s;
    memset(inputs, 0, NUM_INPUTS * sizeof *inputs);
    compute_inputs(search, &pos, alive, request->snakes, inputs);
    free(search);
    return 0;
}
