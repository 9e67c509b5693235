/* Decoupled UCT: Monte Carlo tree search with simultaneous moves.
 *
 * Every snake selects its move from its own action statistics (Tak, Lanctot and Winands 2014) with
 * the PUCT formula of AlphaZero (Silver et al. 2017). Each opponent therefore plays for its own win
 * instead of cooperating against us. Each simulation evaluates one new position with the network
 * for every living snake, and backs up the value of each snake.
 *
 * Values are win probabilities in [0, 1] that sum to 1 over the living snakes. */

#define C_PUCT 0.28f          /* exploration constant of the PUCT formula */
/* Fractions of the exploration constant for opponents whose heads are more than MIDDLE_STEPS, or
 * more than FAR_STEPS, from our head at the root. */
#define MIDDLE_C_PUCT 0.3f
#define FAR_C_PUCT 0.1f
#define MIDDLE_STEPS 3
#define FAR_STEPS 6
#define PRIOR_UPDATE_VISITS 8 /* number of visits of a node before its priors are updated */
/* Initial weight of a move to a contested cell, which the head of an equal or longer snake can
 * reach; other moves have weight 1. */
#define CONTESTED_CELL_PRIOR 0.15f
#define OLD_PRIOR_WEIGHT 0.05f /* weight of the initial priors after the update */
/* Maximum memory of the nodes, and of the edges, of one tree, in bytes. */
#define MAX_NODE_BYTES (32 << 20)
#define MAX_EDGE_BYTES (32 << 20)
#define MIN_BLOCK_SIZE 4 /* smallest number of slots of a node's edges, a power of two */
#define MAX_BLOCK_SIZES 24 /* maximum number of different block sizes */
/* Maximum number of trees that are kept for later searches, and their maximum memory in bytes: in
 * general, and if a search needs memory for a new tree. */
#define MAX_KEPT_TREES 16
#define MAX_KEPT_BYTES (96 << 20)
#define MAX_KEPT_BYTES_BESIDE_NEW (16 << 20)
#define HUGE_PAGE ((size_t)2 << 20) /* size of a huge page, in bytes */
#define MIN_HUGE_PAGE_BYTES (8 << 20) /* minimum memory of a tree on huge pages, in bytes */

/* Action statistics of one snake at one node, by move. */
typedef struct {
    uint32_t visits[4];
    float value_sum[4]; /* sum of backed-up values, each in [0, 1] */
    float prior[4];     /* prior probability, in [0, 1]; 0 for fatal moves */
    float leaf_value;   /* win probability predicted by the network, in [0, 1] */
} ActionStats;

/* A node of the tree: the root, or a position that at least two simulations reached. */
typedef struct {
    uint32_t visits;
    /* Index of the first slot of the block of edges, and numbers of edges and slots. A block is a
     * hash table with a power of two slots. */
    uint32_t edges, edge_count, slots;
    Position pos; /* only the snakes of the request; their ActionStats follow */
} Node;

/* An edge: a joint move at a node, and the evaluation of the position after the move. Most of these
 * positions are never reached again, so they have no node. */
typedef struct {
    uint32_t joint_move; /* 2 bits per snake */
    uint32_t child;      /* index of the node after the move; 0: none */
    /* Flags: the slot contains an edge; a simulation has used the edge; the move ends the game. If
     * the tree serves only snake 0, the elimination of snake 0 also ends the game. */
    uint8_t is_used, is_visited, is_terminal;
    float win_probs[]; /* [snakes], win probabilities after the move, in [0, 1] */
} Edge;

/* A search tree: an array of nodes, and an array of the edges' slots. */
typedef struct {
    Search *search;
    int snakes;
    uint32_t count, max_nodes;      /* numbers of used and allocated nodes */
    uint32_t slot_count, max_slots; /* numbers of used and allocated slots */
    uint32_t free_blocks[MAX_BLOCK_SIZES]; /* first free block of each size + 1; 0: none */
    /* Offset of the ActionStats in a node, and sizes of a node and of an edge, in bytes. */
    size_t stats_offset, node_bytes, edge_bytes;
    /* The allocated memory, which contains both arrays. There is one more slot than `max_slots`,
     * for an edge that does not fit. */
    char *memory, *nodes, *edges;
    float c_puct[MAX_SNAKES]; /* exploration constant of each snake */
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
/* Returns the edge in the slot with index `slot`. */
static Edge *get_edge(const Tree *tree, uint32_t slot) {
    return (Edge *)(tree->edges + slot * tree->edge_bytes);
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
    int head = head_of(search, pos, s), heads[MAX_SNAKES], count = 0;
    float total = 0;
    /* Only the heads of equal or longer snakes within two steps can contest a cell. */
    for (int o = 0; o < search->request->snakes; o++)
        if (o != s && pos->snake[o].alive && pos->snake[o].length >= pos->snake[s].length &&
            steps_between(search, head, head_of(search, pos, o)) <= 2)
            heads[count++] = head_of(search, pos, o);
    for (int move = 0; move < 4; move++) {
        int cell = search->next[head][move], is_contested = 0;
        if (cell == OFF_BOARD || bits_has(closed, cell)) continue;
        for (int i = 0; i < count; i++)
            is_contested |= steps_between(search, cell, heads[i]) == 1;
        total += prior[move] = is_contested ? CONTESTED_CELL_PRIOR : 1;
    }
    for (int move = 0; move < 4 && total > 0; move++) prior[move] /= total;
    if (!(total > 0)) prior[0] = 1;
}

/* Writes the initial priors of all living snakes. All priors must be 0 before the call. */
static void init_all_priors(const Search *search, const Position *pos, ActionStats *stats) {
    Bits closed = bits_minus(pos->occupied, vacating_tails(search, pos));
    for (int s = 0; s < search->request->snakes; s++)
        if (pos->snake[s].alive) init_priors(search, pos, s, &closed, stats[s].prior);
}

/* Returns the index of the list of free blocks with `slots` slots. */
static int block_list(uint32_t slots) { return __builtin_ctz(slots / MIN_BLOCK_SIZE); }

/* Frees a block of edges. The joint move of its first slot becomes the next free block. */
static void free_block(Tree *tree, uint32_t block, uint32_t slots) {
    uint32_t *first = &tree->free_blocks[block_list(slots)];
    get_edge(tree, block)->joint_move = *first;
    *first = block + 1;
}

/* Allocates a block with `slots` free slots. Returns the index of its first slot, or `max_slots` if
 * the memory is full. */
static uint32_t allocate_block(Tree *tree, uint32_t slots) {
    uint32_t *first = &tree->free_blocks[block_list(slots)], block = *first - 1;
    if (*first) {
        *first = get_edge(tree, block)->joint_move;
    } else {
        if (tree->max_slots - tree->slot_count < slots) return tree->max_slots;
        block = tree->slot_count;
        tree->slot_count += slots;
    }
    memset(get_edge(tree, block), 0, slots * tree->edge_bytes);
    return block;
}

/* Adds a node for `pos` and returns the index of the node, or 0 if the tree is full. `win_probs`
 * contains the win probability of every snake. */
static uint32_t add_node(Tree *tree, const Position *pos, const float *win_probs) {
    if (tree->count == tree->max_nodes) return 0;
    uint32_t block = allocate_block(tree, MIN_BLOCK_SIZE);
    if (block == tree->max_slots) return 0;
    Node *node = get_node(tree, tree->count);
    ActionStats *stats = get_stats(tree, node);
    memset(node, 0, tree->node_bytes);
    node->edges = block;
    node->slots = MIN_BLOCK_SIZE;
    memcpy(&node->pos, pos, offsetof(Position, snake) + tree->snakes * sizeof(Body));
    for (int s = 0; s < tree->snakes; s++) stats[s].leaf_value = win_probs[s];
    init_all_priors(tree->search, pos, stats);
    return tree->count++;
}

/* Returns the slot of a joint move in a block of edges, or a free slot (linear probing). Probing
 * always ends, because a quarter of each block stays free. */
static Edge *find_slot(const Tree *tree, uint32_t block, uint32_t slots, uint32_t joint_move) {
    for (uint32_t slot = joint_move * 0x9E3779B1u >> 8;; slot++) {
        Edge *edge = get_edge(tree, block + (slot & (slots - 1)));
        if (!edge->is_used || edge->joint_move == joint_move) return edge;
    }
}

/* Returns the joint move, 2 bits per snake. */
static uint32_t join_moves(const Tree *tree, const uint8_t *moves) {
    uint32_t joint_move = 0;
    for (int s = 0; s < tree->snakes; s++) joint_move |= (uint32_t)moves[s] << 2 * s;
    return joint_move;
}

/* Returns whether another edge fits in the block of a node. A quarter of the slots stays free. */
static int has_room(const Node *node) { return node->edge_count < node->slots / 4 * 3; }

/* Moves the edges of a node to a block of twice the size, unless the memory is full. */
static void grow_block(Tree *tree, Node *node) {
    uint32_t block = allocate_block(tree, 2 * node->slots);
    if (block == tree->max_slots) return;
    for (uint32_t i = 0; i < node->slots; i++) {
        const Edge *edge = get_edge(tree, node->edges + i);
        if (edge->is_used)
            memcpy(find_slot(tree, block, 2 * node->slots, edge->joint_move), edge,
                   tree->edge_bytes);
    }
    free_block(tree, node->edges, node->slots);
    node->edges = block;
    node->slots *= 2;
}

/* Returns the edge of a joint move at a node. If the edge does not exist, the function evaluates
 * the position after the move and adds the edge. If the memory is full, the edge is in the
 * additional slot. */
static Edge *evaluated_edge(Tree *tree, Node *node, const uint8_t *moves) {
    uint32_t joint_move = join_moves(tree, moves);
    Edge *edge = find_slot(tree, node->edges, node->slots, joint_move);
    if (edge->is_used) return edge;
    if (!has_room(node)) {
        grow_block(tree, node);
        edge = find_slot(tree, node->edges, node->slots, joint_move);
    }
    if (has_room(node))
        node->edge_count++;
    else
        edge = get_edge(tree, tree->max_slots);
    Position to;
    make_turn(tree->search, &node->pos, moves, &to);
    *edge = (Edge){.joint_move = joint_move, .is_used = 1};
    edge->is_terminal = to.living < 2 || !(tree->search->request->all_snakes || to.snake[0].alive);
    evaluate_snakes(tree->search, &node->pos, &to, edge->win_probs);
    return edge;
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
static void update_priors(Tree *tree, Node *node) {
    ActionStats *stats = get_stats(tree, node);
    uint8_t moves[MAX_SNAKES] = {0};
    for (int s = 0; s < tree->snakes; s++)
        if (node->pos.snake[s].alive) moves[s] = most_visited(&stats[s]);
    for (int s = 0; s < tree->snakes; s++) {
        float *prior = stats[s].prior, odds[4] = {0}, total = 0;
        uint8_t most_visited_move = moves[s];
        for (moves[s] = 0; moves[s] < 4; moves[s]++) {
            /* The prior of a fatal move or an only move does not change. */
            if (!(prior[moves[s]] > 0) || prior[moves[s]] == 1) continue;
            float win_prob = evaluated_edge(tree, node, moves)->win_probs[s];
            tree->search->nodes++;
            odds[moves[s]] = prior[moves[s]] * (win_prob + 0.001f) / (1.001f - win_prob);
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

/* Loads memory into the cache of the processor, which otherwise waits for each part separately. */
static void prefetch(const void *memory, size_t bytes) {
    for (size_t i = 0; i < bytes; i += CACHE_LINE) __builtin_prefetch((const char *)memory + i);
}

/* Returns the node after the joint move of an edge. The function adds the node if it does not
 * exist, and returns NULL if the tree is full. */
static Node *descend(Tree *tree, const Node *node, const uint8_t *moves, Edge *edge) {
    Search *search = tree->search;
    Node *next = get_node(tree, edge->child);
    if (!edge->child) {
        Position to;
        make_turn(search, &node->pos, moves, &to);
        edge->child = add_node(tree, &to, edge->win_probs);
        return edge->child ? get_node(tree, edge->child) : NULL;
    }
    prefetch(next, tree->node_bytes);
    /* The rings may contain the bodies of another line, so the heads are written again. */
    for (int s = 0; s < tree->snakes; s++)
        if (next->pos.snake[s].alive)
            search->ring[s][next->pos.snake[s].head & (RING - 1)] =
                search->next[head_of(search, &node->pos, s)][moves[s]];
    return next;
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

/* At the root, moves the heads of equally long opponents to the cell that our head moves to, in
 * every second simulation. The collision would eliminate both snakes, but not all opponents avoid
 * it. Returns a bit mask of the moved snakes. */
static uint32_t contest_head(const Tree *tree, const Node *root, uint8_t *moves) {
    const Search *search = tree->search;
    const Body *snake = root->pos.snake;
    int to = search->next[head_of(search, &root->pos, 0)][moves[0]];
    uint32_t moved = 0;
    if (to == OFF_BOARD || search->request->all_snakes || root->visits & 1) return 0;
    for (int s = 1; s < tree->snakes; s++) {
        if (!snake[s].alive || snake[s].length != snake[0].length) continue;
        for (int move = 0; move < 4; move++)
            if (search->next[head_of(search, &root->pos, s)][move] == to) {
                moves[s] = move;
                moved |= 1u << s;
            }
    }
    return moved;
}

/* Runs one simulation: selects a path, evaluates its last position, and backs up the win
 * probabilities. */
static void simulate(Tree *tree) {
    Search *search = tree->search;
    Node *path[MAX_DEPTH], *next = get_node(tree, 0);
    uint8_t moves[MAX_DEPTH][MAX_SNAKES];
    Edge *edge = NULL;
    uint32_t moved = 0; /* snakes whose root move contest_head() set; their statistics stay */
    int depth = 0;
    /* Step 1. Select: descend by PUCT to a position that no simulation has reached, or to the end
     * of the game. Step 2. Expand and evaluate: evaluated_edge() adds the edge to a new position. A
     * node is added when its position is reached again. */
    while (next) {
        Node *node = path[depth] = next;
        prefetch(get_edge(tree, node->edges), MIN_BLOCK_SIZE * tree->edge_bytes);
        if (node->visits == PRIOR_UPDATE_VISITS) {
            update_priors(tree, node);
            if (depth == 0 && search->request->root_noise > 0) add_root_noise(tree, node);
        }
        float sqrt_visits = __builtin_sqrtf(node->visits + 1);
        for (int s = 0; s < tree->snakes; s++)
            moves[depth][s] = node->pos.snake[s].alive
                                  ? select_move(&get_stats(tree, node)[s],
                                                tree->c_puct[s] * sqrt_visits)
                                  : 0;
        if (depth == 0) moved = contest_head(tree, node, moves[0]);
        edge = evaluated_edge(tree, node, moves[depth]);
        int is_leaf =
            !edge->is_visited || edge->is_terminal || depth + 1 == search->request->max_depth;
        search->nodes += !edge->is_visited;
        edge->is_visited = 1;
        next = is_leaf ? NULL : descend(tree, node, moves[depth], edge);
        depth++;
    }
    /* Step 3. Back up the win probability of each snake along the path. */
    while (depth-- > 0) {
        ActionStats *stats = get_stats(tree, path[depth]);
        path[depth]->visits++;
        for (int s = 0; s < tree->snakes; s++) {
            if (!path[depth]->pos.snake[s].alive || (depth == 0 && moved >> s & 1)) continue;
            stats[s].visits[moves[depth][s]]++;
            stats[s].value_sum[moves[depth][s]] += edge->win_probs[s];
        }
    }
}
