/* Any bytes as a JSON Web Token: none is valid, as nobody has the keys' private halves, and no read
 * leaves the bytes. */
#include <stdlib.h>
#include <string.h>

#include "auth/jwt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* RFC 7515 A.2.1 and A.3.1. */
static const char set[] =
    "{\"keys\":[{\"kty\":\"EC\",\"crv\":\"P-256\","
    "\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\","
    "\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"},"
    "{\"kty\":\"RSA\",\"n\":\"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-"
    "Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_"
    "7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3"
    "qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWy"
    "uXpoQ\",\"e\":\"AQAB\"}]}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static fv_jwt *j;
    char tenant[33];
    if (!j && fv_jwt_open("joe", "fovea", set, sizeof set - 1, &j) != FV_OK) abort();
    if (fv_jwt_check(j, (const char *)data, n, 1300819000, "iss", tenant, sizeof tenant, NULL) ==
        FV_OK)
        abort();
    return 0;
}
