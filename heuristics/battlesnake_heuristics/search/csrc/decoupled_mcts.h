/* Decoupled UCT: Monte Carlo tree search with simultaneous moves, for three or more living snakes.
 *
 * Every snake selects its move from its own action statistics (Tak, Lanctot and Winands 2014) with
 * the PUCT formula of AlphaZero (Silver et al. 2017). Each opponent therefore plays for its own win
 * instead of cooperating against us. Each simulation adds one node, evaluates the node with the
 * network for every living snake, and backs up the value of each snake.
 *
 * Values are win probabilities in [0, 1] that sum to 1 over the living snakes. */

#define C_PUCT 0.28f          /* exploration constant of the PUCT formula */
#define PRIOR_UPDATE_VISITS 8 /* number of visits of a node before its priors are updated */
/* Initial weight of a move to a contested cell, which the head of an equal or longer snake can
 * reach; other moves have weight 1. */
#define CONTESTED_CELL_PRIOR 0.15f
#define OLD_PRIOR_WEIGHT 0.05f /* weight of the initial priors after the update */
/* Maximum memory of all nodes of one tree, in bytes. */
#define MAX_TREE_BYTES (64 << 20)
/* Maximum number of trees that are kept for later searches, and of their bytes: in general, and if a
 * search needs memory for a new tree. */
#define MAX_KEPT_TREES 16
#define MAX_KEPT_BYTES (96 << 20)
#define MAX_KEPT_BYTES_BESIDE_NEW (16 << 20)
#define MIN_HUGE_PAGE_BYTES (32 << 20) /* minimum memory of nodes on huge pages, in bytes */

/* Action statistics of one snake at one node, by move. */
typedef struct {
    uint32_t visits[4];
    float value_sum[4]; /* sum of backed-up values, each in [0, 1] */
    float prior[4];     /* prior probability, in [0, 1]; 0 for fatal moves */
    float leaf_value;   /* win probability predicted by the network, in [0, 1] */
} ActionStats;

/* A node of the tree. */
typedef struct {
    uint32_t visits;
    /* `terminal` is 1 if the game is over. If the tree serves only snake 0, `terminal` is also 1
     * after the elimination of snake 0. */
    int terminal;
    Position pos; /* only the snakes of the request; their ActionStats follow */
} Node;

/* A slot of the hash table of edges, which lead from a node to a child after a joint move. The high
 * 32 bits of the key contain the node index + 1. The low bits contain the joint move, with 2 bits
 * per snake. Key 0 marks a free slot. */
typedef struct {
    uint64_t key; /* node and joint move */
    uint32_t child;
} Edge;

#define EVAL_CACHE_SLOTS 4096 /* slots of the evaluation cache, a power of two */

/* A search tree: an array of nodes and a hash table of edges. */
typedef struct {
    Search *search;
    int snakes;
    /* Numbers of used and allocated nodes; number of edge slots minus 1. */
    uint32_t count, max_nodes, mask;
    /* Offset of the ActionStats in a node and size of a node, in bytes. */
    size_t stats_offset, node_bytes;
    char *nodes;
    Edge *edges;
    /* Evaluation cache of update_priors(): keys of edges, and the win probabilities of all snakes
     * after each edge. */
    uint64_t *cache_keys;
    float *cache_win_probs;
    float c_puct;
    uint64_t random; /* random state for the root noise */
    uint16_t root_heads[MAX_SNAKES]; /* cells of the heads at the root, set by keep_tree() */
    uint32_t peak_count; /* maximum number of nodes in earlier searches */
} Tree;

/* Returns the node with index `index`. */
static Node *get_node(const Tree *tree, uint32_t index) {
    return (Node *)(tree->nodes + index * tree->node_bytes);
}
/* Returns the action statistics of the node, one per snake. */
static ActionStats *get_stats(const Tree *tree, const Node *node) {
    return (ActionStats *)((char *)node + tree->stats_offset);
}

/* Converts four values in 1/1000 cell to win probabilities with the logistic function. The
 * exponential is approximated by (1 + x / 1024) ^ 1024, which every processor rounds in the same
 * way. The compiler computes the four values in the lanes of one vector. */
static void win_probabilities(const int *values, float *win_probs) {
    float odds[4];
    for (int k = 0; k < 4; k++)
        odds[k] = 1 + clamp_abs(values[k], 8 * VALUE_PER_LOGIT) / (1024.0f * VALUE_PER_LOGIT);
    for (int i = 0; i < 10; i++)
        for (int k = 0; k < 4; k++) odds[k] *= odds[k];
    for (int k = 0; k < 4; k++) win_probs[k] = odds[k] / (1 + odds[k]);
}

/* Returns the smallest value, in 1/1000 cell, with at least this win probability. */
static int value_from_probability(float probability) {
    int low = -8 * VALUE_PER_LOGIT, high = 8 * VALUE_PER_LOGIT;
    while (low < high) {
        int middle = low + (high - low) / 2;
        int values[4] = {middle};
        float win_probs[4];
        win_probabilities(values, win_probs);
        if (win_probs[0] < probability)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Writes the win probability of every snake in `pos`; the probabilities sum to 1. If the game is
 * over, the last survivors have equal probabilities; `before` is the position one turn earlier. */
static void evaluate_snakes(Search *search, const Position *before, const Position *pos,
                            float *win_probs) {
    int alive[MAX_SNAKES] = {0}, count = 0, values[MAX_SNAKES] = {0};
    PositionInputs all;
    int32_t logits[MAX_SNAKES];
    float by_alive[MAX_SNAKES], total = 0;
    const Position *last = pos->living ? pos : before;
    for (int s = 0; s < search->request->snakes; s++) {
        win_probs[s] = pos->living < 2 && last->snake[s].alive ? 1.0f / last->living : 0;
        if (pos->snake[s].alive) alive[count++] = s;
    }
    if (count < 2) return;
    search->leaf_evals++;
    compute_snake_inputs(search, pos, alive, count, &all);
    for (int i = 0; i < count; i++) relate_snake(search, count, i, &all);
    search->network_kernel->forward_all(search->layers[stack_index(count)], all.board, all.snake,
                                        count, logits);
    for (int i = 0; i < count; i++) values[i] = value_from_logit(logits[i]);
    for (int i = 0; i < count; i += 4) win_probabilities(values + i, by_alive + i);
    for (int i = 0; i < count; i++) total += by_alive[i];
    for (int i = 0; i < count; i++) win_probs[alive[i]] = by_alive[i] / total;
}

/* Writes the initial priors of snake `s`: uniform over its non-fatal moves, with less weight on
 * contested cells. `closed` contains the cells that stay occupied. If all moves are fatal, the
 * prior of move 0 is 1. */
static void init_priors(const Search *search, const Position *pos, int s, const Bits *closed,
                        float *prior) {
    int head = head_of(search, pos, s), rivals[MAX_SNAKES], count = 0;
    float total = 0;
    /* Only the heads of equal or longer snakes within two steps can contest a cell. */
    for (int o = 0; o < search->request->snakes; o++)
        if (o != s && pos->snake[o].alive && pos->snake[o].length >= pos->snake[s].length &&
            steps_between(search, head, head_of(search, pos, o)) <= 2)
            rivals[count++] = head_of(search, pos, o);
    for (int move = 0; move < 4; move++) {
        int cell = search->next[head][move], is_contested = 0;
        if (cell == OFF_BOARD || bits_has(closed, cell)) continue;
        for (int i = 0; i < count; i++)
            is_contested |= steps_between(search, cell, rivals[i]) == 1;
        total += prior[move] = is_contested ? CONTESTED_CELL_PRIOR : 1;
    }
    for (int move = 0; move < 4 && total > 0; move++) prior[move] /= total;
    if (!(total > 0)) prior[0] = 1;
}

/* Writes the initial priors of all living snakes, which must be 0. simulate() calls this function
 * when a node is first visited after its evaluation, because most nodes are never visited again. */
static void init_all_priors(const Search *search, const Position *pos, ActionStats *stats) {
    Bits closed = bits_minus(pos->occupied, vacating_tails(search, pos));
    for (int s = 0; s < search->request->snakes; s++)
        if (pos->snake[s].alive) init_priors(search, pos, s, &closed, stats[s].prior);
}

/* Returns whether the tree has room for another node. The last node is reserved for positions that
 * do not fit. */
static int has_room(const Tree *tree) { return tree->count + 1 < tree->max_nodes; }

/* Adds a node for `pos` and returns the index of the node. `win_probs` contains the win probability
 * of every snake. If the tree is full, the function overwrites the reserved node. */
static uint32_t add_node(Tree *tree, const Position *pos, const float *win_probs) {
    uint32_t index = has_room(tree) ? tree->count++ : tree->max_nodes - 1;
    Node *node = get_node(tree, index);
    ActionStats *stats = get_stats(tree, node);
    memset(node, 0, tree->node_bytes);
    memcpy(&node->pos, pos, offsetof(Position, snake) + tree->snakes * sizeof(Body));
    node->terminal =
        pos->living < 2 || !(tree->search->request->all_snakes || pos->snake[0].alive);
    for (int s = 0; s < tree->snakes; s++) stats[s].leaf_value = win_probs[s];
    return index;
}

/* Returns the slot of the key in the hash table of edges, or a free slot for the key (linear
 * probing). */
static Edge *find_edge_slot(const Tree *tree, uint64_t key) {
    uint32_t slot = mix64(key) & tree->mask;
    while (tree->edges[slot].key && tree->edges[slot].key != key) slot = (slot + 1) & tree->mask;
    return &tree->edges[slot];
}

/* Returns the edge slot of the joint move at a node, and stores the key of the edge in `key`. */
static Edge *find_edge(const Tree *tree, uint32_t node, const uint8_t *moves, uint64_t *key) {
    *key = (uint64_t)(node + 1) << 32;
    for (int s = 0; s < tree->snakes; s++) *key |= (uint64_t)moves[s] << 2 * s;
    return find_edge_slot(tree, *key);
}

/* Returns the slot of an edge in the evaluation cache, which is direct-mapped. */
static uint32_t cache_slot(uint64_t key) { return mix64(key) >> 32 & (EVAL_CACHE_SLOTS - 1); }

/* Writes the win probabilities after a joint move at a node. The function evaluates the position if
 * neither a child node nor the evaluation cache has the values. Each call counts as one node, so
 * that a node limit does not depend on the cache. */
static void look_ahead(Tree *tree, const Node *node, const uint8_t *moves, float *win_probs) {
    uint64_t key;
    uint32_t index = ((const char *)node - tree->nodes) / tree->node_bytes;
    const Edge *edge = find_edge(tree, index, moves, &key);
    uint32_t slot = cache_slot(key);
    float *cached = &tree->cache_win_probs[slot * tree->snakes];
    if (edge->key) {
        const ActionStats *stats = get_stats(tree, get_node(tree, edge->child));
        for (int s = 0; s < tree->snakes; s++) win_probs[s] = stats[s].leaf_value;
        tree->search->nodes++;
        return;
    }
    if (tree->cache_keys[slot] == key) {
        tree->search->nodes++;
    } else {
        Position to;
        make_turn(tree->search, &node->pos, moves, &to);
        evaluate_snakes(tree->search, &node->pos, &to, cached);
        tree->cache_keys[slot] = key;
    }
    memcpy(win_probs, cached, tree->snakes * sizeof *win_probs);
}

/* Returns the most visited move with a positive prior, or 4 if there is none. */
static int most_visited(const ActionStats *stats) {
    int best = 4;
    for (int move = 0; move < 4; move++)
        if (stats->prior[move] > 0 && (best == 4 || stats->visits[move] > stats->visits[best]))
            best = move;
    return best;
}

/* Updates the priors of a node by a one-turn lookahead. The new weight of a move is its prior times
 * the odds of winning after the move. All other snakes play their most visited moves. */
static void update_priors(Tree *tree, const Node *node) {
    ActionStats *stats = get_stats(tree, node);
    uint8_t moves[MAX_SNAKES] = {0};
    for (int s = 0; s < tree->snakes; s++)
        if (node->pos.snake[s].alive) moves[s] = most_visited(&stats[s]);
    for (int s = 0; s < tree->snakes; s++) {
        float *prior = stats[s].prior, odds[4] = {0}, total = 0, win_probs[MAX_SNAKES];
        uint8_t most_visited_move = moves[s];
        for (moves[s] = 0; moves[s] < 4; moves[s]++) {
            /* The prior of a fatal move or an only move does not change. */
            if (!(prior[moves[s]] > 0) || prior[moves[s]] == 1) continue;
            look_ahead(tree, node, moves, win_probs);
            odds[moves[s]] = prior[moves[s]] * (win_probs[s] + 0.001f) / (1.001f - win_probs[s]);
            total += odds[moves[s]];
        }
        moves[s] = most_visited_move;
        for (int move = 0; move < 4 && total > 0; move++)
            prior[move] =
                OLD_PRIOR_WEIGHT * prior[move] + (1 - OLD_PRIOR_WEIGHT) * odds[move] / total;
    }
}

/* Numbers of the four moves, in the lanes of one vector. */
typedef float Float4 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));

/* Selects `a` in the lanes in which `mask` is -1, and `b` in the lanes in which `mask` is 0. */
static inline ALWAYS_INLINE Float4 choose(Int4 mask, Float4 a, Float4 b) {
    return (Float4)((mask & (Int4)a) | (~mask & (Int4)b));
}

/* Returns the move with the highest PUCT score: mean value + bonus * prior / (1 + visits).
 * Unvisited moves have the value of the node. */
static int select_move(const ActionStats *stats, float bonus) {
    Int4 visits;
    Float4 value_sum, prior;
    memcpy(&visits, stats->visits, sizeof visits);
    memcpy(&value_sum, stats->value_sum, sizeof value_sum);
    memcpy(&prior, stats->prior, sizeof prior);
    Float4 mean = value_sum / __builtin_convertvector(visits, Float4);
    mean = choose(visits != 0, mean, (Float4){0} + stats->leaf_value);
    mean += bonus * prior / __builtin_convertvector(1 + visits, Float4);
    Float4 scores = choose(prior > 0.0f, mean, (Float4){-1, -1, -1, -1}); /* -1: fatal move */
    /* Floats of at least 0 sort like their bits, and -1 is smaller. The low bits contain 3 - move,
     * so that the first of equal moves wins. A maximum of integers needs no branches, which the
     * processor could not predict. */
    Int4 bits = (Int4)scores;
    int64_t best = (int64_t)bits[0] * 4 + 3;
    for (int move = 1; move < 4; move++) {
        int64_t other = (int64_t)bits[move] * 4 + 3 - move;
        best = other > best ? other : best;
    }
    return 3 - (best & 3);
}

/* Enlarges the table of edges to `size` slots, a power of two. The table starts small, because
 * short searches should use little memory. Returns 0, or -1 if out of memory. */
static int grow_edge_table(Tree *tree, uint32_t size) {
    Edge *old = tree->edges, *table = calloc(size, sizeof *table);
    uint32_t old_size = old ? tree->mask + 1 : 0;
    if (!table) return -1;
    tree->edges = table;
    tree->mask = size - 1;
    for (uint32_t i = 0; i < old_size; i++)
        if (old[i].key) *find_edge_slot(tree, old[i].key) = old[i];
    free(old);
    return 0;
}

/* Returns the index of the child node after the joint move. If the child does not exist, the
 * function evaluates and adds the child, and sets `is_new` to 1. */
static uint32_t descend(Tree *tree, uint32_t index, const uint8_t *moves, int *is_new) {
    Search *search = tree->search;
    const Position *pos = &get_node(tree, index)->pos;
    Position to;
    float win_probs[MAX_SNAKES];
    uint64_t key;
    Edge *edge = find_edge(tree, index, moves, &key);
    *is_new = !edge->key;
    if (*is_new) {
        make_turn(search, pos, moves, &to);
        if (has_room(tree)) *edge = (Edge){key, tree->count};
        uint32_t slot = cache_slot(key);
        if (tree->cache_keys[slot] == key)
            return add_node(tree, &to, &tree->cache_win_probs[slot * tree->snakes]);
        evaluate_snakes(search, pos, &to, win_probs);
        return add_node(tree, &to, win_probs);
    }
    const Position *next = &get_node(tree, edge->child)->pos;
    /* The rings may contain the bodies of another line, so the heads are written again. */
    for (int s = 0; s < tree->snakes; s++)
        if (next->snake[s].alive)
            search->ring[s][next->snake[s].head & (RING - 1)] =
                search->next[head_of(search, pos, s)][moves[s]];
    return edge->child;
}

/* Mixes Dirichlet noise into the priors of every living snake at the root, as in AlphaZero. All
 * concentrations are 1, so the noise equals the spacings between uniform random points of [0,
 * 1]. */
static void add_root_noise(Tree *tree, const Node *root) {
    float weight = tree->search->request->root_noise;
    for (int s = 0; s < tree->snakes; s++) {
        float *prior = get_stats(tree, root)[s].prior, cuts[5] = {0};
        int count = 0, next = 0;
        for (int move = 0; move < 4; move++) count += prior[move] > 0;
        if (!root->pos.snake[s].alive || count < 2) continue;
        for (int i = 1; i < count; i++) {
            float cut = (next_random(&tree->random) >> 40) / 16777216.0f;
            int k = i;
            for (; k > 1 && cuts[k - 1] > cut; k--) cuts[k] = cuts[k - 1];
            cuts[k] = cut;
        }
        cuts[count] = 1;
        for (int move = 0; move < 4; move++)
            if (prior[move] > 0) {
                prior[move] = (1 - weight) * prior[move] + weight * (cuts[next + 1] - cuts[next]);
                next++;
            }
    }
}

/* Runs one simulation: selects a path, adds and evaluates a leaf, and backs up the leaf values. */
static void simulate(Tree *tree) {
    uint32_t path[MAX_DEPTH], index = 0;
    uint8_t moves[MAX_DEPTH][MAX_SNAKES];
    int depth = 0, is_new = 0;
    int max_depth = tree->search->request->max_depth;
    /* Step 1. Select: descend by PUCT to a new or terminal node. Step 2. Expand and evaluate:
     * descend() adds the new node with its leaf values. */
    for (; !is_new && depth < max_depth && !get_node(tree, index)->terminal; depth++) {
        Node *node = get_node(tree, index);
        if (node->visits == 0) init_all_priors(tree->search, &node->pos, get_stats(tree, node));
        if (node->visits == PRIOR_UPDATE_VISITS) {
            update_priors(tree, node);
            if (index == 0 && tree->search->request->root_noise > 0) add_root_noise(tree, node);
        }
        float bonus = tree->c_puct * __builtin_sqrtf(node->visits + 1);
        path[depth] = index;
        for (int s = 0; s < tree->snakes; s++)
            moves[depth][s] =
                node->pos.snake[s].alive ? select_move(&get_stats(tree, node)[s], bonus) : 0;
        index = descend(tree, index, moves[depth], &is_new);
    }
    const ActionStats *leaf_stats = get_stats(tree, get_node(tree, index));
    /* Step 3. Back up the leaf value of each snake along the path. */
    while (depth-- > 0) {
        Node *node = get_node(tree, path[depth]);
        ActionStats *stats = get_stats(tree, node);
        node->visits++;
        for (int s = 0; s < tree->snakes; s++) {
            if (!node->pos.snake[s].alive) continue;
            stats[s].visits[moves[depth][s]]++;
            stats[s].value_sum[moves[depth][s]] += leaf_stats[s].leaf_value;
        }
    }
}
