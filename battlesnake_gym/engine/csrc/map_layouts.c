/* Fills the point lists of the fixed maps with data from Python. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "rand.h"
#include "map_layouts.h"

#define DEFINE_POINT_LIST(name) PointList name;
FIXED_POINT_LISTS(DEFINE_POINT_LIST)

static int read_point_list(PyObject *layouts, const char *name, PointList *list) {
    PyObject *bytes = PyMapping_GetItemString(layouts, name);
    char *start;
    Py_ssize_t size;
    if (!bytes || PyBytes_AsStringAndSize(bytes, &start, &size)) return -1;
    /* The buffer is never released, because the engine reads the buffer until the process ends. */
    list->at = (const Point *)start;
    list->count = (int)((size_t)size / sizeof(Point));
    return 0;
}

int map_layouts_init(void) {
    PyObject *module = PyImport_ImportModule("battlesnake_gym.rules.tables");
    PyObject *random = module ? PyObject_GetAttrString(module, "RANDOM") : NULL;
    PyObject *layouts = random ? PyObject_GetAttrString(module, "LAYOUTS") : NULL;
    int failed = !layouts;
#define READ_POINT_LIST(name) failed = failed || read_point_list(layouts, #name, &name);
    FIXED_POINT_LISTS(READ_POINT_LIST)
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
