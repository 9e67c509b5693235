/* Python's door to the search: heuristics._search_2026.think(...). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "search.h"

typedef struct {
    Py_buffer lengths, health, bodies, food, hazards, weights;
} Buffers;

static void release(Buffers *buffers) {
    PyBuffer_Release(&buffers->lengths);
    PyBuffer_Release(&buffers->health);
    PyBuffer_Release(&buffers->bodies);
    PyBuffer_Release(&buffers->food);
    PyBuffer_Release(&buffers->hazards);
    PyBuffer_Release(&buffers->weights);
}

static int refuse(const char *field, const char *rule) {
    PyErr_Format(PyExc_ValueError, "%s %s", field, rule);
    return -1;
}

static int has_bytes(const char *field, const Py_buffer *buffer, Py_ssize_t wanted) {
    if (buffer->len == wanted) return 1;
    PyErr_Format(PyExc_ValueError, "%s must hold %zd bytes, got %zd", field, wanted, buffer->len);
    return 0;
}

/* Trusts nothing: the search indexes by what is checked here. */
static int check(const Question *ask, const Buffers *buffers) {
    if (ask->width < 1 || ask->width > 25) return refuse("width", "must be between 1 and 25");
    if (ask->height < 1 || ask->height > 25) return refuse("height", "must be between 1 and 25");
    if (ask->snakes < 1 || ask->snakes > MAX_SNAKES)
        return refuse("snakes", "must number between 1 and 16");
    if (ask->max_depth < 1 || ask->max_depth > MAX_DEPTH)
        return refuse("max_depth", "must be between 1 and 120");
    int cells = ask->width * ask->height, segments = 0;
    if (!has_bytes("lengths", &buffers->lengths, ask->snakes * 4) ||
        !has_bytes("health", &buffers->health, ask->snakes * 4) ||
        !has_bytes("food", &buffers->food, cells) ||
        !has_bytes("hazards", &buffers->hazards, cells) ||
        !has_bytes("weights", &buffers->weights, WEIGHTS * 4))
        return -1;
    for (int s = 0; s < ask->snakes; s++) {
        if (ask->lengths[s] < 1 || ask->lengths[s] > MAX_CELLS)
            return refuse("lengths", "must be between 1 and 625");
        if (ask->health[s] < 1 || ask->health[s] > 100)
            return refuse("health", "must be between 1 and 100");
        segments += ask->lengths[s];
    }
    if (!has_bytes("bodies", &buffers->bodies, segments * 2)) return -1;
    for (int i = 0; i < segments; i++)
        if (ask->bodies[i] >= cells) return refuse("bodies", "must lie on the board");
    return 0;
}

static PyObject *line_of(const Question *ask, const Answer *answer) {
    PyObject *line = PyList_New(answer->line_length);
    for (int i = 0; line && i < answer->line_length; i++) {
        PyObject *moves = PyBytes_FromStringAndSize((const char *)answer->line[i], ask->snakes);
        if (!moves || PyList_SetItem(line, i, moves)) Py_CLEAR(line);
    }
    return line;
}

static PyObject *scores_of(const Answer *answer) {
    PyObject *scores = PyDict_New();
    for (int move = 0; scores && move < 4; move++) {
        if (!answer->searched[move]) continue;
        PyObject *key = PyLong_FromLong(move), *value = PyLong_FromLong(answer->scores[move]);
        if (!key || !value || PyDict_SetItem(scores, key, value)) Py_CLEAR(scores);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return scores;
}

PyDoc_STRVAR(think_doc,
"think(width, height, wrapped, constrictor, solo, damage, lengths, health, bodies, food, hazards,\n"
"      weights, seconds, nodes, max_depth)\n"
"--\n\n"
"Search for the best move of snake 0.\n\n"
"lengths, health and weights are int32 buffers, bodies uint16 cells (y * width + x, head first, one\n"
"snake after the other), food and hazards one byte a cell. A limit of 0 is none.\n"
"Returns (move, depth, proven, evaluated, visited, scores by move, line: bytes a turn).\n"
"Raises ValueError for what the search cannot hold. Releases the GIL.");

int search_2026_cpu_clock;

static pthread_key_t workspaces;

/* This thread's workspace, freed when the thread ends; NULL without memory. */
static Workspace *own_workspace(void) {
    Workspace *workspace = pthread_getspecific(workspaces);
    if (workspace) return workspace;
    workspace = calloc(1, sizeof *workspace);
    if (workspace && pthread_setspecific(workspaces, workspace)) {
        free(workspace);
        return NULL;
    }
    return workspace;
}

static PyObject *think(PyObject *module, PyObject *args) {
    (void)module;
    Question ask = {0};
    Answer answer;
    Buffers buffers;
    long long nodes;
    memset(&buffers, 0, sizeof buffers);
    if (!PyArg_ParseTuple(args, "iipppiy*y*y*y*y*y*dLi:think", &ask.width, &ask.height,
                          &ask.wrapped, &ask.constrictor, &ask.solo, &ask.damage, &buffers.lengths,
                          &buffers.health, &buffers.bodies, &buffers.food, &buffers.hazards,
                          &buffers.weights, &ask.seconds, &nodes, &ask.max_depth))
        return NULL;
    ask.nodes = nodes;
    ask.snakes = (int)(buffers.lengths.len / 4);
    ask.lengths = buffers.lengths.buf;
    ask.health = buffers.health.buf;
    ask.bodies = buffers.bodies.buf;
    ask.food = buffers.food.buf;
    ask.hazards = buffers.hazards.buf;
    ask.weights = buffers.weights.buf;
    ask.workspace = own_workspace();
    if (!ask.workspace) {
        release(&buffers);
        return PyErr_NoMemory();
    }
    if (check(&ask, &buffers)) {
        release(&buffers);
        return NULL;
    }
    int cells = ask.width * ask.height, failed;
    Py_BEGIN_ALLOW_THREADS
    failed = cells <= 128   ? search_2026_small(&ask, &answer)
             : cells <= 384 ? search_2026_medium(&ask, &answer)
                            : search_2026_large(&ask, &answer);
    Py_END_ALLOW_THREADS
    release(&buffers);
    if (failed) return PyErr_NoMemory();
    return Py_BuildValue("(iiiLLNN)", answer.move, answer.depth, answer.proven,
                         (long long)answer.evaluated, (long long)answer.visited,
                         scores_of(&answer), line_of(&ask, &answer));
}

PyDoc_STRVAR(use_cpu_clock_doc,
"use_cpu_clock(on)\n"
"--\n\n"
"Whether the seconds of all searches in this process are its CPU time from now on; returns what\n"
"held before. For comparisons on a busy machine; who plays against a clock needs the wall's.");

static PyObject *use_cpu_clock(PyObject *module, PyObject *args) {
    (void)module;
    int on, before = search_2026_cpu_clock;
    if (!PyArg_ParseTuple(args, "p:use_cpu_clock", &on)) return NULL;
    search_2026_cpu_clock = on;
    return PyBool_FromLong(before);
}

static PyMethodDef methods[] = {{"think", think, METH_VARARGS, think_doc},
                                {"use_cpu_clock", use_cpu_clock, METH_VARARGS, use_cpu_clock_doc},
                                {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_search_2026",
                                    "The search of the ladder's upper rungs, which stays as it is.", 0, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__search_2026(void) {
    if (pthread_key_create(&workspaces, free)) return PyErr_NoMemory();
    return PyModule_Create(&module);
}
