/* The Python type `Batch`: many games in one block of memory, and how arrays are handed to it. */
#ifndef BATTLESNAKE_BATCH_H
#define BATTLESNAKE_BATCH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "game.h"
#include "masks.h"
#include "observe.h"

/* A caller's array, kept between calls: stepping one game from Python is mostly the cost of asking
 * numpy for its memory, and callers pass the same array turn after turn. */
typedef struct {
    PyObject *object; /* NULL: nothing kept */
    Py_buffer view;
} KeptArray;

/* What the snakes see, and how they see it; nothing where nothing is kept. */
typedef struct {
    KeptArray out;
    Observation observation;
} Shown;

/* Trainers show one; policies that sit opposite may want others. */
enum { MAX_SHOWN = 8 };

typedef struct {
    PyObject_HEAD
    Layout layout;
    Rules rules;
    Py_ssize_t num_games;
    int32_t (*sizes)[3]; /* width, height and number of snakes of each game */
    PyObject *memory;    /* a capsule of it as allocated; records are aligned within it */
    char *records; /* num_games * layout.record_size bytes */
    char *colds;   /* num_games * layout.cold_size bytes */
    int busy;      /* set while a call works without the GIL */
    KeptArray actions;
    Shown shown[MAX_SHOWN]; /* what is shown of the games, up to date after every call */
} Batch;

static inline Record *batch_record(const Batch *batch, Py_ssize_t game) {
    return (Record *)(batch->records + (size_t)game * batch->layout.record_size);
}
static inline Cold *batch_cold(const Batch *batch, Py_ssize_t game) {
    return (Cold *)(batch->colds + (size_t)game * batch->layout.cold_size);
}
static inline Game batch_game(const Batch *batch, Py_ssize_t game) {
    return (Game){&batch->layout, &batch->rules, batch_record(batch, game),
                  batch_cold(batch, game)};
}

/* What an array handed to the engine must look like. The rank is at most 5. */
typedef struct {
    const char *name;  /* of the argument, for messages */
    const char *dtype; /* numpy's name, for messages */
    char format;       /* of the struct module: 'B' uint8, '?' bool, 'l' int64, 'i' int32 */
    int writable;
    int ndim;
    Py_ssize_t shape[5];
} ArraySpec;

/* Fills `view` with the C-contiguous memory of `object`, or sets a ValueError or TypeError that
 * names the argument, what it is and what it must be, and returns -1. Release the view after use. */
int get_array(PyObject *object, const ArraySpec *spec, Py_buffer *view);

/* The same through a kept view; returns the memory, or NULL with the error set. */
void *get_kept_array(KeptArray *kept, PyObject *object, const ArraySpec *spec);

/* Call around work on all games: marks the batch as busy (another thread that comes meanwhile gets
 * a RuntimeError, and -1 is returned here) and, for large batches, lets other threads run.
 *
 *     PyThreadState *thread;
 *     if (begin_work(batch, &thread) < 0) return NULL;
 *     ...no Python calls...
 *     end_work(batch, thread);
 */
int begin_work(Batch *batch, PyThreadState **thread);
void end_work(Batch *batch, PyThreadState *thread);

extern PyType_Spec batch_spec;

#endif
