/* Python type Batch: argument parsing, memory, and loops over all games. */
#include "batch.h"

#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "builtin_snakes.h"
#include "limited_view.h"

static bool same_format(const char *format, char wanted) {
    if (!format) format = "B";
    if (*format == '=' || *format == '@') format++;
    if (format[1]) return false;
    return *format == wanted || (wanted == 'l' && (*format == 'q' || *format == 'l'));
}

static bool fits(const Py_buffer *view, const ArraySpec *spec) {
    if (!same_format(view->format, spec->format) || view->ndim != spec->ndim) return false;
    if (spec->format == 'l' && view->itemsize != 8) return false;
    for (int i = 0; i < spec->ndim; i++) {
        if (view->shape[i] != spec->shape[i]) return false;
    }
    return true;
}

/* Raises the error by a call of the Python rules, which define the message for both engines. */
static void raise_array_error(PyObject *object, const ArraySpec *spec) {
    PyObject *module = PyImport_ImportModule("battlesnake_gym.engine.python_engine");
    PyObject *shape = PyTuple_New(spec->ndim), *none = NULL;
    for (int i = 0; shape && i < spec->ndim; i++)
        PyTuple_SetItem(shape, i, PyLong_FromSsize_t(spec->shape[i]));
    if (module && shape)
        none = PyObject_CallMethod(module, "refuse_array", "sOsOi", spec->name, object, spec->dtype,
                                   shape, spec->writable);
    Py_XDECREF(none);
    Py_XDECREF(shape);
    Py_XDECREF(module);
}

int get_array(PyObject *object, const ArraySpec *spec, Py_buffer *view) {
    int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (spec->writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags) == 0) {
        if (fits(view, spec)) return 0;
        PyBuffer_Release(view);
    }
    PyErr_Clear();
    raise_array_error(object, spec);
    return -1;
}

static void release_cached_buffer(CachedBuffer *cached) {
    if (!cached->object) return;
    PyBuffer_Release(&cached->view);
    Py_CLEAR(cached->object);
}

void *get_cached_buffer(CachedBuffer *cached, PyObject *object, const ArraySpec *spec) {
    if (cached->object == object && fits(&cached->view, spec)) return cached->view.buf;
    release_cached_buffer(cached);
    if (get_array(object, spec, &cached->view) < 0) return NULL;
    cached->object = Py_NewRef(object);
    return cached->view.buf;
}

enum { FEW_GAMES = 32 }; /* one thread plays this many games before a second thread could start */

int begin_work(Batch *batch, PyThreadState **thread) {
    if (batch->busy) {
        PyErr_SetString(PyExc_RuntimeError,
                        "these games are being played by another thread: give each its own Games");
        return -1;
    }
    *thread = NULL;
    if (batch->num_games > FEW_GAMES) {
        batch->busy = 1;
        *thread = PyEval_SaveThread();
    }
    return 0;
}

void end_work(Batch *batch, PyThreadState *thread) {
    if (!thread) return;
    PyEval_RestoreThread(thread);
    batch->busy = 0;
}

static Rules *read_rules(Rules *rules, PyObject *numbers, const char *map) {
    int flags[5], chance, minimum, damage, every, view_reach;
    if (!PyArg_ParseTuple(numbers, "pppppiiiii", &flags[0], &flags[1], &flags[2], &flags[3],
                          &flags[4], &chance, &minimum, &damage, &every, &view_reach)) {
        return NULL;
    }
    *rules = (Rules){(uint8_t)flags[0], (uint8_t)flags[1], (uint8_t)flags[2], (uint8_t)flags[3],
                     (uint8_t)flags[4], chance, minimum, 0, every, view_reach, NULL};
    int beyond = MAX_HEALTH + 1;
    rules->hazard_damage = damage > beyond ? beyond : damage < -MAX_HEALTH ? -MAX_HEALTH : damage;
    if (rules->royale && every < 1) {
        PyErr_Format(PyExc_ValueError, "shrink_every must be at least 1, got %d", every);
        return NULL;
    }
    if (*map && !(rules->map = find_map(map))) {
        PyErr_Format(PyExc_ValueError, "map '%s' is not known", map);
        return NULL;
    }
    return rules;
}

static int check_sizes(const int32_t (*sizes)[3], Py_ssize_t num_games, int32_t largest[3]) {
    static const char *const NAMES[] = {"width", "height", "num_snakes"};
    static const int LIMITS[] = {MAX_SIDE, MAX_SIDE, MAX_SNAKES};
    for (Py_ssize_t i = 0; i < num_games; i++) {
        for (int k = 0; k < 3; k++) {
            if (sizes[i][k] < 1 || sizes[i][k] > LIMITS[k]) {
                PyErr_Format(PyExc_ValueError, "%s must be between 1 and %d, got %d (game %zd)",
                             NAMES[k], LIMITS[k], (int)sizes[i][k], i);
                return -1;
            }
            if (sizes[i][k] > largest[k]) largest[k] = sizes[i][k];
        }
    }
    return 0;
}

static void free_memory(PyObject *memory) { free(PyCapsule_GetPointer(memory, NULL)); }

/* Allocates all games in one block. Large batches use huge pages, because page-table lookups with
 * small pages took 10% of the time. calloc() commits no memory for unused side data of small
 * batches. */
static int allocate(Batch *batch) {
    enum { LINE = 64, LARGE_PAGE = 1 << 21 };
    size_t games = (size_t)batch->num_games;
    size_t each = batch->layout.record_size + batch->layout.side_data_size;
    if (games > (PY_SSIZE_T_MAX - 2 * LARGE_PAGE) / (each + sizeof *batch->sizes)) {
        PyErr_NoMemory();
        return -1;
    }
    size_t unit = games * each < LARGE_PAGE ? LINE : LARGE_PAGE;
    size_t size = (games * each + unit - 1) / unit * unit;
    void *memory = calloc(size + unit, 1);
    batch->sizes = calloc(games, sizeof *batch->sizes);
    batch->memory = memory && batch->sizes ? PyCapsule_New(memory, NULL, free_memory) : NULL;
    if (!batch->memory) {
        free(memory);
        PyErr_NoMemory();
        return -1;
    }
    batch->records = (char *)(((uintptr_t)memory + unit - 1) / unit * unit);
    batch->side_data = batch->records + games * batch->layout.record_size;
#ifdef MADV_HUGEPAGE
    if (unit == LARGE_PAGE) madvise(batch->records, size, MADV_HUGEPAGE); /* only a hint */
#endif
    return 0;
}

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
static void poison_redzone(void *block, size_t size) {
    ASAN_POISON_MEMORY_REGION((char *)block + size - REDZONE, REDZONE);
}
#else
static void poison_redzone(void *block, size_t size) {
    (void)block;
    (void)size;
}
#endif

static void make_empty_games(Batch *batch) {
    for (Py_ssize_t i = 0; i < batch->num_games; i++) {
        Game game = batch_game(batch, i);
        side_data_init(&batch->layout, game.side);
        clear_game(&game, batch->sizes[i][0], batch->sizes[i][1], 0, 0);
        poison_redzone(game.record, batch->layout.record_size);
        poison_redzone(game.side, batch->layout.side_data_size);
    }
}

static PyObject *batch_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    PyObject *sizes_object, *numbers;
    const char *map;
    Py_ssize_t num_games;
    Rules rules;
    if (!PyArg_ParseTuple(args, "nOO!s", &num_games, &sizes_object, &PyTuple_Type, &numbers, &map)) {
        return NULL;
    }
    if (num_games < 1) {
        return PyErr_Format(PyExc_ValueError, "num_games must be at least 1, got %zd", num_games);
    }
    if (!read_rules(&rules, numbers, map)) return NULL;
    ArraySpec spec = {"sizes", "int32", 'i', 0, 2, {num_games, 3}};
    Py_buffer sizes;
    if (get_array(sizes_object, &spec, &sizes) < 0) return NULL;
    int32_t largest[3] = {0, 0, 0};
    Batch *batch = NULL;
    if (check_sizes(sizes.buf, num_games, largest) == 0) {
        allocfunc allocate_object = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
        batch = (Batch *)allocate_object(type, 0);
    }
    if (batch) {
        batch->layout = make_layout(largest[0], largest[1], largest[2]);
        batch->rules = rules;
        batch->num_games = num_games;
        if (allocate(batch) < 0) {
            Py_CLEAR(batch);
        } else {
            memcpy(batch->sizes, sizes.buf, (size_t)num_games * sizeof *batch->sizes);
            make_empty_games(batch);
        }
    }
    PyBuffer_Release(&sizes);
    return (PyObject *)batch;
}

static void batch_dealloc(PyObject *self) {
    Batch *batch = (Batch *)self;
    PyTypeObject *type = Py_TYPE(self);
    release_cached_buffer(&batch->actions);
    for (int i = 0; i < MAX_OBSERVATIONS; i++) release_cached_buffer(&batch->observations[i].out);
    Py_XDECREF(batch->memory);
    free(batch->sizes);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_object(self);
    Py_DECREF(type);
}

/* Exposes the records to numpy. The arrays reference the memory instead of the batch, because
 * Python's garbage collector does not find reference cycles through numpy arrays. */
static int batch_getbuffer(PyObject *self, Py_buffer *view, int flags) {
    Batch *batch = (Batch *)self;
    Py_ssize_t size = batch->num_games * (Py_ssize_t)batch->layout.record_size;
    return PyBuffer_FillInfo(view, batch->memory, batch->records, size, 1, flags);
}

/* Reads the optional argument `which`, a bool[num_games] mask of games. *which is NULL if the
 * argument is missing or None, which selects all games. */
static int get_which(const Batch *batch, PyObject *object, Py_buffer *view, const bool **which) {
    *which = NULL;
    view->obj = NULL;
    if (!object || object == Py_None) return 0;
    ArraySpec spec = {"which", "bool", '?', 0, 1, {batch->num_games}};
    if (get_array(object, &spec, view) < 0) return -1;
    *which = view->buf;
    return 0;
}

/* Finds the arguments of a method: an array and the optional mask `which`, both positional or by
 * keyword. */
static int get_arguments(const char *function, const char *first, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *names, PyObject *found[2]) {
    Py_ssize_t named = names ? PyTuple_Size(names) : 0;
    found[0] = nargs > 0 ? args[0] : NULL;
    found[1] = nargs > 1 ? args[1] : NULL;
    bool bad = nargs > 2;
    for (Py_ssize_t i = 0; i < named; i++) {
        PyObject *name = PyTuple_GetItem(names, i);
        int k = PyUnicode_CompareWithASCIIString(name, first) == 0     ? 0
                : PyUnicode_CompareWithASCIIString(name, "which") == 0 ? 1
                                                                       : 2;
        if (k == 2 || found[k]) {
            bad = true;
        } else {
            found[k] = args[nargs + i];
        }
    }
    if (!bad && found[0]) return 0;
    PyErr_Format(PyExc_TypeError, "%s takes %s and, if wanted, which", function, first);
    return -1;
}

static const char *halt_reason(int halt) {
    switch (halt) {
        case HALT_SCATTER_FULL: return "hz_scatter has filled the whole board: nothing follows";
        case HALT_PITS_EVERY: return "hz_hazard_pits needs shrink_every_n_turns of 1 or more";
        case HALT_MAZE_PLAYERS: return "solo_maze is for one snake";
        case HALT_HAZARD_LIST: return "its hazard list is longer than the compiled engine holds";
        default: return "a body is longer than the compiled engine holds";
    }
}

static PyObject *raise_halt(const Batch *batch, Py_ssize_t game) {
    PyObject *rules = PyImport_ImportModule("battlesnake_gym.rules");
    PyObject *error = rules ? PyObject_GetAttrString(rules, "RulesError") : NULL;
    Py_XDECREF(rules);
    if (!error) return NULL;
    PyErr_Format(error,
                        "game %zd cannot go on after turn %d: %s (reset it; all others were "
                        "stepped)",
                        game, (int)batch_record(batch, game)->turn,
                        halt_reason(batch_record(batch, game)->halt));
    Py_DECREF(error);
    return NULL;
}

/* Returns the address of a game's observations. */
static uint8_t *observation_at(const Batch *batch, const RegisteredObservation *registered,
                               Py_ssize_t game) {
    size_t size = observation_size(&registered->observation) * (size_t)batch->layout.max_snakes;
    return (uint8_t *)registered->out.view.buf + (size_t)game * size;
}

/* Writes one registered output of a game. If `before`, the record of the previous turn, is not NULL,
 * the function writes only the changes. */
static void write_observation(const Batch *batch, const RegisteredObservation *registered,
                              const Record *before, Py_ssize_t index) {
    if (!registered->out.object) return;
    Game game = batch_game(batch, index);
    const Observation *observation = &registered->observation;
    uint8_t *out = observation_at(batch, registered, index);
    if (batch->rules.view_reach && !observation->complete)
        observe_limited_game(observation, &game, before, out);
    else
        observe_game(observation, &batch->layout, before, game.record, out);
}

/* Writes all registered outputs of a game; see write_observation(). */
static void write_observations(const Batch *batch, const Record *before, Py_ssize_t index) {
    for (int place = 0; place < MAX_OBSERVATIONS; place++)
        write_observation(batch, &batch->observations[place], before, index);
}

/* Prefetches memory of later games that is seldom in the cache: food lists and observation planes.
 * The processor prefetches the records, because they are accessed in order. */
static void prefetch_ahead(const Batch *batch, Py_ssize_t game) {
    enum { AHEAD = 8, PLANES_AHEAD = 1, CACHE = 1 << 20 };
    if (game + AHEAD < batch->num_games)
        __builtin_prefetch(side_food(batch_side_data(batch, game + AHEAD)), 1);
    const RegisteredObservation *first = batch->observations;
    if (first->out.object && first->out.view.len > CACHE && game + PLANES_AHEAD < batch->num_games)
        prefetch_planes(&first->observation, batch_record(batch, game + PLANES_AHEAD),
                        observation_at(batch, first, game + PLANES_AHEAD));
}

/* Plays one turn of a game and updates its observations while the record is in the cache. */
static void step_one(const Batch *batch, Py_ssize_t game, const uint8_t *actions) {
    const Layout *layout = &batch->layout;
    Record *record = batch_record(batch, game);
    union {
        Record record;
        char bytes[sizeof(Record) + MAX_SNAKES * sizeof(Snake)];
    } before;
    prefetch_ahead(batch, game);
    memcpy(&before, record, layout->marks); /* all bytes in front of the planes */
    step_game(layout, &batch->rules, record, batch_side_data(batch, game), actions);
    write_observations(batch, &before.record, game);
}

/* Returns the index of the first action above NO_MOVE of a snake that moves, or -1. */
static Py_ssize_t bad_action(const Batch *batch, const uint8_t *actions, const bool *which) {
    Py_ssize_t seats = batch->layout.max_snakes, all = batch->num_games * seats;
    uint8_t largest = 0;
    for (Py_ssize_t i = 0; i < all; i++) largest = actions[i] > largest ? actions[i] : largest;
    if (largest <= NO_MOVE) return -1;
    for (Py_ssize_t i = 0; i < all; i++) {
        const Record *record = batch_record(batch, i / seats);
        if (actions[i] > NO_MOVE && !record->over && record->snakes[i % seats].alive &&
            (!which || which[i / seats])) {
            return i;
        }
    }
    return -1;
}

/* Plays a turn of the selected games; returns the first game that cannot continue, or -1. */
static Py_ssize_t step_all(Batch *batch, const uint8_t *actions, const bool *which) {
    Py_ssize_t halted = -1;
    for (Py_ssize_t i = 0; i < batch->num_games; i++) {
        if (which && !which[i]) continue;
        step_one(batch, i, actions + i * batch->layout.max_snakes);
        if (batch_record(batch, i)->halt && halted < 0) halted = i;
    }
    return halted;
}

static PyObject *batch_step(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                            PyObject *names) {
    Batch *batch = (Batch *)self;
    PyObject *found[2];
    Py_buffer which_view;
    const bool *which;
    if (get_arguments("step", "actions", args, nargs, names, found) < 0) return NULL;
    if (batch->busy) return begin_work(batch, NULL), NULL;
    ArraySpec spec = {"actions", "uint8", 'B', 0, 2, {batch->num_games, batch->layout.max_snakes}};
    const uint8_t *actions = get_cached_buffer(&batch->actions, found[0], &spec);
    if (!actions || get_which(batch, found[1], &which_view, &which) < 0) return NULL;
    Py_ssize_t bad = bad_action(batch, actions, which), halted = -1;
    PyThreadState *thread;
    bool ok = bad < 0 && begin_work(batch, &thread) == 0;
    if (ok) {
        halted = step_all(batch, actions, which);
        end_work(batch, thread);
    }
    if (which) PyBuffer_Release(&which_view);
    if (bad >= 0) {
        Py_ssize_t seats = batch->layout.max_snakes;
        return PyErr_Format(PyExc_ValueError,
                            "actions[%zd, %zd] is %d; it must be 0 to 3 (up, down, left, right) or "
                            "4 for no valid move",
                            bad / seats, bad % seats, (int)actions[bad]);
    }
    if (!ok) return NULL;
    if (halted >= 0) return raise_halt(batch, halted);
    Py_RETURN_NONE;
}

static PyObject *batch_reset(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *names) {
    Batch *batch = (Batch *)self;
    PyObject *found[2];
    Py_buffer seeds_view, which_view;
    const bool *which;
    if (get_arguments("reset", "seeds", args, nargs, names, found) < 0) return NULL;
    if (!batch->rules.map) {
        PyErr_SetString(PyExc_ValueError,
                        "map '' places no snakes: choose a map, or load() a state into each game");
        return NULL;
    }
    ArraySpec spec = {"seeds", "int64", 'l', 0, 1, {batch->num_games}};
    if (get_array(found[0], &spec, &seeds_view) < 0) return NULL;
    const int64_t *seeds = seeds_view.buf;
    Py_ssize_t failed = -1, zero = -1;
    PyThreadState *thread;
    bool ok = get_which(batch, found[1], &which_view, &which) == 0;
    for (Py_ssize_t i = 0; ok && i < batch->num_games && zero < 0; i++) {
        if ((!which || which[i]) && seeds[i] == 0) zero = i;
    }
    if (zero >= 0) {
        PyErr_Format(PyExc_ValueError, "seeds[%zd] must not be 0: use any other number", zero);
    }
    ok = ok && zero < 0 && begin_work(batch, &thread) == 0;
    if (ok) {
        for (Py_ssize_t i = 0; i < batch->num_games; i++) {
            if (which && !which[i]) continue;
            Game game = batch_game(batch, i);
            const int32_t *size = batch->sizes[i];
            if (start_game(&game, size[0], size[1], size[2], seeds[i]) < 0 && failed < 0) failed = i;
            write_observations(batch, NULL, i);
        }
        end_work(batch, thread);
    }
    if (which) PyBuffer_Release(&which_view);
    PyBuffer_Release(&seeds_view);
    if (!ok) return NULL;
    if (failed >= 0) {
        const int32_t *size = batch->sizes[failed];
        return PyErr_Format(PyExc_ValueError,
                            "game %zd: map '%s' has no place for %d snakes and their food on a "
                            "board of %dx%d: use fewer snakes or a larger board",
                            failed, batch->rules.map->name, (int)size[2], (int)size[0],
                            (int)size[1]);
    }
    Py_RETURN_NONE;
}

static int check_game(const Batch *batch, Py_ssize_t game) {
    if (game >= 0 && game < batch->num_games) return 0;
    PyErr_Format(PyExc_IndexError, "game must be between 0 and %zd, got %zd", batch->num_games - 1,
                 game);
    return -1;
}

static PyObject *batch_export(PyObject *self, PyObject *args) {
    Batch *batch = (Batch *)self;
    Py_ssize_t index;
    if (!PyArg_ParseTuple(args, "n", &index) || check_game(batch, index) < 0) return NULL;
    if (batch->busy) return begin_work(batch, NULL), NULL;
    Game game = batch_game(batch, index);
    size_t words = export_game(&game, NULL);
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(words * sizeof(int32_t)));
    if (bytes) export_game(&game, (int32_t *)PyBytes_AsString(bytes));
    return bytes;
}

/* Reads the words into a temporary game, because rejected words must not change the batch. Returns
 * NULL or the reason for the rejection. */
static const char *load_words(Batch *batch, Py_ssize_t index, int64_t seed, const int32_t *words,
                              size_t count, char *message, size_t message_size) {
    size_t record_size = batch->layout.record_size - REDZONE;
    size_t side_data_size = batch->layout.side_data_size - REDZONE;
    char *memory = calloc(1, record_size + side_data_size);
    if (!memory) return "out of memory";
    Game game = {&batch->layout, &batch->rules, (Record *)memory,
                 (SideData *)(memory + record_size)};
    side_data_init(&batch->layout, game.side);
    const char *error = import_game(&game, seed, words, count, message, message_size);
    if (!error) {
        memcpy(batch_record(batch, index), game.record, record_size);
        memcpy(batch_side_data(batch, index), game.side, side_data_size);
        write_observations(batch, NULL, index);
    }
    free(memory);
    return error;
}

static PyObject *batch_import(PyObject *self, PyObject *args) {
    Batch *batch = (Batch *)self;
    Py_ssize_t index, size;
    long long seed;
    const char *bytes;
    if (!PyArg_ParseTuple(args, "nLy#", &index, &seed, &bytes, &size)) return NULL;
    if (check_game(batch, index) < 0) return NULL;
    if (batch->busy) return begin_work(batch, NULL), NULL;
    size_t count = (size_t)size / sizeof(int32_t);
    int32_t *words = malloc((size_t)size + sizeof(int32_t)); /* `bytes` may be unaligned */
    if (!words) return PyErr_NoMemory();
    memcpy(words, bytes, (size_t)size);
    char message[256];
    const char *error = load_words(batch, index, seed, words, count, message, sizeof message);
    free(words);
    if (error) return PyErr_Format(PyExc_ValueError, "state cannot be held: %s", error);
    Py_RETURN_NONE;
}

#define AT(type, field) (Py_ssize_t)offsetof(type, field)

/* Returns the sizes of a record and of a snake, and the offsets of the fields that numpy views. */
static PyObject *batch_layout(PyObject *self, PyObject *unused) {
    (void)unused;
    return Py_BuildValue(
        "{s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n}",
        "record_size", (Py_ssize_t)((Batch *)self)->layout.record_size,
        "snake_size", (Py_ssize_t)sizeof(Snake), "snakes", AT(Record, snakes),
        "turn", AT(Record, turn), "new_food", AT(Record, new_food), "over", AT(Record, over), "living", AT(Record, living),
        "seed", AT(Record, seed), "facing", AT(Record, facing), "heads", AT(Snake, x),
        "alive", AT(Snake, alive), "health", AT(Snake, health), "length", AT(Snake, length),
        "cause", AT(Snake, cause), "killer", AT(Snake, killer), "ate", AT(Snake, ate));
}

static PyObject *batch_observe(PyObject *self, PyObject *args) {
    Batch *batch = (Batch *)self;
    Observation observation;
    PyObject *out_object;
    int place;
    if (!PyArg_ParseTuple(args, "iiiiiipO", &place, &observation.values, &observation.view,
                          &observation.frame_stack, &observation.rows, &observation.columns,
                          &observation.complete, &out_object)) {
        return NULL;
    }
    if (observation.values < 0 || observation.values >= NUM_VALUES || observation.view < 0 ||
        observation.view >= NUM_VIEWS || observation.frame_stack < 1 ||
        observation.frame_stack > MAX_FRAME_STACK || observation.rows < 1 ||
        observation.rows > 2 * MAX_SIDE || observation.columns < 1 ||
        observation.columns > 2 * MAX_SIDE ||
        !observation_fits(&observation, &batch->layout)) {
        PyErr_SetString(PyExc_ValueError, "observation does not fit the boards of these games");
        return NULL;
    }
    if (place < 0 || place >= MAX_OBSERVATIONS) {
        return PyErr_Format(PyExc_ValueError, "place must be between 0 and %d, got %d",
                            MAX_OBSERVATIONS - 1, place);
    }
    if (batch->busy) return begin_work(batch, NULL), NULL;
    Py_ssize_t seats = batch->layout.max_snakes;
    ArraySpec spec = {"out", "uint8", 'B', 1, 5,
                      {batch->num_games, seats,
                       observation_planes(observation.values) * observation.frame_stack,
                       observation.rows, observation.columns}};
    CachedBuffer out = {0};
    if (!get_cached_buffer(&out, out_object, &spec))
        return NULL; /* the registered output stays valid */
    release_cached_buffer(&batch->observations[place].out);
    batch->observations[place] = (RegisteredObservation){out, observation};
    PyThreadState *thread;
    if (begin_work(batch, &thread) < 0) return NULL;
    /* The other outputs keep their stacked turns. */
    for (Py_ssize_t i = 0; i < batch->num_games; i++)
        write_observation(batch, &batch->observations[place], NULL, i);
    end_work(batch, thread);
    Py_RETURN_NONE;
}

static PyObject *batch_action_mask(PyObject *self, PyObject *args) {
    Batch *batch = (Batch *)self;
    const char *parts;
    Py_ssize_t num_parts;
    PyObject *out_object;
    if (!PyArg_ParseTuple(args, "y#O", &parts, &num_parts, &out_object)) return NULL;
    if (num_parts > 16) {
        return PyErr_Format(PyExc_ValueError, "a mask has at most 16 parts, got %zd", num_parts);
    }
    if (batch->busy) return begin_work(batch, NULL), NULL;
    Py_ssize_t seats = batch->layout.max_snakes;
    ArraySpec spec = {"out", "bool", '?', 1, 3, {batch->num_games, seats, 4}};
    Py_buffer view;
    if (get_array(out_object, &spec, &view) < 0) return NULL;
    PyThreadState *thread;
    bool ok = begin_work(batch, &thread) == 0;
    if (ok) {
        bool *out = view.buf;
        for (Py_ssize_t i = 0; i < batch->num_games; i++) {
            Game game = batch_game(batch, i);
            mask_game(&game, (const uint8_t *)parts, (int)num_parts, out + i * seats * 4);
        }
        end_work(batch, thread);
    }
    PyBuffer_Release(&view);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

/* Calls a built-in function for one game. */
static void run_builtin_of(const Game *game, const uint8_t *kinds, uint8_t *out,
                           BuiltinFunction *ask) {
    if (!game->rules->view_reach) {
        ask(game->layout, game->rules, game->record, kinds, out);
        return;
    }
    for (int seat = 0; seat < game->record->num_snakes; seat++) {
        if (kinds[seat] == BUILTIN_NONE || !game->record->snakes[seat].alive) continue;
        uint8_t only[MAX_SNAKES] = {0};
        RecordBuffer view;
        only[seat] = kinds[seat];
        limit_view(game, seat, &view.record);
        ask(game->layout, game->rules, &view.record, only, out);
    }
}

/* Calls a built-in function for all games; `kinds` and `out` are uint8[num_games, seats]. */
static PyObject *run_builtin(Batch *batch, PyObject *args, BuiltinFunction *ask) {
    PyObject *kinds_object, *out_object;
    if (!PyArg_ParseTuple(args, "OO", &kinds_object, &out_object)) return NULL;
    if (batch->busy) return begin_work(batch, NULL), NULL;
    Py_ssize_t seats = batch->layout.max_snakes, all = batch->num_games * seats;
    ArraySpec spec = {"kinds", "uint8", 'B', 0, 2, {batch->num_games, seats}};
    Py_buffer kinds_view, out_view;
    if (get_array(kinds_object, &spec, &kinds_view) < 0) return NULL;
    spec.name = "out";
    spec.writable = 1;
    if (get_array(out_object, &spec, &out_view) < 0) {
        PyBuffer_Release(&kinds_view);
        return NULL;
    }
    const uint8_t *kinds = kinds_view.buf;
    uint8_t *out = out_view.buf;
    bool known = true;
    for (Py_ssize_t i = 0; i < all; i++) known &= kinds[i] < NUM_BUILTIN;
    if (!known) PyErr_Format(PyExc_ValueError, "kinds must be below %d", (int)NUM_BUILTIN);
    PyThreadState *thread;
    bool ok = known && begin_work(batch, &thread) == 0;
    if (ok) {
        for (Py_ssize_t i = 0; i < batch->num_games; i++) {
            Game game = batch_game(batch, i);
            if (!game.record->over) run_builtin_of(&game, kinds + i * seats, out + i * seats, ask);
        }
        end_work(batch, thread);
    }
    PyBuffer_Release(&kinds_view);
    PyBuffer_Release(&out_view);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

static PyObject *batch_builtin_choices(PyObject *self, PyObject *args) {
    return run_builtin((Batch *)self, args, builtin_choices);
}

static PyObject *batch_builtin_moves(PyObject *self, PyObject *args) {
    return run_builtin((Batch *)self, args, builtin_moves);
}

/* Returns the size of all games in bytes, as used by dump() and restore(). */
static size_t memory_size(const Batch *batch) {
    return (size_t)batch->num_games * (batch->layout.record_size + batch->layout.side_data_size);
}

static PyObject *batch_dump(PyObject *self, PyObject *unused) {
    (void)unused;
    Batch *batch = (Batch *)self;
    if (batch->busy) return begin_work(batch, NULL), NULL;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)memory_size(batch));
    if (!bytes) return NULL;
    size_t record_size = batch->layout.record_size, side_data_size = batch->layout.side_data_size;
    char *to = PyBytes_AsString(bytes);
    memset(to, 0, memory_size(batch));
    for (Py_ssize_t i = 0; i < batch->num_games; i++, to += record_size + side_data_size) {
        memcpy(to, batch_record(batch, i), record_size - REDZONE);
        memcpy(to + record_size, batch_side_data(batch, i), side_data_size - REDZONE);
    }
    return bytes;
}

static PyObject *batch_restore(PyObject *self, PyObject *args) {
    Batch *batch = (Batch *)self;
    const char *from;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "y#", &from, &size)) return NULL;
    if (batch->busy) return begin_work(batch, NULL), NULL;
    if ((size_t)size != memory_size(batch)) {
        return PyErr_Format(PyExc_ValueError, "dump must have %zu bytes, got %zd",
                            memory_size(batch), size);
    }
    size_t record_size = batch->layout.record_size, side_data_size = batch->layout.side_data_size;
    for (Py_ssize_t i = 0; i < batch->num_games; i++, from += record_size + side_data_size) {
        memcpy(batch_record(batch, i), from, record_size - REDZONE);
        memcpy(batch_side_data(batch, i), from + record_size, side_data_size - REDZONE);
        write_observations(batch, NULL, i);
    }
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"step", (PyCFunction)(void (*)(void))batch_step, METH_FASTCALL | METH_KEYWORDS,
     "step(actions, which=None)"},
    {"reset", (PyCFunction)(void (*)(void))batch_reset, METH_FASTCALL | METH_KEYWORDS,
     "reset(seeds, which=None)"},
    {"export_words", batch_export, METH_VARARGS, "export_words(game) -> bytes"},
    {"import_words", batch_import, METH_VARARGS, "import_words(game, seed, words)"},
    {"layout", batch_layout, METH_NOARGS, "layout() -> dict of byte offsets"},
    {"observe_into", batch_observe, METH_VARARGS,
     "observe_into(place, values, view, frame_stack, rows, columns, complete, out); updated by later "
     "calls"},
    {"action_mask_into", batch_action_mask, METH_VARARGS, "action_mask_into(parts, out)"},
    {"builtin_choices", batch_builtin_choices, METH_VARARGS, "builtin_choices(kinds, out)"},
    {"builtin_moves", batch_builtin_moves, METH_VARARGS, "builtin_moves(kinds, out)"},
    {"dump", batch_dump, METH_NOARGS, "dump() -> bytes"},
    {"restore", batch_restore, METH_VARARGS, "restore(dump)"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot SLOTS[] = {
    {Py_tp_doc, (void *)"Batch(num_games, sizes, rules, map): see engine.py, its only user."},
    {Py_tp_new, (void *)batch_new},
    {Py_tp_dealloc, (void *)batch_dealloc},
    {Py_tp_methods, METHODS},
    {Py_bf_getbuffer, (void *)batch_getbuffer},
    {0, NULL},
};

PyType_Spec batch_spec = {"battlesnake_gym.engine._engine.Batch", sizeof(Batch), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, SLOTS};
