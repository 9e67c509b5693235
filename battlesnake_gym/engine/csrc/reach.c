#include "reach.h"

void reach_planes(Vectors vectors, const Layout *layout, const Record *record, size_t stride,
                  int size, uint8_t *out) {
    int cells = record->width * record->height;
    (cells <= 128   ? reach_planes_small
     : cells <= 384 ? reach_planes_medium
                    : reach_planes_large)(vectors, layout, record, stride, size, out);
}
