/* Decoupled search, for games of several: every snake picks its moves for itself.
 *
 * A tree of positions grows by one a simulation. On the way down each living snake takes the move of the
 * highest PUCT score (Silver et al. 2017): the mean of its own values after it, and a bonus for moves that
 * look good and were seldom tried. The network values the new position for each snake, and every snake on
 * the way counts its own value (decoupled UCT: Tak, Lanctot, Winands 2014). So rivals are neither all
 * against us nor harmless: they want to win. */

#define EXPLORATION 0.7f
#define WEIGHED 8      /* visits after which moves are weighed by the positions after them */
#define SHYNESS 0.15f  /* until then, of a step to where a head that is no shorter may step; others weigh 1 */
#define DOUBT 0.05f    /* what is left of the first weights then */
#define TREE_BYTES (64 << 20)

typedef struct { /* a snake in a position, by its moves */
    uint32_t visits[4];
    float sum[4];   /* of its values after them */
    float prior[4]; /* 0 where it would die at once */
    float value;    /* its chance in the position */
} Arms;

typedef struct {
    uint32_t visits;
    int over;    /* whether the game is, or ours */
    Position at; /* with room for no more snakes than play; behind it their arms */
} Node;

typedef struct {
    uint64_t from; /* a node and all moves; 0: none */
    uint32_t to;
} Edge;

typedef struct {
    Search *search;
    int snakes;
    uint32_t count, most, mask; /* nodes, their room, and that of edges less one */
    size_t arms_at, stride;     /* of a node, in bytes */
    char *nodes;
    Edge *edges;
    float exploration;
} Tree;

static Node *node_of(const Tree *tree, uint32_t number) {
    return (Node *)(tree->nodes + number * tree->stride);
}
static Arms *arms_of(const Tree *tree, const Node *node) {
    return (Arms *)((char *)node + tree->arms_at);
}

/* The odds of a value are e to the power of its logit, by steps that no processor rounds otherwise. */
static float chance_of(int value) {
    float odds = 1 + within(value, 8 * LOGIT) / (1024.0f * LOGIT);
    for (int i = 0; i < 10; i++) odds *= odds;
    return odds / (1 + odds);
}

/* The value that has this chance, to a thousandth of a cell. */
static int value_of(float chance) {
    int low = -8 * LOGIT, high = 8 * LOGIT;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (chance_of(middle) < chance)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Each snake's share of the game's one point in `at`, which came after `before`. */
static void share_out(Search *search, const Position *before, const Position *at, float *shares) {
    int alive[MAX_SNAKES] = {0}, count = 0;
    Territory land;
    int16_t own[MAX_SNAKES][SNAKE_INPUTS], inputs[INPUTS];
    float total = 0;
    const Position *last = at->living ? at : before;
    for (int s = 0; s < search->ask->snakes; s++) {
        shares[s] = at->living < 2 && last->snake[s].alive ? 1.0f / last->living : 0;
        if (at->snake[s].alive) alive[count++] = s;
    }
    if (count < 2) return;
    search->evaluated++;
    inputs_of_all(search, at, alive, count, &land, own);
    for (int i = 0; i < count; i++) {
        inputs_from(search, at, alive, count, &land, own, i, inputs);
        total += shares[alive[i]] = chance_of(
            network_value(search->network_code, search->ask->network, inputs, count));
    }
    for (int i = 0; i < count; i++) shares[alive[i]] /= total;
}

/* Whether another head, of a snake that is no shorter, is a step away from `cell`. */
static int is_contested(const Search *search, const Position *at, int s, int cell) {
    for (int o = 0; o < search->ask->snakes; o++)
        if (o != s && at->snake[o].alive && at->snake[o].length >= at->snake[s].length &&
            steps_between(search, cell, head_of(search, at, o)) == 1)
            return 1;
    return 0;
}

static void set_priors(Search *search, const Position *at, int s, float *prior) {
    uint8_t moves[4];
    int count = moves_of(search, at, s, 4, moves);
    float total = 0;
    for (int i = 0; i < count; i++) {
        int cell = search->next[head_of(search, at, s)][moves[i]];
        int shy = cell != OFF_BOARD && is_contested(search, at, s, cell);
        total += prior[moves[i]] = shy ? SHYNESS : 1;
    }
    for (int i = 0; i < count; i++) prior[moves[i]] /= total;
}

/* The last node is for positions that there is no room to keep. */
static int has_room(const Tree *tree) { return tree->count + 1 < tree->most; }

/* Writes `at` to a node and returns its number. */
static uint32_t add_node(Tree *tree, const Position *before, const Position *at) {
    uint32_t number = has_room(tree) ? tree->count++ : tree->most - 1;
    Node *node = node_of(tree, number);
    Arms *arms = arms_of(tree, node);
    float shares[MAX_SNAKES];
    memset(node, 0, tree->stride);
    memcpy(&node->at, at, offsetof(Position, snake) + tree->snakes * sizeof(Body));
    node->over = at->living < 2 || !at->snake[0].alive;
    share_out(tree->search, before, at, shares);
    for (int s = 0; s < tree->snakes; s++) {
        arms[s].value = shares[s];
        if (!node->over && at->snake[s].alive) set_priors(tree->search, at, s, arms[s].prior);
    }
    return number;
}

static int most_visited(const Arms *arms) {
    int best = 4;
    for (int move = 0; move < 4; move++)
        if (arms->prior[move] > 0 && (best == 4 || arms->visits[move] > arms->visits[best])) best = move;
    return best;
}

/* Weighs each snake's moves by the odds in the positions after them, if the others do what they mostly did. */
static void weigh(Tree *tree, const Node *node) {
    Arms *arms = arms_of(tree, node);
    uint8_t moves[MAX_SNAKES] = {0};
    Position to;
    for (int s = 0; s < tree->snakes; s++)
        if (node->at.snake[s].alive) moves[s] = most_visited(&arms[s]);
    for (int s = 0; s < tree->snakes; s++) {
        float *prior = arms[s].prior, odds[4] = {0}, total = 0, shares[MAX_SNAKES];
        uint8_t usual = moves[s];
        for (moves[s] = 0; moves[s] < 4; moves[s]++) {
            if (!(prior[moves[s]] > 0) || prior[moves[s]] == 1) continue; /* none, or the only one */
            play(tree->search, &node->at, moves, &to);
            share_out(tree->search, &node->at, &to, shares);
            odds[moves[s]] = prior[moves[s]] * (shares[s] + 0.001f) / (1.001f - shares[s]);
            total += odds[moves[s]];
        }
        moves[s] = usual;
        for (int move = 0; move < 4 && total > 0; move++)
            prior[move] = DOUBT * prior[move] + (1 - DOUBT) * odds[move] / total;
    }
}

static int pick(const Arms *arms, float bonus) {
    float best = -1;
    int picked = 0;
    for (int move = 0; move < 4; move++) {
        if (!(arms->prior[move] > 0)) continue;
        uint32_t visits = arms->visits[move];
        float mean = visits ? arms->sum[move] / visits : arms->value;
        float score = mean + bonus * arms->prior[move] / (1 + visits);
        if (score > best) {
            best = score;
            picked = move;
        }
    }
    return picked;
}

static Edge *place_of(const Tree *tree, uint64_t from) {
    uint32_t place = mixed(from) & tree->mask;
    while (tree->edges[place].from && tree->edges[place].from != from)
        place = (place + 1) & tree->mask;
    return &tree->edges[place];
}

static Edge *edge_of(const Tree *tree, uint32_t node, const uint8_t *moves, uint64_t *from) {
    *from = (uint64_t)(node + 1) << 32;
    for (int s = 0; s < tree->snakes; s++) *from |= (uint64_t)moves[s] << 2 * s;
    return place_of(tree, *from);
}

/* Makes room for `room` edges, a power of two; short searches touch little memory. Returns -1 without. */
static int widen(Tree *tree, uint32_t room) {
    Edge *old = tree->edges, *wider = calloc(room, sizeof *wider);
    uint32_t many = old ? tree->mask + 1 : 0;
    if (!wider) return -1;
    tree->edges = wider;
    tree->mask = room - 1;
    for (uint32_t i = 0; i < many; i++)
        if (old[i].from) *place_of(tree, old[i].from) = old[i];
    free(old);
    return 0;
}

/* The node after `moves`; whether it is `new`. */
static uint32_t follow(Tree *tree, uint32_t number, const uint8_t *moves, int *new) {
    Search *search = tree->search;
    const Position *at = &node_of(tree, number)->at;
    Position to;
    uint64_t from;
    Edge *edge = edge_of(tree, number, moves, &from);
    *new = !edge->from;
    if (*new) {
        play(search, at, moves, &to);
        if (has_room(tree)) *edge = (Edge){from, tree->count};
        return add_node(tree, at, &to);
    }
    const Position *then = &node_of(tree, edge->to)->at;
    for (int s = 0; s < tree->snakes; s++) /* the rings are those of the line that was played last */
        if (then->snake[s].alive)
            search->ring[s][then->snake[s].head & (RING - 1)] =
                search->next[head_of(search, at, s)][moves[s]];
    return edge->to;
}

static void simulate(Tree *tree) {
    uint32_t path[MAX_DEPTH], number = 0;
    uint8_t moves[MAX_DEPTH][MAX_SNAKES];
    int depth = 0, new = 0;
    int most = tree->search->ask->max_depth;
    for (; !new && depth < most && !node_of(tree, number)->over; depth++) {
        Node *node = node_of(tree, number);
        if (node->visits == WEIGHED) weigh(tree, node);
        float bonus = tree->exploration * __builtin_sqrtf(node->visits + 1);
        path[depth] = number;
        for (int s = 0; s < tree->snakes; s++)
            moves[depth][s] = node->at.snake[s].alive ? pick(&arms_of(tree, node)[s], bonus) : 0;
        number = follow(tree, number, moves[depth], &new);
    }
    const Arms *reached = arms_of(tree, node_of(tree, number));
    while (depth-- > 0) {
        Node *node = node_of(tree, path[depth]);
        Arms *arms = arms_of(tree, node);
        node->visits++;
        for (int s = 0; s < tree->snakes; s++) {
            if (!node->at.snake[s].alive) continue;
            arms[s].visits[moves[depth][s]]++;
            arms[s].sum[moves[depth][s]] += reached[s].value;
        }
    }
}

/* The moves that were tried most, turn by turn. */
static void trace_visits(Tree *tree, Answer *answer) {
    uint32_t number = 0;
    uint64_t from;
    while (answer->line_length < MAX_DEPTH) {
        const Node *node = node_of(tree, number);
        if (node->over || !node->visits) return;
        uint8_t *moves = answer->line[answer->line_length++];
        uint8_t known[MAX_SNAKES] = {0};
        memset(moves, 4, MAX_SNAKES);
        for (int s = 0; s < tree->snakes; s++)
            if (node->at.snake[s].alive)
                known[s] = moves[s] = most_visited(&arms_of(tree, node)[s]);
        const Edge *edge = edge_of(tree, number, known, &from);
        if (!edge->from) return;
        number = edge->to;
    }
}

static int plant(Tree *tree, const Position *root) {
    const Question *ask = tree->search->ask;
    size_t position = offsetof(Position, snake) + ask->snakes * sizeof(Body);
    tree->snakes = ask->snakes;
    tree->arms_at = (offsetof(Node, at) + position + 7) / 8 * 8;
    tree->stride = (tree->arms_at + ask->snakes * sizeof(Arms) + 7) / 8 * 8;
    tree->most = TREE_BYTES / tree->stride;
    if (ask->nodes && ask->nodes + 2 < tree->most) tree->most = ask->nodes + 2;
    tree->nodes = malloc(tree->most * tree->stride);
    if (!tree->nodes || widen(tree, 512)) return -1;
    add_node(tree, root, root);
    return 0;
}

static void tell_visits(Tree *tree, Answer *answer) {
    const Arms *arms = arms_of(tree, node_of(tree, 0));
    answer->move = most_visited(arms);
    for (int move = 0; move < 4; move++) {
        answer->searched[move] = arms->prior[move] > 0;
        answer->visits[move] = arms->visits[move];
        answer->scores[move] =
            value_of(arms->visits[move] ? arms->sum[move] / arms->visits[move] : arms->value);
    }
    trace_visits(tree, answer);
    answer->depth = answer->line_length;
}

static int is_decoupled(const Question *ask, const Position *root) {
    return ask->decoupled && ask->network && root->living > 2;
}

/* Simulates until the question's limits are reached; -1 without memory. */
static int think_decoupled(Search *search, const Position *root, Answer *answer) {
    const Question *ask = search->ask;
    Tree tree = {.search = search};
    /* searches side by side explore a little differently, and so find other things */
    tree.exploration = EXPLORATION * (1 + 0.03f * (ask->first_depth - 1));
    int failed = plant(&tree, root);
    const Arms *arms = failed ? NULL : arms_of(&tree, node_of(&tree, 0));
    for (int64_t done = 0; !failed && !search->stopped; done++) {
        simulate(&tree);
        if (tree.count > tree.mask / 2 && widen(&tree, 2 * (tree.mask + 1))) failed = -1;
        if (ask->nodes && done + 1 >= ask->nodes) break;
        if (arms->prior[most_visited(arms)] == 1) break; /* forced */
        if (out_of_limits(search, !(done & 15), !(done & 0xfff))) break;
    }
    if (!failed) tell_visits(&tree, answer);
    free(tree.edges);
    free(tree.nodes);
    return failed;
}
