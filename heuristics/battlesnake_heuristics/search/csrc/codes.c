/* Which code thinks: chosen by the size of the board and the processor. And by which clock. */
#include <string.h>

#include "codes.h"
#include "processor.h"

int search_cpu_clock;
double search_pace, search_calm[2];

static const Code *const PLAIN[] = {&small_plain, &medium_plain, &large_plain};
#ifdef X86_VECTORS
static const Code *const AVX2[] = {&small_avx2, &medium_avx2, &large_avx2};
static int has_avx2(void) { return processor_has(HAS_AVX2); }
#else
#define AVX2 PLAIN
static int has_avx2(void) { return 0; }
#endif

static const Code *const *chosen = PLAIN;

const char *choose_code(const char *name) {
    int best = !strcmp(name, "best");
    if ((best || !strcmp(name, "avx2")) && has_avx2()) {
        chosen = AVX2;
        return "avx2";
    }
    if (!best && strcmp(name, "plain")) return NULL;
    chosen = PLAIN;
    return "plain";
}

const Code *code_for(int cells) { return chosen[cells <= 128 ? 0 : cells <= 384 ? 1 : 2]; }
