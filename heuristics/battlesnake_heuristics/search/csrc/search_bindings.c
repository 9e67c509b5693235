/* Python bindings of the module battlesnake_heuristics.search._search. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <string.h>

#include "kernels.h"
#include "bindings.h"

void release_buffers(RequestBuffers *buffers) {
    for (int i = 0; i < 8; i++) PyBuffer_Release(&buffers->all[i]);
}

int raise_value_error(const char *field, const char *rule) {
    PyErr_Format(PyExc_ValueError, "%s %s", field, rule);
    return -1;
}

static int check_buffer_size(const char *field, const Py_buffer *buffer, Py_ssize_t wanted) {
    if (buffer->len == wanted) return 1;
    PyErr_Format(PyExc_ValueError, "%s must contain %zd bytes, got %zd", field, wanted,
                 buffer->len);
    return 0;
}

int check_buffer(const char *field, const Py_buffer *buffer, Py_ssize_t count, int size) {
    if (!check_buffer_size(field, buffer, count * size)) return 0;
    if (!((uintptr_t)buffer->buf % size)) return 1;
    PyErr_Format(PyExc_ValueError, "%s must be aligned to %d bytes", field, size);
    return 0;
}

/* An empty buffer means that there is no network. */
int check_network(const Py_buffer *buffer, const Network **network) {
    *network = NULL;
    if (!buffer->len) return 0;
    if (!check_buffer("network", buffer, sizeof(Network) / 4, 4)) return -1;
    *network = buffer->buf;
    if (!network_is_valid(*network))
        return raise_value_error("network", "must have weights within bounds");
    return 0;
}

void fill_request(SearchRequest *request, const RequestBuffers *buffers) {
    Py_ssize_t snakes = buffers->lengths.len / 4;
    request->snakes = snakes > MAX_SNAKES ? MAX_SNAKES + 1 : (int)snakes;
    request->lengths = buffers->lengths.buf;
    request->health = buffers->health.buf;
    request->bodies = buffers->bodies.buf;
    request->food = buffers->food.buf;
    request->hazards = buffers->hazards.buf;
}

static int check_board(int width, int height, int damage) {
    if (width < 1 || width > 25) return raise_value_error("width", "must be between 1 and 25");
    if (height < 1 || height > 25) return raise_value_error("height", "must be between 1 and 25");
    if (damage >= -MAX_DAMAGE && damage <= MAX_DAMAGE) return 0;
    return raise_value_error("damage", "must be between -1000 and 1000");
}

int check_position(const SearchRequest *request, const RequestBuffers *buffers, int *planes) {
    if (check_board(request->width, request->height, request->damage)) return -1;
    if (request->snakes < 1 || request->snakes > MAX_SNAKES)
        return raise_value_error("snakes", "must number 1 to 16");
    int cells = request->width * request->height, segments = 0;
    if (planes) *planes = buffers->hazards.len < cells ? 1 : (int)(buffers->hazards.len / cells);
    if (!check_buffer("lengths", &buffers->lengths, request->snakes, 4) ||
        !check_buffer("health", &buffers->health, request->snakes, 4) ||
        !check_buffer("food", &buffers->food, cells, 1) ||
        !check_buffer("hazards", &buffers->hazards, planes ? cells * *planes : cells, 1))
        return -1;
    for (int s = 0; s < request->snakes; s++) {
        if (request->lengths[s] < 1 || request->lengths[s] > MAX_CELLS)
            return raise_value_error("lengths", "must be between 1 and 625");
        if (request->health[s] < 0 || request->health[s] > 100)
            return raise_value_error("health", "must be between 0 (eliminated) and 100");
        segments += request->lengths[s];
    }
    if (!check_buffer("bodies", &buffers->bodies, segments, 2)) return -1;
    for (int i = 0; i < segments; i++)
        if (request->bodies[i] >= cells)
            return raise_value_error("bodies", "must be on the board");
    return 0;
}

int check_weights(const Py_buffer *buffer) {
    if (!check_buffer("weights", buffer, NUM_WEIGHTS, 4)) return -1;
    const int32_t *weights = buffer->buf;
    for (int i = 0; i < NUM_WEIGHTS; i++) {
        int limit = i == W_HUNGER_THRESHOLD || i == W_LEAD_CAP ? 1000
                    : i == W_STARVING || i == W_DRAW           ? PROVEN - 1
                                                               : 100000;
        if (weights[i] < -limit || weights[i] > limit)
            return raise_value_error("weights",
                                     "must be within +-100,000 (hunger_threshold, lead_cap: 1000; "
                                     "starving, draw: 899,999)");
    }
    return 0;
}

static int check_limits(const SearchRequest *request, const RequestBuffers *buffers) {
    if (!request->health[0])
        return raise_value_error("health", "of snake 0, which searches, must not be 0");
    if (!isfinite(request->time_limit_s) || request->time_limit_s < 0)
        return raise_value_error("seconds", "must be 0 (no limit) or a positive number");
    if (request->max_nodes < 0)
        return raise_value_error("nodes", "must be 0 (no limit) or a positive number");
    if (request->first_depth < 1 || request->first_depth > MAX_DEPTH)
        return raise_value_error("first_depth", "must be between 1 and 120");
    if (request->max_depth < 1 || request->max_depth > MAX_DEPTH)
        return raise_value_error("max_depth", "must be between 1 and 120");
    return check_weights(&buffers->weights);
}

/* Parses the arguments of `search` and `inputs`. The caller releases the buffers after success and
 * failure. Returns 0, or -1 with an exception set. */
static int parse_request(PyObject *args, SearchRequest *request, RequestBuffers *buffers,
                         int *frozen, PyObject **stop) {
    long long max_nodes;
    memset(buffers, 0, sizeof *buffers);
    if (!PyArg_ParseTuple(args, "iipppiy*y*y*y*y*y*dLiy*iipiO", &request->width, &request->height,
                          &request->wrapped, &request->constrictor, &request->solo,
                          &request->damage, &buffers->lengths, &buffers->health, &buffers->bodies,
                          &buffers->food, &buffers->hazards, &buffers->weights,
                          &request->time_limit_s, &max_nodes, &request->max_depth,
                          &buffers->network, &request->exact_scores, &request->min_decoupled_snakes,
                          frozen, &request->first_depth, stop))
        return -1;
    fill_request(request, buffers);
    request->max_nodes = max_nodes;
    request->weights = buffers->weights.buf;
    if (check_position(request, buffers, NULL) || check_limits(request, buffers)) return -1;
    return check_network(&buffers->network, (const Network **)&request->network);
}

/* Returns a list with the lines of the four moves: for each line, bytes per turn. */
static PyObject *build_lines(const SearchRequest *request, const SearchResult *result) {
    PyObject *lines = PyList_New(4);
    for (int move = 0; lines && move < 4; move++) {
        const Line *from = &result->lines[move];
        PyObject *line = PyList_New(from->length);
        for (int i = 0; line && i < from->length; i++) {
            PyObject *moves =
                PyBytes_FromStringAndSize((const char *)from->moves[i], request->snakes);
            if (!moves || PyList_SetItem(line, i, moves)) Py_CLEAR(line);
        }
        if (!line || PyList_SetItem(lines, move, line)) Py_CLEAR(lines);
    }
    return lines;
}

static PyObject *build_scores(const SearchResult *result) {
    PyObject *scores = PyDict_New();
    for (int move = 0; scores && move < 4; move++) {
        if (!result->has_score[move]) continue;
        PyObject *key = PyLong_FromLong(move), *value = PyLong_FromLong(result->scores[move]);
        if (!key || !value || PyDict_SetItem(scores, key, value)) Py_CLEAR(scores);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return scores;
}

/* The Python callback that a search polls. */
typedef struct {
    PyThreadState *state; /* thread that searches without the GIL */
    PyObject *stop;       /* a callable, or None */
} PythonCallback;

/* Polls Python: returns 1 if the callable returned true, -1 if the callable or a signal handler
 * raised an exception, or 0. A nonzero result leaves an exception set. The searching thread calls
 * this function without the GIL. */
static int python_should_stop(void *arg) {
    PythonCallback *callback = arg;
    PyEval_RestoreThread(callback->state);
    int stopped = PyErr_CheckSignals();
    if (!stopped && callback->stop != Py_None) {
        PyObject *reply = PyObject_CallNoArgs(callback->stop);
        stopped = reply ? PyObject_IsTrue(reply) : -1;
        Py_XDECREF(reply);
        if (stopped > 0)
            PyErr_SetString(PyExc_InterruptedError, "the search was stopped by should_stop");
    }
    callback->state = PyEval_SaveThread();
    return stopped;
}

PyDoc_STRVAR(search_doc,
"search(width, height, wrapped, constrictor, solo, damage, lengths, health, bodies, food,\n"
"       hazards, weights, seconds, nodes, max_depth, network, exact, decoupled, frozen,\n"
"       first_depth, should_stop)\n"
"--\n"
"\n"
"Search for the best move of snake 0.\n"
"\n"
"The buffers `lengths`, `health` and `weights` are int32. The buffer `bodies` contains uint16 cells\n"
"(y * width + x), head first and snake after snake. The buffers `food` and `hazards` contain one byte\n"
"per cell. Health 0 marks an eliminated snake. A limit of 0 disables the limit.\n"
"`network` contains the bytes of a learned evaluation, or is empty. If `exact` is 1, all scores\n"
"are exact, not only the score of the best move; if it is 2, the score of a forced move, too.\n"
"With a network, decoupled MCTS searches positions of at least `decoupled` living snakes; 0: none.\n"
"If `frozen` is true, the frozen search ignores `network` and `decoupled`. `first_depth` is above 1\n"
"in helper threads.\n"
"`should_stop` is None, or a polled callable; a true return value interrupts the search.\n"
"\n"
"Returns (move, depth, proven, leaf_evals, nodes, scores by move, lines of the four moves: bytes\n"
"per turn, visits of the four moves in a decoupled search or zeros). Only the line of the best move\n"
"is complete, unless `exact` is not 0.\n"
"Raises ValueError if an argument is outside the limits of the search, and InterruptedError if\n"
"`should_stop` returned true. Exceptions of signal handlers propagate (KeyboardInterrupt for Ctrl-C\n"
"in the main thread). Releases the GIL.");

static PyObject *search(PyObject *module, PyObject *args) {
    (void)module;
    SearchRequest request = {0};
    SearchResult result;
    RequestBuffers buffers;
    PythonCallback callback;
    int frozen;
    if (parse_request(args, &request, &buffers, &frozen, &callback.stop)) {
        release_buffers(&buffers);
        return NULL;
    }
    int cells = request.width * request.height;
    const Kernel *kernel = frozen ? frozen_kernel_for(cells) : kernel_for(cells);
    request.keep_tree = !request.max_nodes; /* searches with a node limit are reproducible */
    callback.state = PyEval_SaveThread();
    request.should_stop = python_should_stop;
    request.should_stop_arg = &callback;
    int failed = kernel->search(&request, &result);
    PyEval_RestoreThread(callback.state);
    release_buffers(&buffers);
    if (failed) return failed < 0 ? PyErr_NoMemory() : NULL;
    const uint32_t *visits = result.choices[0].visits;
    return Py_BuildValue("(iiiLLNN(IIII))", result.move, result.depth, result.proven,
                         (long long)result.leaf_evals, (long long)result.nodes,
                         build_scores(&result), build_lines(&request, &result), visits[0], visits[1],
                         visits[2], visits[3]);
}

PyDoc_STRVAR(inputs_doc,
"inputs(...)\n"
"--\n"
"\n"
"Return the network inputs of a position: bytes of int16. The arguments equal the arguments of\n"
"search().");

static PyObject *inputs(PyObject *module, PyObject *args) {
    (void)module;
    SearchRequest request = {0};
    RequestBuffers buffers;
    int16_t numbers[NUM_INPUTS];
    PyObject *stop;
    int frozen, failed = parse_request(args, &request, &buffers, &frozen, &stop);
    if (!failed && request.snakes < 2)
        failed = raise_value_error("snakes", "must number 2 or more");
    if (failed) {
        release_buffers(&buffers);
        return NULL;
    }
    failed = kernel_for(request.width * request.height)->inputs(&request, numbers);
    release_buffers(&buffers);
    if (failed) return PyErr_NoMemory();
    return PyBytes_FromStringAndSize((const char *)numbers, sizeof numbers);
}

PyDoc_STRVAR(use_cpu_clock_doc,
"use_cpu_clock(on)\n"
"--\n"
"\n"
"Measure the time limits of all searches in CPU time of this process; returns the previous setting.\n"
"CPU time makes comparisons on a busy machine fair; real games need the wall clock.");

static PyObject *use_cpu_clock(PyObject *module, PyObject *args) {
    (void)module;
    int on, before = search_uses_cpu_clock;
    if (!PyArg_ParseTuple(args, "p:use_cpu_clock", &on)) return NULL;
    search_uses_cpu_clock = on;
    return PyBool_FromLong(before);
}

PyDoc_STRVAR(set_throttle_doc,
"set_throttle(fraction)\n"
"--\n"
"\n"
"Limit searches on the wall clock to this fraction of a core in the last 0.1 s before their\n"
"deadline; 0, the default, disables throttling. Returns (CPU time of the process, seconds left) when\n"
"throttling began since the last call, or zeros.");

static PyObject *set_throttle(PyObject *module, PyObject *args) {
    (void)module;
    if (!PyArg_ParseTuple(args, "d:set_throttle", &search_throttle_fraction)) return NULL;
    PyObject *began = Py_BuildValue("dd", search_throttle_start[0], search_throttle_start[1]);
    search_throttle_start[0] = search_throttle_start[1] = 0;
    return began;
}

static int check_moves(const SearchRequest *request, const Py_buffer *moves) {
    Py_ssize_t turns = moves->len / request->snakes;
    if (turns > MAX_DEPTH || moves->len % request->snakes)
        return raise_value_error("moves",
                                 "must contain one byte per snake and turn, for up to 120 turns");
    for (Py_ssize_t i = 0; i < moves->len; i++)
        if (((const uint8_t *)moves->buf)[i] > 3)
            return raise_value_error("moves", "must be 0, 1, 2 or 3");
    return 0;
}

static PyObject *build_snakes(const SearchRequest *request, const RulesPosition *position) {
    PyObject *snakes = PyList_New(request->snakes);
    for (int s = 0; snakes && s < request->snakes; s++) {
        PyObject *snake = position->alive[s]
                              ? Py_BuildValue("(iy#)", (int)position->health[s], position->body[s],
                                              (Py_ssize_t)(position->length[s] * sizeof(uint16_t)))
                              : Py_BuildValue("");
        if (!snake || PyList_SetItem(snakes, s, snake)) Py_CLEAR(snakes);
    }
    return snakes;
}

PyDoc_STRVAR(play_turns_doc,
"play_turns(width, height, wrapped, constrictor, damage, lengths, health, bodies, food, hazards,\n"
"           moves)\n"
"--\n"
"\n"
"Play turns by the rules of the search, for tests that compare them with the official rules.\n"
"\n"
"The position has the format of search(); `moves` contains one byte per snake and turn. Returns\n"
"(snakes, food: a byte per cell, key: a hash, equal for equal positions). An eliminated snake is\n"
"None; a living snake is (health, body: uint16 cells). Raises ValueError if an argument is outside\n"
"the limits of the search.");

static PyObject *play_turns(PyObject *module, PyObject *args) {
    (void)module;
    SearchRequest request = {0};
    RequestBuffers buffers;
    PyObject *played = NULL;
    memset(&buffers, 0, sizeof buffers);
    if (!PyArg_ParseTuple(args, "iippiy*y*y*y*y*y*:play_turns", &request.width, &request.height,
                          &request.wrapped, &request.constrictor, &request.damage, &buffers.lengths,
                          &buffers.health, &buffers.bodies, &buffers.food, &buffers.hazards,
                          &buffers.moves))
        return NULL;
    fill_request(&request, &buffers);
    RulesPosition *position = PyMem_Malloc(sizeof *position);
    if (!position) PyErr_NoMemory();
    if (position && !check_position(&request, &buffers, NULL) &&
        !check_moves(&request, &buffers.moves)) {
        int cells = request.width * request.height;
        int turns = (int)(buffers.moves.len / request.snakes);
        const uint8_t *moves = buffers.moves.buf;
        int failed = kernel_for(cells)->play_turns(&request, moves, turns, position);
        played = failed ? PyErr_NoMemory()
                        : Py_BuildValue("(Ny#K)", build_snakes(&request, position), position->food,
                                        (Py_ssize_t)cells, (unsigned long long)position->key);
    }
    PyMem_Free(position);
    release_buffers(&buffers);
    return played;
}

PyDoc_STRVAR(set_isa_doc,
"set_isa(name)\n"
"--\n"
"\n"
"Select the instruction set of later searches: 'plain', 'avx2' or 'best', the default.\n"
"\n"
"Returns the name of the selected instruction set. Raises ValueError if the processor or the build\n"
"does not support `name`.");

static PyObject *set_isa(PyObject *module, PyObject *args) {
    (void)module;
    const char *name;
    if (!PyArg_ParseTuple(args, "s:set_isa", &name)) return NULL;
    const char *chosen = select_isa(name);
    if (!chosen)
        return PyErr_Format(PyExc_ValueError,
                            "isa must be plain, best, or avx2 if the processor supports it, got '%s'",
                            name);
    return PyUnicode_FromString(chosen);
}

static PyMethodDef methods[] = {
    {"search", search, METH_VARARGS, search_doc},
    {"set_isa", set_isa, METH_VARARGS, set_isa_doc},
    {"play_turns", play_turns, METH_VARARGS, play_turns_doc},
    {"inputs", inputs, METH_VARARGS, inputs_doc},
    {"play_game", play_game, METH_VARARGS, play_game_doc},
    {"evaluate_batch", evaluate_batch, METH_VARARGS, evaluate_batch_doc},
    {"use_cpu_clock", use_cpu_clock, METH_VARARGS, use_cpu_clock_doc},
    {"set_throttle", set_throttle, METH_VARARGS, set_throttle_doc},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_search",
                                    "Alpha-beta search for Battlesnake.", 0, methods,
                                    NULL, NULL, NULL, NULL};

#ifndef SOURCES_HASH /* setup.py defines it as the hash of the sources */
#define SOURCES_HASH ""
#endif

PyMODINIT_FUNC PyInit__search(void) {
    select_isa("best");
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddStringConstant(made, "SOURCES_HASH", SOURCES_HASH)) Py_CLEAR(made);
    return made;
}
