#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "rand.h"
#include "tables.h"

#define DEFINE_PLACES(name) Places name;
FIXED_PLACES(DEFINE_PLACES)

static int read_places(PyObject *layouts, const char *name, Places *places) {
    PyObject *bytes = PyMapping_GetItemString(layouts, name);
    char *start;
    Py_ssize_t size;
    if (!bytes || PyBytes_AsStringAndSize(bytes, &start, &size)) return -1;
    /* Never given back: the engine reads it for as long as there is one. */
    places->at = (const Point *)start;
    places->count = (int)((size_t)size / sizeof(Point));
    return 0;
}

int tables_init(void) {
    PyObject *module = PyImport_ImportModule("battlesnake_gym.rules.tables");
    PyObject *random = module ? PyObject_GetAttrString(module, "RANDOM") : NULL;
    PyObject *layouts = random ? PyObject_GetAttrString(module, "LAYOUTS") : NULL;
    int failed = !layouts;
#define READ_PLACES(name) failed = failed || read_places(layouts, #name, &name);
    FIXED_PLACES(READ_PLACES)
    char *words;
    Py_ssize_t size;
    failed = failed || PyBytes_AsStringAndSize(random, &words, &size);
    if (!failed && rand_init(words, (size_t)size)) {
        PyErr_SetString(PyExc_ValueError, "rules.tables.RANDOM must have 607 words of 64 bits");
        failed = 1;
    }
    Py_XDECREF(layouts);
    Py_XDECREF(random);
    Py_XDECREF(module);
    return failed ? -1 : 0;
}
