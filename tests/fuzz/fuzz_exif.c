/* Any bytes as EXIF, XMP and a raw profile: an orientation or none comes out, and EXIF that is split into parts is the same
 * as in one. */
#include <stdlib.h>
#include <string.h>

#include "image/exif.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int32_t valid(int32_t orientation) {
    if (orientation < 0 || orientation > 8) abort();
    return orientation;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const fv_byte_part whole = {data, n};
    const int32_t orientation = valid(fv_exif_orientation(&whole, 1));
    valid(fv_xmp_orientation(data, n));
    valid(fv_raw_profile_orientation(data, n));
    const size_t head = 12; /* a prefix is in the first part */
    if (n < head) return 0;
    const size_t first = head + data[n - 1] % (n - head + 1), rest = n - first;
    const fv_byte_part parts[] = {
        {data, first}, {data + first, rest / 2}, {data + first + rest / 2, rest - rest / 2}};
    if (valid(fv_exif_orientation(parts, 3)) != orientation) abort();
    return 0;
}
