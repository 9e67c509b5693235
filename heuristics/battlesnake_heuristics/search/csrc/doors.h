/* The functions of the Python module `battlesnake_heuristics.search._search`, and the checks that they share. */
#ifndef DOORS_H
#define DOORS_H

#include <Python.h>

#include "search.h"

typedef union {
    struct {
        Py_buffer lengths, health, bodies, food, hazards, weights, network, moves;
    };
    Py_buffer all[8];
} Buffers;

void release(Buffers *buffers);
void fill(Question *ask, const Buffers *buffers); /* with the buffers of a position */

/* These set a Python error and return -1 (`holds`: 0) for what must not be let in. */
int refuse(const char *field, const char *rule);
int holds(const char *field, const Py_buffer *buffer, Py_ssize_t count, int size); /* aligned */
int check_position(const Question *ask, const Buffers *buffers, int *planes); /* NULL: one */
int check_weights(const Py_buffer *buffer);
int check_network(const Py_buffer *buffer, const Network **network);

PyObject *play_game(PyObject *module, PyObject *args);
PyObject *values_by(PyObject *module, PyObject *args);
extern const char play_game_doc[], values_by_doc[];

#endif
