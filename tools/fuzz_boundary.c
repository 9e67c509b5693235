/* LibFuzzer entry points for the function `fuzz_once` of fuzz_boundary.py. They start an interpreter that
 * loads both compiled modules, built with sanitizers and coverage counters, and pass the fuzzer's
 * bytes to it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

static PyObject *one;

static void check(const void *found) {
    if (found) return;
    PyErr_Print();
    abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    PyConfig_SetBytesString(&config, &config.program_name, getenv("FUZZ_PYTHON"));
    if (PyStatus_Exception(Py_InitializeFromConfig(&config))) abort();
    PyObject *module = PyImport_ImportModule("fuzz_boundary");
    check(module);
    check(one = PyObject_GetAttrString(module, "fuzz_once"));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    PyObject *result = PyObject_CallFunction(one, "y#", data, (Py_ssize_t)size);
    check(result);
    Py_DECREF(result);
    return 0;
}
