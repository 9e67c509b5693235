/* What a network is given of a position: 16 numbers of the board, and 16 of snake 0, of the strongest
 * rival, the nearest one and the mean of all; in 1/256, clipped to +-LARGEST. With one rival the last
 * two groups are not computed. Areas are shares of the board, so that all sizes look alike. */

static inline int clip(int value) {
    return value > LARGEST ? LARGEST : value < -LARGEST ? -LARGEST : value;
}

static int heads_apart(const Search *search, int a, int b) {
    const Question *ask = search->ask;
    int dx = abs(search->x[a] - search->x[b]), dy = abs(search->y[a] - search->y[b]);
    if (ask->wrapped) {
        if (dx > ask->width - dx) dx = ask->width - dx;
        if (dy > ask->height - dy) dy = ask->height - dy;
    }
    return dx + dy;
}

static inline int smaller(int a, int b) { return a < b ? a : b; }

/* Cells as a share of the board, whole: 512. */
static inline int share_of(const Search *search, int cells) { return cells * search->share >> 16; }

/* The inputs of snake `s`, the `i`-th of the living. */
static void snake_inputs(const Search *search, const Position *at, const Territory *land, int i,
                         int s, int16_t *in) {
    const Question *ask = search->ask;
    const Body *body = &at->snake[s];
    int head = head_of(search, at, s);
    int cells = land->cells[i], food_at = land->food_at[i];
    int slack = body->health - (food_at == UNREACHED ? 40 : food_at);
    Bits food = bits_and(land->owned[i], at->food);
    in[0] = share_of(search, cells);
    in[1] = land->soon[i] * 16;
    in[2] = land->later[i] * 8;
    in[3] = land->last[i] * 16;
    in[4] = cells < body->length ? (body->length - cells) * 32 : 0;
    in[5] = body->length * 8;
    in[6] = body->health * 5;
    in[7] = food_at == UNREACHED ? 0 : 1024 / (food_at + 1);
    in[8] = slack < 30 ? (30 - slack) * 16 : 0;
    in[9] = land->moves[i] * 128;
    in[10] = bits_any(food) ? bits_count(food) * 64 : 0;
    in[11] = bits_has(&land->owned[i], segment(search, s, body->tail)) ? 256 : 0;
    in[12] = in[15] = 0;
    if (ask->damage > 0) {
        int lost = smaller(ask->damage, 50);
        in[12] = share_of(search, bits_count(bits_and(land->owned[i], search->hazard))) * lost / 32;
        in[15] = smaller(ask->hazards[head] * lost * 8, LARGEST);
    }
    in[13] = search->from_edge[head];
    in[14] = smaller(body->stacked, 3) * 128;
    for (int k = 0; k < SNAKE_INPUTS; k++) in[k] = clip(in[k]);
}

static void board_inputs(const Search *search, const Position *at, const Territory *land, int count,
                         int longest, int nearest, int apart, int16_t *in) {
    const Question *ask = search->ask;
    Bits owned = land->owned[0];
    for (int i = 1; i < count; i++) owned = bits_or(owned, land->owned[i]);
    int lead = at->snake[0].length - longest;
    int longer = at->snake[0].length - at->snake[nearest].length;
    int threat = apart < 8 ? (8 - apart) * 64 : 0;
    int cells = search->cells, reached = bits_count(land->taken);
    in[0] = smaller(abs(lead), 8) * (lead < 0 ? -64 : 64);
    in[1] = clip(lead * 16);
    in[2] = smaller(apart, 32) * 16;
    in[3] = (apart & 1) * 256;
    in[4] = threat;
    in[5] = longer > 0 ? threat : longer < 0 ? -threat : 0;
    in[6] = share_of(search, bits_count(bits_minus(land->taken, owned)));
    in[7] = share_of(search, cells - reached);
    in[8] = smaller(bits_count(at->food) * 32, LARGEST);
    in[9] = share_of(search, bits_count(at->occupied));
    in[10] = (count - 2) * 128 < LARGEST ? (count - 2) * 128 : LARGEST;
    in[11] = cells * 2 < LARGEST ? cells * 2 : LARGEST;
    in[12] = ask->constrictor ? 256 : 0;
    in[13] = ask->wrapped ? 256 : 0;
    in[14] = in[15] = 0;
    if (ask->damage > 0 && bits_any(search->hazard)) {
        in[14] = smaller(ask->damage, 50) * 16;
        in[15] = share_of(search, bits_count(search->hazard));
    }
}

/* `alive` are the numbers of the `count` living snakes, 2 or more, snake 0 first. The last two groups
 * of `inputs` stay as they are where there is one rival. */
static void inputs_of(const Search *search, const Position *at, const int *alive, int count,
                      int16_t *inputs) {
    Territory land;
    int16_t rivals[MAX_SNAKES][SNAKE_INPUTS];
    int strongest = 1, nearest = 1, most = -1, apart = UNREACHED, longest = 0;
    spread_out(search, at, alive, count, 1, &land);
    snake_inputs(search, at, &land, 0, 0, inputs + GLOBAL_INPUTS);
    for (int i = 1; i < count; i++) {
        int length = at->snake[alive[i]].length;
        int away = heads_apart(search, head_of(search, at, 0), head_of(search, at, alive[i]));
        snake_inputs(search, at, &land, i, alive[i], rivals[i]);
        if (length > longest) longest = length;
        if (away < apart) apart = away, nearest = i;
        int strength = rivals[i][0] + rivals[i][5];
        if (strength > most) most = strength, strongest = i;
    }
    board_inputs(search, at, &land, count, longest, alive[nearest], apart, inputs);
    int16_t *block = inputs + GLOBAL_INPUTS + SNAKE_INPUTS;
    memcpy(block, rivals[strongest], sizeof rivals[0]);
    if (count == 2) return;
    memcpy(block + SNAKE_INPUTS, rivals[nearest], sizeof rivals[0]);
    for (int k = 0; k < SNAKE_INPUTS; k++) {
        int sum = 0;
        for (int i = 1; i < count; i++) sum += rivals[i][k];
        block[2 * SNAKE_INPUTS + k] = sum / (count - 1);
    }
}
